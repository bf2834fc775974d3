"""Why a run took longer than its plan."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Kind, NoAnswerError, Op, Problem, Schedule, simulate
from adaptpipe.solver.core.problem import SECONDS
from adaptpipe.solver.evaluate.simulate import op_inputs, op_ticks
from adaptpipe.solver.traces.attribution import Attribution, Cause, attribute
from adaptpipe.solver.traces.trace import Ran, Trace, trace_of
from adaptpipe.solver.traces.usage import usages
from tests.strategies import problems, schedules_of


@dataclass
class Disturbance:
    """Nanoseconds that ops, their messages and their starts take more than planned."""

    op: Mapping[Op, int] = field(default_factory=dict)
    message: Mapping[Op, int] = field(default_factory=dict)
    start: Mapping[Op, int] = field(default_factory=dict)


def run(problem: Problem, schedule: Schedule, executed: Schedule, more: Disturbance) -> Trace:
    """Run ops in the order of `executed`: a second implementation of what `simulate` does."""
    tick = int(SECONDS[problem.unit] * 10**9)
    instance = problem.instance(schedule.sizes)
    flat = [op for row in executed.ops for op in row]
    ticks = dict(zip(flat, op_ticks(instance, executed).tolist(), strict=True))
    planned = [op for row in schedule.ops for op in row]
    lags = dict(zip(planned, op_inputs(instance, schedule)[1].max(axis=1).tolist(), strict=True))
    trace = trace_of(simulate(problem, schedule))
    ends: dict[Op, int] = {}
    rows: list[list[Ran]] = [[] for _ in executed.ops]
    while len(ends) < len(flat):
        for row, todo in zip(rows, executed.ops, strict=True):
            if len(row) == len(todo):
                continue
            op, source = todo[len(row)], trace.source(todo[len(row)])
            if source is not None and source[1] not in ends:
                continue
            free = row[-1].end_ns if row else 0
            arrived = None if source is None else ends[source[1]] + lags[op] * tick + more.message.get(op, 0)
            start = max(free, arrived or 0) + more.start.get(op, 0)
            ends[op] = start + ticks[op] * tick + more.op.get(op, 0)
            asked = (
                None if arrived is None else max((ran.end_ns for ran in row if ran.op.kind is not Kind.W), default=0)
            )
            row.append(Ran(op, start, ends[op], asked_ns=None if arrived is None else asked, arrived_ns=arrived))
    return Trace(schedule, tuple(map(tuple, rows)), float(SECONDS[problem.unit]))


def moved(problem: Problem, schedule: Schedule, chance: random.Random) -> Schedule:
    """The schedule with its weight gradients cut into units, and some of these anywhere behind their I."""
    rows = []
    for row in schedule.ops:
        slots: list[list[Op]] = [[]]
        behind: dict[tuple[int, int], int] = {}
        for op in row:
            if op.kind is not Kind.W:
                slots.append([op])
                behind[op.stage, op.microbatch] = len(slots) - 1
        here = 0
        for op in row:
            if op.kind is not Kind.W:
                here += 1
                continue
            first, last = op.units or (0, len(problem.weight_units[op.stage]))
            for unit in range(first, last):
                away = chance.random() < 0.5
                slot = chance.randint(behind[op.stage, op.microbatch], len(slots) - 1) if away else here
                slots[slot].append(replace(op, units=(unit, unit + 1)))
        rows.append(tuple(op for slot in slots for op in slot))
    return replace(schedule, ops=tuple(rows))


def disturbed(schedule: Schedule, chance: random.Random) -> Disturbance:
    def some() -> dict[Op, int]:
        return {op: chance.choice([0, 0, 1, 7, 10**9]) for row in schedule.ops for op in row}

    return Disturbance(some(), some(), some())


def assert_adds_up(found: Attribution, trace: Trace) -> None:
    assert found.total() == found.measured_ns - found.planned_ns == trace.makespan_ns - found.planned_ns
    assert sum(found.total(rank) for rank in range(len(trace.rows))) == found.total()
    assert sum(found.total(cause=cause) for cause in Cause) == found.total()
    assert all(charge.ns <= 0 for charge in found.charges if charge.cause is Cause.slack)
    assert all(charge.ns > 0 for charge in found.charges if charge.cause in (Cause.overhead, Cause.filling))


def causes(found: Attribution) -> set[Cause]:
    return {charge.cause for charge in found.charges}


@given(st.data(), st.randoms(use_true_random=False))
def test_the_charges_add_up(data: st.DataObject, chance: random.Random) -> None:
    """Whatever was late, and wherever weight gradients ran."""
    problem = data.draw(problems())
    schedule = data.draw(schedules_of(problem))
    executed = moved(problem, schedule, chance) if chance.random() < 0.7 else schedule
    if chance.random() < 0.3:  # whole weight gradients, whose units are planned apart
        schedule, executed = executed, schedule
    trace = run(problem, schedule, executed, disturbed(executed, chance))
    found = attribute(problem, trace)
    assert found.planned_ns == simulate(problem, schedule).makespan * int(SECONDS[problem.unit] * 10**9)
    assert_adds_up(found, trace)
    # Ranges of a weight gradient that is cut into more than planned cost more.
    tick, ranges = trace.tick_ns, sum(op.kind is Kind.W for row in executed.ops for op in row)
    most = max(problem.overhead or (0,)) * ranges * tick
    assert all(charge.ns <= most for charge in found.charges if charge.cause is Cause.elsewhere)
    if executed is schedule:
        assert causes(found) <= {Cause.compute, Cause.message, Cause.overhead, Cause.slack}
    assert all(c.ns > 0 for c in found.charges if c.cause in (Cause.compute, Cause.message))
    for rank, usage in enumerate(usages(problem, trace)):
        assert usage.work_ns + usage.wait_ns + usage.overhead_ns + usage.after_ns == trace.makespan_ns
        assert min(usage.filled_ns, usage.wait_ns, usage.overhead_ns, usage.after_ns) >= 0
        assert usage.filled_ns <= sum(r.end_ns - r.start_ns for r in trace.rows[rank] if r.op.kind is Kind.W)


@settings(max_examples=50)
@given(st.data())
def test_a_run_as_planned_has_no_charges(data: st.DataObject) -> None:
    problem = data.draw(problems())
    schedule = data.draw(schedules_of(problem))
    for trace in (trace_of(simulate(problem, schedule)), run(problem, schedule, schedule, Disturbance())):
        found = attribute(problem, trace)
        assert found.charges == ()
        assert found.planned_ns == found.measured_ns
        for usage in usages(problem, trace):
            assert usage.planned_ns == usage.work_ns
            assert usage.overhead_ns == 0


@settings(max_examples=60)
@given(st.data(), st.sampled_from(["op", "message", "start"]), st.integers(1, 10**10))
def test_a_single_delay_has_a_single_cause(data: st.DataObject, what: str, delay: int) -> None:
    """All of it is charged to the op, if it is on the critical path, and the plan's slack is all that helps."""
    problem = data.draw(problems())
    schedule = data.draw(schedules_of(problem))
    plan = trace_of(simulate(problem, schedule))
    ops = [op for row in schedule.ops for op in row]
    if what == "message":
        ops = [op for op in ops if plan.source(op) is not None]
    if not ops:
        return
    op = data.draw(st.sampled_from(ops))
    found = attribute(problem, run(problem, schedule, schedule, Disturbance(**{what: {op: delay}})))
    cause = {"op": Cause.compute, "message": Cause.message, "start": Cause.overhead}[what]
    charged = [charge for charge in found.charges if charge.cause is not Cause.slack]
    late = found.measured_ns - found.planned_ns
    assert 0 <= late <= delay
    if late:
        assert [(charge.op, charge.cause, charge.ns) for charge in charged] == [(op, cause, Fraction(delay))]


