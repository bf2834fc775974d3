"""CP-SAT: durations of any length are scaled to what it can hold, and ops of none keep their place."""

from __future__ import annotations

import time
from typing import Any

import pytest

from adaptpipe.solver import Problem, check, simulate
from adaptpipe.solver.bounds import lower_bound
from adaptpipe.solver.core.instance import UNLIMITED
from adaptpipe.solver.core.ops import Kind
from adaptpipe.solver.cpsat import solve_cpsat
from adaptpipe.solver.cpsat.model import build
from adaptpipe.solver.cpsat.prices import LONGEST, prices
from adaptpipe.solver.ilp import solve_ilp

FAR = 60.0


def soon(seconds: float = FAR) -> float:
    return time.monotonic() + seconds


def scaled(factor: int, extra: int = 0) -> Problem:
    return Problem.from_dict(
        {
            "unit": "ns",
            "pipeline": {"ranks": 3},
            "batch": {"samples": 4},
            "costs": {
                "forward": 185 * factor + extra,
                "backward_input": 181 * factor,
                "backward_weight": 93 * factor,
            },
            "links": {"latency": 6 * factor},
            "memory": {"unit": "GB", "activation": 80, "retained": 30, "limit": 160},
        }
    )


def test_long_durations_and_gigabytes_are_scaled_exactly() -> None:
    """MODEL_INVALID for large horizons (google/or-tools#4352, #2343)."""
    plain, long = (solve_cpsat(scaled(factor), deadline=soon()) for factor in (1, 10**11))
    assert plain[0] is not None
    assert long[0] is not None
    assert long[1] == plain[1] * 10**11 == simulate(scaled(10**11), long[0]).makespan


def test_durations_far_apart_are_rounded_down_and_simulated_in_ticks() -> None:
    problem = scaled(10**12, extra=1)
    grid = prices(problem.instance((1,) * 4))
    assert not grid.exact
    assert grid.horizon <= LONGEST
    schedule, bound, _ = solve_cpsat(problem, deadline=soon())
    assert schedule is not None
    value = simulate(problem, schedule).makespan
    assert bound <= value < bound * (1 + 1e-9)
    assert value >= lower_bound(problem)


@pytest.mark.parametrize(
    ("costs", "latency"),
    [
        ({"backward_weight": [0, 3, 2]}, 1),
        ({"forward": [0, 3, 3]}, 0),
        ({"forward": [4, 0, 3], "backward_input": [3, 3, 0], "backward_weight": 0}, 0),
    ],
)
def test_ops_of_no_duration_are_run_between_others(costs: dict[str, Any], latency: int) -> None:
    """A zero-length interval inside another is refused by NoOverlap and taken by Cumulative: solvers disagree on the
    makespan (google/or-tools#3190, dwave-examples/job-shop-scheduling#7). Here all agree, and keep the ops."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 3},
            "batch": {"samples": 4},
            "costs": {"forward": 4, "backward_input": 3, "backward_weight": 2} | costs,
            "links": {"latency": latency},
            "memory": {"activation": 2, "retained": 1, "limit": 5},
        }
    )
    found = solve_cpsat(problem, deadline=soon(), workers=1), solve_ilp(problem, deadline=soon(), workers=1)
    assert found[0][1] == found[1][1]
    for schedule, bound, _ in found:
        assert schedule is not None
        assert not check(problem, schedule)
        assert simulate(problem, schedule).makespan == bound
    assert found[0][0] is not None
    assert sum(op.kind is Kind.W for row in found[0][0].ops for op in row) == 12


@pytest.mark.parametrize("short", [1, 0])
def test_models_of_long_durations_are_valid(short: int) -> None:
    """MODEL_INVALID, or INFEASIBLE, with nothing that names the input (google/or-tools#4352, #2343, PyJobShop#131): ops
    of 10 s in ns at p = 16, m = 256, beside ops of 1 ns or none, and 80e9 bytes a rank."""
    problem = Problem.from_dict(
        {
            "unit": "ns",
            "pipeline": {"ranks": 16},
            "batch": {"samples": 256},
            "costs": {"forward": 10**10, "backward_input": 10**12, "backward_weight": [short] * 15 + [10**10]},
            "links": {"latency": 1},
            "memory": {"unit": "B", "activation": 10**9, "retained": 5, "static": 10**9, "limit": 80 * 10**9},
        }
    )
    grid = prices(problem.instance(problem.default_sizes()))
    assert not grid.exact
    assert grid.horizon <= LONGEST
    grid.room[1:] = UNLIMITED
    model, _ = build(grid, "makespan", None, 0, None, soon())
    assert model.validate() == ""
