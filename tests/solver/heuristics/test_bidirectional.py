"""Chimera, DualPipe and DualPipeV: their formulas, their published pictures, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adaptpipe.solver.core.errors import InputError
from adaptpipe.solver.core.ops import Kind, Op
from adaptpipe.solver.core.precedence import node, predecessor_nodes
from adaptpipe.solver.core.problem import Problem
from adaptpipe.solver.core.schedule import Schedule
from adaptpipe.solver.evaluate.check import check
from adaptpipe.solver.evaluate.simulate import simulate
from adaptpipe.solver.heuristics import chimera, dualpipe, dualpipe_v
from tests.solver.heuristics.shapes import SHAPES, problem

EVEN = (2, 4, 6, 8)
COSTS = [(6, 5, 4), (3, 1, 2), (4, 1, 1), (2, 3, 1)]

Build = Callable[[Problem], Schedule]


def idle(at: Problem, build: Build) -> int:
    timeline = simulate(at, build(at))
    assert timeline.span == timeline.makespan, "a rank of an end is busy at both ends of the step"
    return timeline.makespan - max(timeline.work)


@pytest.mark.parametrize("build", [chimera, dualpipe])
def test_each_exists_for_every_even_number_of_ranks(build: Build) -> None:
    for p in EVEN:
        for m in range(1, 4 * p + 2):
            at = problem(p, m, "bidirectional")
            assert check(at, build(at)) == (), (p, m)


def test_dualpipe_v_exists_for_every_shape() -> None:
    for p in range(1, 7):
        for m in range(1, 4 * p + 2):
            at = problem(p, m, "v")
            assert check(at, dualpipe_v(at)) == (), (p, m)


@pytest.mark.parametrize(("ranks", "microbatches"), [shape for shape in SHAPES if shape[0] in EVEN])
def test_chimera_formula(ranks: int, microbatches: int) -> None:
    for costs in COSTS:
        forward, backward = costs[0], costs[1] + costs[2]
        at = problem(ranks, microbatches, "bidirectional", costs=costs)
        more = microbatches // ranks - 1
        assert idle(at, chimera) == (ranks - 2) * (max(forward, backward) + more * abs(backward - forward))
        timeline = simulate(at, chimera(at))
        assert timeline.peak_memory == tuple(ranks // 2 + min(r, ranks - 1 - r) + 1 for r in range(ranks))
    equal = problem(ranks, microbatches, "bidirectional", costs=(2, 1, 1))
    assert simulate(equal, chimera(equal)).bubble == pytest.approx((ranks - 2) / (2 * microbatches + ranks - 2))
    twice = problem(ranks, ranks, "bidirectional", costs=(1, 1, 1))
    assert simulate(twice, chimera(twice)).bubble == pytest.approx((ranks - 2) / (1.5 * ranks + ranks - 2))


def test_chimera_with_fewer_microbatches_than_ranks() -> None:
    """With F = B and m / 2 from each end the last backward ends after 2p + m - 2 ops."""
    for ranks in EVEN:
        for microbatches in range(2, ranks + 1, 2):
            at = problem(ranks, microbatches, "bidirectional", costs=(2, 1, 1))
            assert simulate(at, chimera(at)).makespan == 2 * (2 * ranks + microbatches - 2)


DUAL = [(dualpipe, "bidirectional", p, p // 2) for p in EVEN] + [(dualpipe_v, "v", p, p) for p in range(1, 9)]


@pytest.mark.parametrize(("build", "family", "ranks", "half"), DUAL)
def test_dualpipe_formulas(build: Build, family: str, ranks: int, half: int) -> None:
    for microbatches in (ranks, 2 * ranks, 2 * ranks + 2, 4 * ranks):
        for costs in [(6, 5, 4), (3, 3, 2), (1, 1, 1), (5, 3, 2), (6, 3, 3), (2, 3, 1), (6, 2, 2)]:
            forward, backward, weight = costs
            at = problem(ranks, microbatches, family, costs=costs)
            peaks = simulate(at, build(at)).peak_memory
            if microbatches < 2 * ranks:
                assert max(peaks) <= 2 * half + 1
                continue
            least = (half - 1) * (forward + backward - weight)
            if weight <= backward <= forward <= backward + weight:
                assert idle(at, build) == least
            else:
                assert idle(at, build) > least or half < 4
            assert peaks == (2 * half + 1,) * ranks
            if forward == backward:
                whole = backward + weight
                pairs = makespan_of_pairs(at, build(at))
                work = max(simulate(at, build(at)).work)
                assert pairs - work == (half - 1) * (forward + whole + whole - 3 * weight)


@pytest.mark.parametrize(
    ("build", "family", "ranks", "microbatches"), [(dualpipe, "bidirectional", 8, 20), (dualpipe_v, "v", 4, 10)]
)
def test_dualpipe_published_picture_has_66_slots_of_which_6_are_idle(
    build: Build, family: str, ranks: int, microbatches: int
) -> None:
    """63 and 3 where the ops of a pair wait for their inputs one by one."""
    at = problem(ranks, microbatches, family, costs=(1, 1, 1))
    schedule = build(at)
    assert simulate(at, schedule).work == (60,) * ranks
    assert makespan_of_pairs(at, schedule) == 66
    assert simulate(at, schedule).makespan == 63


def makespan_of_pairs(at: Problem, schedule: Schedule) -> int:
    """Makespan where an F with a B directly behind it is a pair, which begins when the inputs of both are there.

    Its ops run one after the other, and the message of each leaves when the op has ended. The first such two on the
    ranks of the middle are no pair.
    """
    instance = at.instance(schedule.sizes)
    stages, count = instance.stages, instance.microbatches
    before = predecessor_nodes(stages, count)
    ticks = {Kind.F: instance.forward, Kind.I: instance.backward_input, Kind.W: instance.backward_weight}
    ticks[Kind.B] = instance.backward
    ends: dict[int, int] = {}
    rows = [_paired(list(row)) for row in schedule.ops]
    for rank in (at.ranks // 2 - 1, at.ranks // 2) if at.placement.directions == 2 else (at.ranks - 1,):
        position = next(k for k, item in enumerate(rows[rank]) if len(item) == 2)
        rows[rank][position : position + 1] = [[op] for op in rows[rank][position]]
    clocks, waiting = [0] * at.ranks, [0] * at.ranks
    while any(waiting[rank] < len(rows[rank]) for rank in range(at.ranks)):
        moved = False
        for rank, row in enumerate(rows):
            while waiting[rank] < len(row):
                item = row[waiting[rank]]
                own = {node(op.kind, op.stage, op.microbatch, stages, count) for op in item}
                needed = {int(b) for n in own for b in before[n] if b >= 0} - own
                if not needed <= ends.keys():
                    break
                clock = max([clocks[rank], *(ends[n] for n in needed)])
                for op in item:
                    clock += int(ticks[op.kind][op.stage, op.microbatch])
                    ends[node(op.kind, op.stage, op.microbatch, stages, count)] = clock
                clocks[rank], moved = clock, True
                waiting[rank] += 1
        assert moved, "ranks wait for each other"
    return max(clocks)


def _paired(row: list[Op]) -> list[list[Op]]:
    items: list[list[Op]] = []
    for op in row:
        if op.kind is Kind.B and items and len(items[-1]) == 1 and items[-1][0].kind is Kind.F:
            items[-1].append(op)
        else:
            items.append([op])
    return items


@pytest.mark.parametrize(("build", "name"), [(chimera, "Chimera"), (dualpipe, "DualPipe")])
def test_an_odd_number_of_ranks_is_refused_with_the_nearest_even_ones(build: Build, name: str) -> None:
    said = rf"pipeline\.ranks: {name} needs an even number of ranks, and there are"
    with pytest.raises(InputError, match=rf"{said} 5; nearest: ranks = 4 or 6"):
        build(problem(5, 8, "bidirectional"))
    with pytest.raises(InputError, match=rf"{said} 1; nearest: ranks = 2"):
        build(problem(1, 8, "bidirectional"))


@pytest.mark.parametrize(
    ("build", "name", "needs"), [(chimera, "Chimera", "bidirectional"), (dualpipe_v, "DualPipeV", "v")]
)
def test_wrong_placement_is_refused_with_the_right_one(build: Build, name: str, needs: str) -> None:
    with pytest.raises(InputError, match=f"{name} needs placement '{needs}'.*set pipeline.placement = \"{needs}\""):
        build(problem(4, 4))