PROBLEM = Problem.from_dict(
    {
        "unit": "ns",
        "pipeline": {"ranks": 2},
        "batch": {"samples": 2},
        "costs": {"forward": 10, "backward_input": 10, "weight_units": [4, 4]},
        "links": {"latency": 5},
    }
)
ROWS = [["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"], ["1F0", "1I0", "1W0", "1F1", "1I1", "1W1"]]
PLAN = Schedule.parse(PROBLEM.placement, [1, 1], ROWS)


def ran_as(second: Sequence[str], late: Callable[[Op], int]) -> Trace:
    executed = Schedule.parse(PROBLEM.placement, [1, 1], [ROWS[0], second])
    messages = {op: late(op) for row in executed.ops for op in row if op.kind is not Kind.W}
    return run(PROBLEM, PLAN, executed, Disturbance(message=messages))


def told(found: Attribution) -> list[str]:
    return [f"{charge.rank} {charge.op} {charge.cause} {charge.ns}" for charge in found.charges]


def test_the_plan_of_the_examples() -> None:
    """Rank 1: F0 15-25, I0 -35, W0 -43, F1 -53, I1 -63, W1 -71; rank 0: I0 40, W0 -58, I1 68-78, W1 -86."""
    assert simulate(PROBLEM, PLAN).makespan == 86


