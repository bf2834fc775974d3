"""The bound of a few ranks together: never above an optimum, and the optimum itself where all ranks are kept."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Problem
from adaptpipe.solver.bounds import infeasible, instance_bound
from adaptpipe.solver.bounds.few_ranks import LATEST, Kept, applies, least
from adaptpipe.solver.bounds.from_the_end import Layer, ends
from adaptpipe.solver.bounds.paths import paths
from adaptpipe.solver.bounds.tight import tight_bound
from tests.solver.oracle import optimum, small
from tests.strategies import problem_data, problems

Data = dict[str, Any]
ONE_WAY = ("linear", "loop", "v", "wave", "explicit")
PLAIN: Data = {"forward": 1, "backward_input": 1, "backward_weight": 1}


def published(p: int, m: int, slots: int, v: bool) -> Problem:
    """The 1.5 B model of Zero Bubble's Table 5, in hundreds of microseconds, with room for so many activations."""
    forward, short, weight = (93, 91, 47) if v else (185, 181, 93)
    return Problem.from_dict(
        {
            "pipeline": {"ranks": p, "placement": "v" if v else "linear", "stages_per_rank": 2 if v else 1},
            "batch": {"samples": m},
            "costs": {"forward": forward, "backward_input": short, "backward_weight": weight},
            "links": {"latency": 6},
            "memory": {"activation": 201, "retained": 74, "limit": slots * 201},
        }
    )


def bound(problem: Problem, known: int | None = None, seconds: float = 60) -> int:
    return tight_bound(problem, problem.default_sizes(), deadline=monotonic() + seconds, known=known)


@settings(max_examples=60)
@given(problem_data(max_ranks=3, max_samples=4, families=ONE_WAY, limited=True, sizes=False))
def test_no_bound_is_above_the_optimum(data: Data) -> None:
    problem = Problem.from_dict(data)
    assume(small(problem, problem.default_sizes()) and not infeasible(problem))
    best = optimum(problem.instance(problem.default_sizes()))
    assert best is not None
    assert bound(problem) <= best
    assert bound(problem, known=best) <= best


@settings(max_examples=60)
@given(
    problem_data(max_ranks=3, max_samples=5, families=ONE_WAY, limited=True, sizes=False, units=False),
    st.integers(1, 9),
    st.data(),
)
def test_with_all_ranks_it_is_the_optimum(data: Data, activation: int, draw: st.DataObject) -> None:
    """Where fused backwards gain nothing, neither time nor memory."""
    data["costs"].pop("backward", None)
    retained = draw.draw(st.integers(0, activation))
    slots = draw.draw(st.integers(2, 4))
    data["memory"] |= {"activation": activation, "retained": retained, "static": 0, "weights": 0, "reserve": 0}
    data["memory"]["limit"] = slots * activation
    problem = Problem.from_dict(data)
    assume(problem.stages * problem.samples <= 6 and problem.stages <= 3 and not infeasible(problem))
    instance = problem.instance(problem.default_sizes())
    best = optimum(instance)
    assert best is not None
    kept = Kept(paths(instance), tuple(range(problem.ranks)))
    found = least(kept, best + 1, 1 << 20, monotonic() + 60)
    assert (found.bound, found.exact) == (best, True)
    assert bound(problem, known=best) == best


@settings(max_examples=40)
@given(
    problem_data(max_ranks=2, max_samples=3, families=ONE_WAY, limited=True, sizes=False, units=False),
    st.integers(2, 3),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(2, 3),
)
def test_with_all_ranks_and_equal_units_it_is_the_optimum(
    data: Data, units: int, ticks: int, freed: int, slots: int
) -> None:
    """Where a range costs nothing."""
    data["costs"].pop("backward", None)
    data["costs"].pop("backward_weight")
    data["costs"] |= {"weight_units": [[ticks] * units], "overhead": 0}
    activation = units * freed + 1
    data["memory"] |= {"activation": activation, "retained": units * freed, "static": 0, "weights": 0, "reserve": 0}
    data["memory"]["limit"] = slots * activation + freed
    data["costs"]["weight_units"] *= Problem.from_dict(data | {"costs": PLAIN}).stages
    problem = Problem.from_dict(data)
    assume(small(problem, problem.default_sizes()) and not infeasible(problem))
    best = optimum(problem.instance(problem.default_sizes()))
    assert best is not None
    assert bound(problem, known=best + 1) == best


