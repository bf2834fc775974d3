"""Where there is little to choose, the bound is the optimum over every split, placement, division and order."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings

from adaptpipe.solver.planning.bounds.bound import division_bound, lower_bound
from adaptpipe.solver.planning.bounds.every_plan import few, least_of_all
from adaptpipe.solver.planning.splits.need import why_not
from adaptpipe.solver.planning.workload import Workload
from tests.solver.oracle import optimum
from tests.solver.planning.shapes import placements, splits, workload, workloads


def best_of_all(work: Workload) -> int | None:
    """The least makespan, by trying every order of every plan; None where none fits."""
    found = [
        optimum(work.problem(split, placement, division).instance(division))
        for stages in range(work.ranks, work.layers + 1)
        for split in splits(work.layers, stages)
        for placement in placements(work.ranks, stages)
        for division in work.divisions
    ]
    return min((value for value in found if value is not None), default=None)


@settings(max_examples=25)
@given(workloads(max_layers=3, max_ranks=2, max_samples=2))
def test_the_bound_is_the_optimum_of_every_plan(work: Workload) -> None:
    best = best_of_all(work)
    assert (best is None) == (why_not(work) is not None)
    if best is not None:
        assert least_of_all(work, time.monotonic() + 60) == (best, True)
        assert lower_bound(work, seconds=60) == best
        bounds = [division_bound(work, division) for division in work.divisions]
        assert min(bound for bound in bounds if bound is not None) <= best


@settings(max_examples=15)
@given(workloads(max_layers=5, max_ranks=3, max_samples=1))
def test_the_bound_is_the_optimum_for_one_micro_batch(work: Workload) -> None:
    best = best_of_all(work)
    if best is not None:
        assert lower_bound(work, seconds=60) == best


def test_what_is_proven_when_time_is_over_is_below() -> None:
    layers = [(2.0, 5.0, 3.0, 2, 1, 0), (8.0, 3.0, 2.0, 1, 1, 0)] * 3
    work = workload(layers, 3, 4, latency=1.0, memory=[14] * 3)
    at_once, proven = least_of_all(work, time.monotonic())
    assert not proven
    assert lower_bound(work, seconds=0.0) >= at_once > 0
    best, proven = least_of_all(work, time.monotonic() + 60)
    assert proven
    assert at_once < best
    assert least_of_all(work, time.monotonic()) == (best, True), "what was proven stays"


@pytest.mark.parametrize(("layers", "ranks", "samples"), [(9, 2, 4), (8, 4, 4), (8, 3, 9)])
def test_every_plan_is_looked_at_only_where_there_are_few(layers: int, ranks: int, samples: int) -> None:
    block = (1.0, 1.0, 1.0, 0, 0, 0)
    assert few(workload([block] * 8, 3, 8))
    assert not few(workload([block] * layers, ranks, samples))