def test_a_wait_that_weights_fill_stays_visible() -> None:
    """F1's message comes 30 late, at 55, and a unit of W0 that was put off to fill the wait ends at 57."""
    trace = ran_as(
        ["1F0", "1I0", "1W0[0:1]", "1W0[1:2]", "1F1", "1I1", "1W1"], lambda op: 30 if str(op) == "1F1" else 0
    )
    assert told(attribute(PROBLEM, trace)) == ["1 1F1 message 30", "1 1F1 slack -18"]
    early = ran_as(["1F0", "1I0", "1W0", "1F1", "1I1", "1W1"], lambda op: 30 if str(op) == "1F1" else 0)
    assert usages(PROBLEM, early)[1].filled_ns == 8
    assert usages(PROBLEM, early)[1].wait_ns == 15 + 55 - 43


def test_a_weight_gradient_brought_forward_overruns() -> None:
    """The plan has W0 last; the message of F1 comes at 36, while it fills the wait from 35 on, until 43."""
    plan = Schedule.parse(PROBLEM.placement, [1, 1], [ROWS[0], ["1F0", "1I0", "1F1", "1I1", "1W0", "1W1"]])
    executed = Schedule.parse(PROBLEM.placement, [1, 1], ROWS)
    late = {op: 11 for op in executed.ops[1] if str(op) == "1F1"}
    trace = run(PROBLEM, plan, executed, Disturbance(message=late))
    # Planned: I1 of rank 1 ends at 55, of rank 0 at 70, W1 at 78. Ran: F1 43-53, I1 -63, of rank 0 68-78, W1 -86.
    found = attribute(PROBLEM, trace)
    assert told(found) == ["1 1F1 message 11", "1 1F1 filling 7", "1 1F1 slack -10"]
    assert found.total() == 8


def test_a_weight_gradient_put_off_ran_elsewhere() -> None:
    """W0 of rank 1 runs at the end: F1 starts 8 earlier, and nothing else does."""
    trace = ran_as(["1F0", "1I0", "1F1", "1I1", "1W0", "1W1"], lambda op: 0)
    found = attribute(PROBLEM, trace)
    assert told(found) == ["1 1F1 elsewhere -8"]
    assert [str(op) for _, op in found.path] == ["0F0", "1F0", "1I0", "1F1", "1I1", "0I1", "0W1"]


def test_another_clock_of_the_plan() -> None:
    """An emulated run may take any time for a tick."""
    trace = run(PROBLEM, PLAN, PLAN, Disturbance())
    found = attribute(PROBLEM, replace(trace, seconds_per_tick=1.1e-9))
    assert found.planned_ns == Fraction(946, 10)
    assert found.total() == 86 - Fraction(946, 10)
    assert causes(found) == {Cause.compute, Cause.message}


def test_what_does_not_fit_is_refused() -> None:
    trace = trace_of(simulate(PROBLEM, PLAN))
    costs = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    other = Problem.from_dict({"pipeline": {"ranks": 3}, "batch": {"samples": 2}, "costs": costs})
    with pytest.raises(InputError, match="the schedule is for 2 stages on 2 ranks, the problem has 3 on 3"):
        attribute(other, trace)
    short = replace(trace, rows=(trace.rows[0][:-1], trace.rows[1]))
    with pytest.raises(InputError, match=r"not of a run of its schedule: rank 0: 0W1 is missing"):
        attribute(PROBLEM, short)
    stuck = Schedule.parse(PROBLEM.placement, [1, 1], [["0I0", "0F0", *ROWS[0][1:2], *ROWS[0][3:]], ROWS[1]])
    rows = tuple(tuple(Ran(op, at, at + 1) for at, op in enumerate(row)) for row in stuck.ops)
    with pytest.raises(NoAnswerError, match="deadlock"):
        attribute(PROBLEM, Trace(stuck, rows, 1e-9))
