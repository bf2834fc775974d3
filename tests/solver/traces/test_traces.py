"""Traces: what is written, for whom, and that it can be read back."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Kind, Op, Problem, Schedule, Timeline, parse_op, simulate
from adaptpipe.solver.core.problem import SECONDS
from adaptpipe.solver.traces.reading import load_trace
from adaptpipe.solver.traces.trace import Ran, Trace, trace_of
from adaptpipe.solver.traces.writing import COMPUTE, RECEIVE, SEND, microseconds, save_trace, trace_events
from tests.nesting import tracks
from tests.strategies import problems, schedules_of

DATA: dict[str, Any] = {
    "name": "tiny",
    "unit": "ms",
    "pipeline": {"ranks": 2},
    "batch": {"samples": 2},
    "costs": {"forward": 3, "backward_input": 4, "backward_weight": 2},
    "memory": {"unit": "MB", "activation": 3, "retained": 1, "limit": 6},
    "links": {"latency": 5, "bandwidth": 1e6, "bytes": 7},
}
ROWS = [["0F0", "0F1", "0B0", "0I1", "0W1"], ["1F0", "1F1", "1B0", "1B1"]]


def tiny() -> Timeline:
    problem = Problem.from_dict(DATA)
    return simulate(problem, Schedule.parse(problem.placement, [1, 1], ROWS))


@given(st.data())
def test_a_plan_is_written_as_it_is(data: st.DataObject) -> None:
    """Perfetto drops events that overlap on one track, where chrome://tracing shows them: google/perfetto#4280."""
    problem = data.draw(problems())
    timeline = simulate(problem, data.draw(schedules_of(problem)))
    events: list[dict[str, Any]] = trace_events(trace_of(timeline))
    found = tracks(events)
    for spans in found.values():
        for (_, end, _), (start, _, _) in pairwise(sorted(spans)):
            assert start >= end
    tick = int(SECONDS[problem.unit] * 10**9)
    for rank in range(problem.ranks):
        ops = sorted((start * tick, end * tick, str(op)) for op, start, end in timeline.of(rank))
        assert sorted(found.get((rank, COMPUTE), [])) == ops
        held = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["pid"] == rank]
        first, last = timeline.schedule.table.offsets[rank : rank + 2]
        assert held == np.stack([timeline.during[first:last], timeline.after[first:last]], axis=1).ravel().tolist()
        # A rank of a plan waits where it has begun and idles.
        waits = sum(end - start for start, end, _ in found.get((rank, RECEIVE), []))
        ended = max((end for _, _, end in timeline.of(rank)), default=0)
        assert waits == (ended - timeline.work[rank]) * tick
    sent = [name for (_, track), spans in found.items() if track >= SEND for _, _, name in spans]
    arrivals = [ran for row in trace_of(timeline).rows for ran in row if ran.arrived_ns is not None]
    assert len(arrivals) == timeline.messages
    assert len(sent) == len(set(sent)) <= len(arrivals)


@settings(max_examples=50)
@given(st.data())
def test_a_trace_is_read_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    problem = data.draw(problems())
    trace = trace_of(simulate(problem, data.draw(schedules_of(problem))))
    path = tmp_path_factory.mktemp("trace") / "t.trace.json"
    save_trace(trace, path)
    assert load_trace(path) == trace


@given(st.integers(0, 2**46))
def test_nanoseconds_survive_readers_that_round_and_that_cut_off(count: int) -> None:
    assert int(microseconds(count) * 1000) == round(microseconds(count) * 1000) == count


