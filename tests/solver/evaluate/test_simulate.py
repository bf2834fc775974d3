"""The simulator against a few lines of plain Python that follow the semantics word for word."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Kind, NoAnswerError, Op, Problem, Schedule, check, place, simulate
from adaptpipe.solver.core.problem import SECONDS, price
from adaptpipe.solver.evaluate.limits import over_limit
from tests.strategies import problems, schedules_of

SMALL = {
    "pipeline": {"ranks": 2},
    "batch": {"samples": 2},
    "costs": {"forward": 3, "backward_input": 4, "backward_weight": 5},
}


def ticks_of(problem: Problem, sizes: tuple[int, ...], op: Op) -> int:
    size, units = sizes[op.microbatch], problem.weight_units[op.stage]
    start, stop = op.units or (0, len(units))
    weight = sum(price(unit, size) for unit in units[start:stop]) + (problem.overhead[op.stage] if start else 0)
    split = price(problem.backward_input[op.stage], size)
    if op.kind is Kind.B:
        return split + weight if problem.backward is None else price(problem.backward[op.stage], size)
    return {Kind.F: price(problem.forward[op.stage], size), Kind.I: split, Kind.W: weight}[op.kind]


def oracle_ends(problem: Problem, schedule: Schedule) -> dict[Op, int]:
    """End of every op: repeat over all ranks until nothing moves."""
    sizes, placement, ends = schedule.sizes, problem.placement, dict[Op, int]()
    rank_of = {(op.stage, op.microbatch): rank for rank, row in enumerate(schedule.ops) for op in row}

    def arrival(kinds: tuple[Kind, ...], stage: int, to: Op) -> int | None:
        source = next(
            (op for op in ends if (op.stage, op.microbatch) == (stage, to.microbatch) and op.kind in kinds), None
        )
        if source is None:
            return None
        a, b, time = rank_of[stage, to.microbatch], rank_of[to.stage, to.microbatch], ends[source]
        if a != b:
            time += problem.links.latency[a][b]
            if problem.links.bandwidth is not None:
                count = price(problem.links.message[min(stage, to.stage)], sizes[to.microbatch])
                time += ceil(count / (Fraction(problem.links.bandwidth[a][b]) * SECONDS[problem.unit]))
        return time

    moved = True
    while moved:
        moved = False
        for row in schedule.ops:
            clock = 0
            for op in row:
                if op not in ends:
                    waits: list[int | None] = [clock]
                    if op.kind is Kind.W:
                        waits.append(arrival((Kind.I,), op.stage, op))
                    elif op.kind is Kind.F:
                        waits += [arrival((Kind.F,), op.stage - 1, op)] if op.stage else []
                    else:
                        waits.append(arrival((Kind.F,), op.stage, op))
                        if op.stage + 1 < placement.stage_count:
                            waits.append(arrival((Kind.I, Kind.B), op.stage + 1, op))
                    known = [wait for wait in waits if wait is not None]
                    if len(known) < len(waits):
                        break
                    ends[op] = max(known) + ticks_of(problem, sizes, op)
                    moved = True
                clock = ends[op]
    return ends


def oracle_peaks(problem: Problem, schedule: Schedule) -> list[int]:
    peaks = []
    for rank, row in enumerate(schedule.ops):
        stages = {s for _, s in problem.placement.held[rank]}  # one that both directions have here is one module
        held = peak = sum(problem.memory.static[s] for s in stages) + problem.memory.reserve[rank]
        left: dict[tuple[int, int], int] = {}
        for op in row:
            size, key = schedule.sizes[op.microbatch], (op.stage, op.microbatch)
            activation = price(problem.memory.activation[op.stage], size)
            retained = price(problem.memory.retained[op.stage], size)
            if op.kind is Kind.F:
                held += activation
                peak = max(peak, held)
            elif op.kind is Kind.B:
                held -= activation
            elif op.kind is Kind.I:
                peak = max(peak, held - activation + max(activation, retained))
                held += retained - activation
                left[key] = retained
            else:
                units = problem.weight_units[op.stage]
                times = [price(unit, size) for unit in units]
                weights = times if sum(times) else [1] * len(units)
                start, stop = op.units or (0, len(units))
                freed = [retained * sum(weights[:u]) // sum(weights) for u in (start, stop)]
                held -= freed[1] - freed[0]
                left[key] -= freed[1] - freed[0]
        assert not any(left.values())
        peaks.append(peak)
    return peaks


@given(st.data())
def test_times_and_memory_equal_the_oracles(data: st.DataObject) -> None:
    problem = data.draw(problems())
    schedule = data.draw(schedules_of(problem))
    timeline = simulate(problem, schedule)
    ends = oracle_ends(problem, schedule)
    found = {op: (start, end) for rank in range(problem.ranks) for op, start, end in timeline.of(rank)}
    assert found == {op: (end - ticks_of(problem, schedule.sizes, op), end) for op, end in ends.items()}
    assert timeline.makespan == max(ends.values()) - min(start for start, _ in found.values())
    assert list(timeline.peak_memory) == oracle_peaks(problem, schedule)
    over = {violation.rank for violation in over_limit(timeline)}
    limits = enumerate(problem.memory.limit)
    assert over == {rank for rank, limit in limits if limit is not None and timeline.peak_memory[rank] > limit}
    assert check(problem, schedule) == over_limit(timeline)
    # Nothing is held any more but what is static.
    for rank, row in enumerate(schedule.ops):
        if row:
            assert timeline.after[timeline.schedule.table.offsets[rank + 1] - 1] == timeline.static[rank]


def test_by_hand() -> None:
    problem = Problem.from_dict(SMALL | {"links": {"latency": 1}})
    schedule = Schedule.parse(
        problem.placement, [1, 1], [["0F0", "0F1", "0B0", "0I1", "0W1"], ["1F0", "1I0", "1F1", "1W0", "1B1"]]
    )
    timeline = simulate(problem, schedule)
    assert [(str(op), a, b) for op, a, b in timeline.of(1)] == [
        ("1F0", 4, 7), ("1I0", 7, 11), ("1F1", 11, 14), ("1W0", 14, 19), ("1B1", 19, 28),
    ]  # fmt: skip
    assert [(str(op), a, b) for op, a, b in timeline.of(0)] == [
        ("0F0", 0, 3), ("0F1", 3, 6), ("0B0", 12, 21), ("0I1", 29, 33), ("0W1", 33, 38),
    ]  # fmt: skip
    assert (timeline.makespan, timeline.span, timeline.work, timeline.messages) == (38, 38, (24, 24), 4)
    assert timeline.bubble == pytest.approx(1 - 24 / 38)


def test_all_durations_zero() -> None:
    """Bubble and utilisation exist where nothing takes time (google/or-tools#3190)."""
    problem = Problem.from_dict(
        SMALL | {"costs": {"forward": 0, "backward_input": 0, "backward_weight": 0}, "batch": {"samples": 1}}
    )
    timeline = simulate(problem, Schedule.parse(problem.placement, [1], [["0F0", "0B0"], ["1F0", "1I0", "1W0"]]))
    assert (timeline.makespan, timeline.bubble, timeline.span_bubble, timeline.utilisation) == (0, 0.0, 0.0, 1.0)


def test_retained_above_activation_swells_during_i() -> None:
    problem = Problem.from_dict(
        SMALL
        | {"pipeline": {"ranks": 1}, "batch": {"samples": 1}, "memory": {"activation": 3, "retained": 8, "static": 1}}
    )
    timeline = simulate(problem, Schedule.parse(problem.placement, [1], [["0F0", "0I0", "0W0"]]))
    assert (timeline.during.tolist(), timeline.after.tolist()) == ([4, 9, 9], [4, 9, 1])


def test_a_free_comes_before_the_next_take() -> None:
    problem = Problem.from_dict(SMALL | {"pipeline": {"ranks": 1}, "memory": {"activation": 5, "limit": 5}})
    schedule = Schedule.parse(problem.placement, [1, 1], [["0F0", "0B0", "0F1", "0B1"]])
    assert simulate(problem, schedule).peak_memory == (5,)
    assert check(problem, schedule) == ()


def test_another_shape_is_refused() -> None:
    problem = Problem.from_dict(SMALL)
    with pytest.raises(InputError, match="the schedule is for 4 stages on 2 ranks, the problem has 2 on 2"):
        simulate(problem, Schedule(place("loop", 2, 2), (1, 1), ((), ())))
    swapped = Schedule.parse(
        Problem.from_dict(SMALL | {"pipeline": {"ranks": 2, "placement": [1, 0]}}).placement, [1, 1], [[], []]
    )
    with pytest.raises(InputError, match=r"stage 0 \(direction 0\) is on rank 1 in the schedule and on rank 0 in the"):
        simulate(problem, swapped)
    with pytest.raises(InputError, match="the schedule has 2 directions, the problem 1"):
        simulate(problem, Schedule(place("bidirectional", 2), (1, 1), ((), ())))
    with pytest.raises(InputError, match="sizes: 3 samples in all, and the batch has 2"):
        simulate(problem, Schedule(problem.placement, (1, 1, 1), ((), ())))
    with pytest.raises(InputError, match=r"sizes\[0\]: 2 is none of the allowed micro-batch sizes"):
        simulate(problem, Schedule(problem.placement, (2,), ((), ())))


def test_a_malformed_schedule_is_no_answer() -> None:
    problem = Problem.from_dict(SMALL)
    with pytest.raises(NoAnswerError, match="rank 0: 0F0 is missing"):
        simulate(problem, Schedule(problem.placement, (1, 1), ((), ())))


def test_a_deadlock_names_the_cycle() -> None:
    """The two ranks wait for each other (pytorch/pytorch#172668)."""
    problem = Problem.from_dict(SMALL)
    rows = [["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]]
    schedule = Schedule.parse(problem.placement, [1, 1], rows)
    cycle = (
        "deadlock: rank 0, position 1: 0B0 waits for 1B0 \\(rank 1, position 3\\); "
        "rank 1, position 0: 1F1 waits for 0F1 \\(rank 0, position 2\\)"
    )
    with pytest.raises(NoAnswerError, match=cycle):
        simulate(problem, schedule)
    (violation,) = check(problem, schedule)
    assert (violation.rank, violation.position) == (0, 1)
