"""What every lower bound keeps, whatever the problem: it moves with limits and costs as an optimum does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from adaptpipe.solver import Problem
from adaptpipe.solver.bounds import infeasible, instance_bound, lower_bound
from adaptpipe.solver.bounds.order_heads import heads_of
from adaptpipe.solver.bounds.paths import PASS, F, paths
from adaptpipe.solver.core.instance import Instance
from adaptpipe.solver.core.result import Objective
from tests.solver.bounds.test_bounds import OBJECTIVES, published
from tests.strategies import problems, sizes_of


def limited(problem: Problem, limits: tuple[int | None, ...]) -> Problem:
    return replace(problem, memory=replace(problem.memory, limit=limits))


@given(problems(limited=True), st.sampled_from(OBJECTIVES), st.integers(0, 60), st.data())
def test_more_memory_never_raises_the_bound(
    problem: Problem, objective: Objective, more: int, data: st.DataObject
) -> None:
    sizes = data.draw(sizes_of(problem))
    rank = data.draw(st.integers(0, problem.ranks - 1))
    assume(not infeasible(problem, sizes))
    limits = tuple((limit or 0) + (more if r == rank else 0) for r, limit in enumerate(problem.memory.limit))
    before = lower_bound(problem, objective, sizes)
    assert lower_bound(limited(problem, limits), objective, sizes) <= before
    assert lower_bound(limited(problem, (None,) * problem.ranks), objective, sizes) <= before


@given(problems(), st.sampled_from(OBJECTIVES), st.integers(2, 9))
def test_a_finer_clock_scales_the_bound(problem: Problem, objective: Objective, factor: int) -> None:
    """All durations times a factor: times the factor, but for rounding at whole ticks, of knapsacks too."""
    instance = problem.instance(problem.default_sizes())
    finer = Instance(problem, problem.default_sizes())
    finer.forward, finer.backward_input, finer.backward_weight, finer.backward, finer.lag, finer.unit_ticks = (
        factor * part
        for part in (
            instance.forward,
            instance.backward_input,
            instance.backward_weight,
            instance.backward,
            instance.lag,
            instance.unit_ticks,
        )
    )
    coarse, fine = instance_bound(instance, objective), instance_bound(finer, objective)
    assert factor * (coarse - 1 - 2 * problem.stages * instance.microbatches) <= fine <= factor * (coarse + 3)


@given(problems(), st.data())
def test_the_span_is_not_bounded_above_the_makespan(problem: Problem, data: st.DataObject) -> None:
    sizes = data.draw(sizes_of(problem))
    assert lower_bound(problem, "span", sizes) <= lower_bound(problem, "makespan", sizes)
    assert lower_bound(problem, "span") <= lower_bound(problem, "makespan")


@given(problems(limited=True, max_samples=5))
def test_starts_by_order_are_in_order_and_not_before_the_chain(problem: Problem) -> None:
    instance = problem.instance(problem.default_sizes())
    ways = paths(instance)
    for direction in range(problem.placement.directions):
        heads = heads_of(ways, direction)
        if heads is None:
            continue
        mine = ways.direction[ways.kind] == direction
        for table, row in ((heads.forward, F), (heads.backward, PASS)):
            assert (np.diff(table, axis=1) >= 0).all()
            assert (table[:, 0] >= ways.head[row][:, mine].min(axis=1)).all()


def test_a_limit_that_never_binds_is_none() -> None:
    loose = published(4, 8, 8)
    for objective in OBJECTIVES:
        assert lower_bound(loose, objective) == lower_bound(limited(loose, (None,) * 4), objective)
