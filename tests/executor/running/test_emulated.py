"""Emulated ops on real ranks: what they take, what they wait for, and in which order."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from adaptpipe.executor.errors import RankFailure
from adaptpipe.executor.launching.launcher import launch
from adaptpipe.executor.report import OpRecord, StepReport, as_trace
from adaptpipe.executor.running.emulated import Device
from adaptpipe.solver import Kind, Op, Placement, Problem, Schedule, place, simulate
from adaptpipe.solver.evaluate.simulate import op_inputs, op_ticks
from adaptpipe.solver.heuristics import gpipe
from adaptpipe.solver.traces.attribution import attribute
from adaptpipe.solver.traces.writing import COMPUTE, RECEIVE, SEND, trace_events
from tests.nesting import tracks

from ..orders import POLICIES, schedule_for
from .emulated_jobs import MESSAGE_BYTES, TICK_S, Case, fail, misuse, step_all

pytestmark = pytest.mark.timeout(60)

UNITS = 3
ROUNDING_S = 1e-6


def problem_of(placement: Placement, sizes: Sequence[int]) -> Problem:
    """Every kind of op has a price of its own, and a message costs nothing."""
    return Problem.from_dict(
        {
            "pipeline": {"ranks": placement.ranks, "placement": [list(row) for row in placement.stages]},
            "batch": {"samples": sum(sizes), "microbatch_sizes": sorted(set(sizes))},
            "costs": {
                "forward": {"fixed": 2, "per_sample": 3},
                "backward_input": {"fixed": 1, "per_sample": 4},
                "backward": {"fixed": 1, "per_sample": 6},
                "weight_units": [{"fixed": 0, "per_sample": 1}] * UNITS,
                "overhead": 2,
            },
            "memory": {
                "activation": {"fixed": 5, "per_sample": 70},
                "retained": {"fixed": 3, "per_sample": 90},
                "static": 11,
            },
        }
    )


def cut(schedule: Schedule, seed: int) -> Schedule:
    """Cut most W's in two; what was cut off runs at the end."""
    chance = random.Random(seed)
    rows = []
    for ops in schedule.ops:
        row: list[Op] = []
        later: list[Op] = []
        for op in ops:
            if op.kind is Kind.W and chance.random() < 0.8:
                at = chance.randint(1, UNITS - 1)
                row.append(replace(op, units=(0, at)))
                later.append(replace(op, units=(at, UNITS)))
            else:
                row.append(op)
        rows.append((*row, *later))
    return replace(schedule, ops=tuple(rows))


def cases(ranks: int) -> list[Case]:
    found = []
    shapes = (
        ("linear", 1, (1, 1, 1, 1)),
        ("linear", 1, (2, 3, 1)),
        ("loop", 2, (1, 2, 2)),
        ("v", 2, (3, 1)),
        ("bidirectional", 1, (1, 2, 1)),
    )
    for number, (family, per_rank, sizes) in enumerate(shapes):
        placement = place(family, ranks, per_rank)
        for seed in range(number, number + 3):
            schedule = schedule_for(placement, sizes, POLICIES[seed % len(POLICIES)], seed)
            found.append((problem_of(placement, sizes), cut(schedule, seed)))
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_ops_keep_order_duration_and_inputs(ranks: int) -> None:
    todo = cases(ranks)
    kinds = {op.kind for _, schedule in todo for row in schedule.ops for op in row}
    assert kinds == set(Kind)
    assert any(op.units for _, schedule in todo for row in schedule.ops for op in row)
    for (problem, schedule), *reports in zip(todo, *launch(step_all, ranks, todo, threads=1), strict=True):
        assert_is_run_of(problem, schedule, reports)
        assert_is_written(problem, schedule, reports)


def assert_is_run_of(problem: Problem, schedule: Schedule, reports: Sequence[StepReport]) -> None:
    """The ops are the schedule's, each takes what it is planned to, and none starts before it can."""
    instance, timeline = problem.instance(schedule.sizes), simulate(problem, schedule)
    for rank, (row, report) in enumerate(zip(schedule.ops, reports, strict=True)):
        assert tuple(record.op for record in report.records) == row
        assert report.peak_bytes + problem.static_bytes(rank) == timeline.peak_memory[rank]
        assert report.step_s >= report.records[-1].end_s - report.records[0].start_s
        for record in report.records:
            edge = 0 if record.op.is_backward else problem.stages - 1
            sends = record.op.kind is not Kind.W and record.op.stage != edge
            assert record.message_bytes == (MESSAGE_BYTES if sends else 0)
            assert_waits(schedule, rank, record)
    records = [record for report in reports for record in report.records]
    start, end = (np.array([getattr(record, key) for record in records]) for key in ("start_s", "end_s"))
    np.testing.assert_allclose(end - start, op_ticks(instance, schedule) * TICK_S, atol=ROUNDING_S)
    before, _ = op_inputs(instance, schedule)
    for column in before.T:
        waits = column >= 0
        assert (start[waits] >= end[column[waits]] - ROUNDING_S).all()
    for a, b in pairwise(schedule.table.offsets):
        assert (start[a + 1 : b] >= end[a : b - 1] - ROUNDING_S).all()
    # Nothing is faster than the plan without messages.
    assert (start - start.min() >= timeline.start * TICK_S - ROUNDING_S).all()


