"""What a search changes: splits, placements and rank orders that stay whole."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from adaptpipe.solver import check, simulate
from adaptpipe.solver.core.placement import explicit
from adaptpipe.solver.greedy import greedy
from adaptpipe.solver.planning.search.moves import trade, transfer, vary
from adaptpipe.solver.planning.search.neighbours import neighbours
from adaptpipe.solver.planning.search.point import Point
from adaptpipe.solver.planning.search.policies import policies
from adaptpipe.solver.planning.search.starts import boundaries, spread, starts
from adaptpipe.solver.planning.search.variants import variants
from adaptpipe.solver.planning.splits.stage_table import StageTable
from adaptpipe.solver.planning.workload import split_of

from .workloads import random_workload


def point(row: list[int], bounds: list[int]) -> Point:
    placement = explicit(max(row) + 1, row)
    return policies(placement, 6)[0]._replace(bounds=np.array(bounds))


def whole(each: Point, ranks: int, layers: int) -> None:
    """Every layer is in one stage, no stage and no rank is empty, and policies have a value for each."""
    assert each.bounds[0] == 0
    assert each.bounds[-1] == layers
    assert (np.diff(each.bounds) > 0).all()
    assert set(each.row.tolist()) == set(range(ranks))
    assert len(each.row) == len(each.ahead) == len(each.bounds) - 1


@pytest.mark.parametrize("seed", range(4))
def test_moves_keep_points_whole(seed: int) -> None:
    random, words = Random(seed), np.array([seed + 1], dtype=np.uint64)
    each = point([0, 1, 2, 2, 1, 0], [0, 2, 3, 5, 6, 9, 11])
    speed, limit = np.array([0, 1, 0]), np.array([5, 5, 5])
    splits, rows = set(), set()
    for _ in range(300):
        before = np.diff(each.bounds)
        if random.random() < 0.5:
            moved = transfer(each, words)
            # A layer leaves one stage and comes to another; what lies between changes its layers, not their number.
            assert sorted(np.diff(each.bounds) - before) == ([-1, 0, 0, 0, 0, 1] if moved else [0] * 6)
        else:
            trade(each, speed, limit, words)
            vary(each, 6, words, True)
        whole(each, 3, 11)
        assert ((each.ahead >= 1) & (each.ahead <= 6)).all()
        assert (each.pace >= 0).all()
        splits.add(each.bounds.tobytes())
        rows.add(each.row.tobytes())
    assert len(splits) > 20
    assert len(rows) > 3


def test_variants_are_whole_and_differ() -> None:
    """Stages put together, cut, and exchanged: all three, none the point itself."""
    start = point([0, 1, 2, 2, 1, 0], [0, 2, 3, 5, 6, 9, 11])
    found = list(variants(start))
    for each in found:
        whole(each, 3, 11)
        assert (len(each.row), each.row.tolist()) != (6, start.row.tolist())
    assert {len(each.row) for each in found} == {5, 6, 7}
    assert list(variants(point([0, 1], [0, 1, 2]))) != []  # the two exchange ranks, and nothing else
    assert {len(each.row) for each in variants(point([0, 1], [0, 1, 2]))} == {2}


def test_neighbours_keep_the_order_and_the_memory() -> None:
    """A layer elsewhere, the same ops in the same order, priced anew."""
    workload = random_workload(Random(3), 3, 10, 6, (1,))
    stages = StageTable(workload, (1,) * 6)
    start = next(each for each in starts(workload, stages, [("v", 2)]))
    split = split_of(start.point.bounds.tolist())
    problem = workload.problem(split, explicit(3, start.point.row.tolist()), (1,) * 6)
    schedule = greedy(problem)
    assert schedule is not None
    found = list(neighbours(workload, split, simulate(problem, schedule)))
    assert found
    for other, timeline in found:
        assert other != split
        assert timeline.schedule is schedule
        assert not check(workload.problem(other, schedule.placement, schedule.sizes), schedule)


@pytest.mark.parametrize("seed", range(4))
def test_starts_are_whole_and_none_is_there_twice(seed: int) -> None:
    """Families that there are no layers for are left out."""
    workload = random_workload(Random(seed), 3, 9, 6, (1, 2))
    for division in workload.divisions:
        found = list(starts(workload, StageTable(workload, division), period=1000.0))
        for each in found:
            whole(each.point, 3, 9)
        assert len({(each.point.row.tobytes(), each.point.bounds.tobytes(), each.heat) for each in found}) == len(found)
        assert {each.name for each in found} == {"v", "linear", "loop", "loop 3"}


def test_boundaries_are_spread_where_they_meet() -> None:
    assert spread([0, 0, 9], 5).tolist() == [0, 1, 2, 4, 5]
    assert boundaries(split_of([0, 2, 5])).tolist() == [0, 2, 5]