@settings(max_examples=100)
@given(
    problem_data(max_ranks=3, max_samples=6, families=ONE_WAY, limited=True, sizes=False, units=False),
    st.integers(1, 9),
    st.integers(0, 3),
    st.data(),
)
def test_tables_from_the_end_change_nothing_that_counts(
    data: Data, activation: int, above: int, draw: st.DataObject
) -> None:
    """With what some of the ranks need, and without, the same is found, and nothing below the optimum."""
    retained, slots = draw.draw(st.integers(0, activation)), draw.draw(st.integers(2, 5))
    data["memory"] |= {"activation": activation, "retained": retained, "static": 0, "weights": 0, "reserve": 0}
    data["memory"]["limit"] = slots * activation
    problem = Problem.from_dict(data)
    assume(problem.stages * problem.samples <= 12 and not infeasible(problem))
    instance = problem.instance(problem.default_sizes())
    ranks = tuple(range(problem.ranks))
    parts = draw.draw(st.lists(st.sets(st.sampled_from(ranks), min_size=1).map(sorted).map(tuple), min_size=1))
    kept = Kept(paths(instance), ranks)
    best = least(kept, LATEST, 1 << 20, monotonic() + 60).bound
    for below in (best + 1 + above, best):
        tables = []
        for part in parts:
            few, layers = Kept(paths(instance), part), list[Layer]()
            least(few, below, 1 << 20, monotonic() + 60, layers=layers)
            table = ends(few, layers, below, 1 << 20, monotonic() + 60)
            assert table is not None or (few.only < 0).any()
            tables += [table] if table else []
        found = least(kept, below, 1 << 20, monotonic() + 60, tuple(tables))
        assert (found.bound, found.exact) == (best, below > best)


@given(problems())
def test_it_is_never_below_the_quick_bound(problem: Problem) -> None:
    sizes = problem.default_sizes()
    assume(not infeasible(problem, sizes))
    quick = instance_bound(problem.instance(sizes))
    assert tight_bound(problem, sizes, deadline=monotonic()) == quick
    assert tight_bound(problem, sizes, "span", deadline=monotonic() + 9) == instance_bound(
        problem.instance(sizes), "span"
    )


@pytest.mark.parametrize(
    ("p", "m", "slots", "v", "value"),
    # CP-SAT proves the first in about 12 s. The others are what all ranks together give.
    [(4, 8, 4, True, 5343), (4, 16, 4, True, 9823), (4, 16, 2, False, 13689)],
)
def test_proofs_at_half_the_memory(p: int, m: int, slots: int, v: bool, value: int) -> None:
    problem = published(p, m, slots, v)
    assert bound(problem, known=value) == value
    if m == 8 or not v:
        assert bound(problem, known=value + 1) == value


@pytest.mark.parametrize("units", [1, 4])
def test_proof_with_fused_backwards_and_units(units: int) -> None:
    """CP-SAT proves the same without units; with units, on a clock that divides them evenly, nothing is gained."""
    data: Data = {
        "pipeline": {"ranks": 4},
        "batch": {"samples": 8},
        "costs": {
            "forward": 740,
            "backward_input": 724,
            "backward": 1052,
            "weight_units": [[372 // units] * units] * 4,
            "overhead": 8,
        },
        "links": {"latency": 24},
        "memory": {"activation": 804, "retained": 296, "limit": 3 * 804},
    }
    assert bound(Problem.from_dict(data), known=4 * 5264) == 4 * 5264


def test_few_labels_are_given_up() -> None:
    instance = published(8, 24, 8, True).instance((1,) * 24)
    kept = Kept(paths(instance), (5, 7))
    assert least(Kept(paths(instance), (1, 5)), 14300, 1 << 13, monotonic() + 60).bound == 0
    assert least(kept, 13900, 1 << 16, monotonic()).bound == 0
    assert least(kept, 13900, 1 << 16, monotonic() + 60).bound == 13900


def test_times_that_do_not_fit_the_labels_are_left_alone() -> None:
    data: Data = {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 2},
        "costs": {"forward": 2**40, "backward_input": 2, "backward_weight": 1},
        "memory": {"activation": 1, "retained": 1, "limit": 1},
    }
    problem = Problem.from_dict(data)
    assert bound(problem) == instance_bound(problem.instance((1, 1)))


def test_it_applies_to_alike_micro_batches_one_way() -> None:
    affine = {"fixed": 1, "per_sample": 1}
    data: Data = {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 3, "microbatch_sizes": [1, 2]},
        "costs": {"forward": affine, "backward_input": affine, "weight_units": [[affine, affine]] * 2},
    }
    assert applies(Problem.from_dict(data).instance((1, 1, 1)))
    assert not applies(Problem.from_dict(data).instance((1, 2)))
    data["pipeline"]["placement"] = "bidirectional"
    assert not applies(Problem.from_dict(data).instance((1, 1, 1)))