def assert_is_written(problem: Problem, schedule: Schedule, reports: Sequence[StepReport]) -> None:
    """Perfetto drops events that overlap on one track, as messages on their way and ops would: google/perfetto#503."""
    trace = as_trace(schedule, [report.records for report in reports], TICK_S)
    found = tracks(trace_events(trace))
    for rank, (row, report) in enumerate(zip(schedule.ops, reports, strict=True)):
        assert [name for _, _, name in sorted(found[rank, COMPUTE])] == [str(op) for op in row]
        waits = sum(end - start for start, end, _ in found.get((rank, RECEIVE), []))
        before = trace.begin_ns - min(ran.asked_ns or 0 for ran in trace.rows[rank])
        assert waits <= sum(ran.wait_ns for ran in trace.rows[rank]) <= waits + max(0, before)
        assert max(ran.during_bytes for ran in trace.rows[rank]) == report.peak_bytes
    found_out = attribute(problem, trace)
    assert found_out.total() == found_out.measured_ns - found_out.planned_ns
    on_their_way = sum(len(spans) for (_, track), spans in found.items() if track >= SEND)
    assert on_their_way == simulate(problem, schedule).messages


def assert_waits(schedule: Schedule, rank: int, record: OpRecord) -> None:
    """A message, and only a message, has been asked for and has arrived before its op starts."""
    op = record.op
    source = op.stage + 1 if op.is_backward else op.stage - 1
    inside = op.kind is not Kind.W and 0 <= source < schedule.placement.stage_count
    from_another = inside and schedule.placement.rank_of(source, op.microbatch, schedule.microbatches) != rank
    assert (record.asked_s is not None) == (record.arrived_s is not None) == from_another
    if record.asked_s is None or record.arrived_s is None:
        assert record.wait_s == 0
    else:
        assert record.arrived_s <= record.start_s
        assert record.wait_s == max(0, record.arrived_s - record.asked_s)


def test_what_a_process_does_between_ops_does_not_delay_its_device() -> None:
    device = Device()
    device.begin()
    device.run(0.001, 0.0)
    time.sleep(0.003)
    arrived = time.perf_counter()
    device.run(0.001, 0.0)
    time.sleep(0.003)
    device.run(0.001, arrived)
    ended = time.perf_counter()
    (_, first), (second, second_end), (third, third_end) = device.times
    assert second == first
    assert second_end < arrived == third
    assert third_end == third + 0.001 <= ended


def test_an_op_lasts_at_least_its_time() -> None:
    device = Device()
    for _ in range(20):
        begin = time.perf_counter()
        device.begin()
        device.run(0.0005, 0.0)
        assert time.perf_counter() - begin >= 0.0005
        assert len(device.times) == 1


def test_errors_say_what_is_wrong() -> None:
    here, elsewhere = (problem_of(place("linear", ranks), (1, 1)) for ranks in (2, 3))
    both = ((here, gpipe(here)), (elsewhere, gpipe(elsewhere)))
    for found in launch(misuse, 2, both, threads=1):
        assert found == [
            "InputError: report: there has been no step; call step first",
            "InputError: step 0: the pipeline is closed; make a new one",
            "InputError: seconds_per_tick = 0: must be above 0, and at most 3600",
            "InputError: message_bytes = 0: must be at least 1",
            "InputError: the schedule is for 3 ranks, and the process group has 2; start 3 processes",
        ]


def test_a_failing_op_is_named() -> None:
    problem = problem_of(place("linear", 2), (1, 1))
    with pytest.raises(RankFailure, match="boom") as caught:
        launch(fail, 2, (problem, gpipe(problem)), threads=1)
    assert (caught.value.rank, caught.value.stage, caught.value.op, caught.value.microbatch) == (1, 1, "B", 0)
