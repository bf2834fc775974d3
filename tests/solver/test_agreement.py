"""What independent parts say of one problem agrees: CP-SAT, the ILP, bounds, heuristics and the portfolio."""

from __future__ import annotations

import os
from typing import get_args

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Objective, Problem, Status, check, simulate, solve
from adaptpipe.solver.bounds import infeasible, instance_bound, lower_bound
from adaptpipe.solver.methods import METHODS
from tests.strategies import problems

EXAMPLES = int(os.environ.get("ADAPTPIPE_EXAMPLES", "10"))
"""How many problems; 200 take some minutes."""


@pytest.mark.timeout(60 * EXAMPLES)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(problems(max_ranks=4, max_samples=6, units=False), st.sampled_from(get_args(Objective)))
def test_two_provers_the_bounds_and_the_heuristics_agree(problem: Problem, objective: Objective) -> None:
    assume(not infeasible(problem))
    sizes = problem.default_sizes()
    assume(not infeasible(problem, sizes))
    auto, cpsat, ilp = (
        solve(problem, method, objective=objective, time_limit=limit, sizes=sizes)
        for method, limit in (("auto", 3), ("cpsat", 6), ("ilp", 6))
    )
    assert auto.value is not None
    for result in (auto, cpsat, ilp):
        assert result.value is not None
        assert check(problem, result.schedule) == ()
        assert simulate(problem, result.schedule).value(objective) == result.value
        # What one proves binds the others.
        assert result.bound <= min(auto.value, cpsat.value or 0, ilp.value or 0)
    if cpsat.status is Status.OPTIMAL and ilp.status is Status.OPTIMAL:
        assert cpsat.value == ilp.value
    best = min(auto.value, cpsat.value or 0, ilp.value or 0)
    assert instance_bound(problem.instance(sizes), objective) <= best
    assert lower_bound(problem, objective) <= best
    for method in METHODS:
        if method.build is not None or method.name == "greedy":
            try:
                result = solve(problem, method.name, objective=objective, time_limit=3, sizes=sizes)
            except InputError:
                continue  # it does not exist for this placement
            assert result.value is None or auto.value <= result.value