def test_messages_and_waits_of_a_plan(tmp_path: Path) -> None:
    save_trace(trace_of(tiny()), tmp_path / "t.trace.json")
    events = msgspec.json.decode((tmp_path / "t.trace.json").read_bytes())["traceEvents"]
    named = {(event["name"], event["cat"]): event for event in events if event["ph"] == "X"}
    op = named["0F1", "F"]
    assert (op["ts"], op["dur"], op["args"]["samples"], op["args"]["message_bytes"]) == (3000.0, 3000.0, 1, 7)
    message = named["0F0 to rank 1", "message"]
    assert (message["pid"], message["tid"], message["ts"], message["dur"]) == (0, SEND, 3000.0, 6000.0)
    assert named["0F1 to rank 1", "message"]["tid"] == SEND + 1  # it leaves while the first is under way
    wait = named["0F0 from rank 0", "wait"]
    assert (wait["pid"], wait["tid"], wait["ts"], wait["dur"]) == (1, RECEIVE, 0.0, 9000.0)


def test_weight_gradients_may_fill_a_wait() -> None:
    trace = trace_of(tiny())
    first, second = trace.rows
    asked = replace(first[2], asked_ns=first[1].end_ns - 1)  # also before the op before had ended
    found = tracks(trace_events(replace(trace, rows=((*first[:2], asked, *first[3:]), second))))
    assert found[0, RECEIVE][0][0] == first[1].end_ns - 1


def other(rows: list[list[str]]) -> Trace:
    """The tiny trace with other ops, a nanosecond each."""
    trace = trace_of(tiny())
    ran = tuple(tuple(Ran(parse_op(text), at, at + 1) for at, text in enumerate(row)) for row in rows)
    return replace(trace, rows=ran)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([ROWS[0]], "the trace has 1 ranks, and its schedule 2"),
        ([ROWS[0], ["1F1", "1F0", "1B0", "1B1"]], "rank 1 ran 1F1 where its schedule has 1F0"),
        ([ROWS[0], ROWS[1][:3]], "rank 1 ran nothing where its schedule has 1B1"),
        ([ROWS[0], [*ROWS[1], "1B1"]], "rank 1 ran 1B1 where its schedule has no more"),
    ],
)
def test_a_trace_of_another_schedule_is_refused(rows: list[list[str]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        other(rows)


def test_ops_at_the_same_time_are_refused() -> None:
    trace = other(ROWS)
    late = replace(trace.rows[0][0], end_ns=2)
    with pytest.raises(InputError, match=r"rank 0: 0F1 starts at 1 ns, before it could"):
        replace(trace, rows=((late, *trace.rows[0][1:]), trace.rows[1]))


def test_weight_gradients_may_be_elsewhere_and_in_other_ranges() -> None:
    trace = other([["0F0", "0F1", "0B0", "0I1", "0W1[0:1]"], ROWS[1]])
    assert trace.executed.ops[0][-1] == Op(0, Kind.W, 1, (0, 1))
    assert trace.schedule.ops[0][-1] == Op(0, Kind.W, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("adaptpipe"), "holds no schedule, so it is not a trace of ours"),
        (lambda data: data["adaptpipe"].update(version=2), "version 2 is not 'adaptpipe-trace' version 1"),
        (lambda data: data["adaptpipe"].update(seconds_per_tick=0.0), "seconds_per_tick: expected `float` > 0"),
        (lambda data: ops(data)[0].update(name="0X0"), "'0X0' is not an op"),
        (lambda data: ops(data)[0].update(pid=2), r"traceEvents\[2?\d+\]\.pid: 2 is not one of the 2 ranks"),
        (lambda data: ops(data)[0].pop("args"), r"traceEvents\[\d+\]\.args: top level: expected `object`, got `null`"),
        (lambda data: ops(data)[0].update(ts="now"), "ts: expected `float`, got `str`"),
        (lambda data: ops(data)[1].update(ts=0.0), "0F1 starts at 0 ns, before it could"),
    ],
)
def test_a_broken_trace_is_named(change: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.trace.json"
    save_trace(trace_of(tiny()), path)
    data = msgspec.json.decode(path.read_bytes())
    change(data)
    path.write_bytes(msgspec.json.encode(data))
    with pytest.raises(InputError, match=message) as caught:
        load_trace(path)
    assert str(caught.value).startswith(str(path))


def ops(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in data["traceEvents"] if event["ph"] == "X" and event["tid"] == COMPUTE]
