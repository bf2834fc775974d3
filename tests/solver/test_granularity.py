"""What granularity promises of every method: only what is free is chosen, more freedom is no loss, bounds hold."""

from __future__ import annotations

import os
from typing import get_args

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Kind, Objective, Problem, Result, Status, check, simulate, solve
from adaptpipe.solver.bounds import infeasible, instance_bound, lower_bound
from adaptpipe.solver.core.granularity import ALL, NONE, Granularity
from adaptpipe.solver.methods import METHODS
from tests.strategies import problems

EXAMPLES = int(os.environ.get("ADAPTPIPE_EXAMPLES", "20"))
"""How many problems; a search gets half of them. 200 take some minutes."""

SEARCHES = tuple(method.name for method in METHODS if method.build is None)


def answer(problem: Problem, method: str, objective: Objective, granularity: Granularity) -> Result:
    """The answer of a fixed amount of work; CP-SAT takes its time over each division of the batch."""
    return solve(
        problem,
        method,
        objective=objective,
        granularity=granularity,
        time_limit=0.02 if method == "cpsat" else 0.1,
        workers=1,
        iterations=2_000,
        deterministic=True,
    )


def require_only_what_is_free(problem: Problem, result: Result, granularity: Granularity) -> None:
    assert result.timeline is not None
    schedule, sizes = result.timeline.schedule, result.timeline.schedule.sizes
    ops = [op for row in schedule.ops for op in row]
    assert check(problem, schedule) == ()
    assert simulate(problem, schedule).value(result.objective) == result.value
    assert granularity.fused or all(op.kind is not Kind.B for op in ops)
    assert granularity.units or all(op.units is None for op in ops)
    if not granularity.sizes and problem.uniform_counts():
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.timeout(60 * EXAMPLES)
@pytest.mark.parametrize("method", SEARCHES)
@settings(max_examples=max(1, EXAMPLES // 2), suppress_health_check=list(HealthCheck), deadline=None)
@given(problems(max_ranks=3, max_samples=4), st.sampled_from(get_args(Objective)))
def test_every_search_keeps_to_its_granularity_and_gains_by_it(
    method: str, problem: Problem, objective: Objective
) -> None:
    assume(not infeasible(problem))
    fine = answer(problem, method, objective, ALL)
    require_only_what_is_free(problem, fine, ALL)
    assert fine.value is not None
    assert fine.bound <= fine.value
    assert lower_bound(problem, objective) <= fine.value
    assert instance_bound(problem.instance(fine.schedule.sizes), objective) <= fine.value
    coarse = answer(problem, method, objective, NONE)
    if coarse.value is None:
        return  # only fused backwards fit
    require_only_what_is_free(problem, coarse, NONE)
    assert coarse.bound <= coarse.value
    assert lower_bound(NONE.restricted(problem), objective) <= coarse.value
    assert fine.bound <= coarse.value
    # The ILP has no measure of its work but time: without a proof it may have been luckier.
    assert fine.value <= coarse.value or (method == "ilp" and coarse.status is not Status.OPTIMAL)


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
@given(problems(max_ranks=4, max_samples=6))
def test_schedules_by_name_are_no_matter_of_granularity(problem: Problem) -> None:
    for method in METHODS:
        if method.build is None:
            continue
        try:
            results = [solve(problem, method.name, granularity=granularity) for granularity in (ALL, NONE)]
        except InputError:
            continue  # it does not exist for this placement
        assert results[0].value == results[1].value
        if results[0].timeline is not None:
            require_only_what_is_free(problem, results[0], ALL)
            assert results[0].bound <= simulate(problem, results[0].schedule).value("makespan")
