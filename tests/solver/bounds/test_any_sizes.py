"""Bounds for every division of the batch: the parts against trying all, the whole against the best of all divisions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Objective, Problem, check, simulate
from adaptpipe.solver.bounds import divided, infeasible, instance_bound, lower_bound
from adaptpipe.solver.bounds.divided import Demands, least
from adaptpipe.solver.bounds.memory_time import Ramp, least_time
from adaptpipe.solver.core.division import divisions
from adaptpipe.solver.core.problem import price
from adaptpipe.solver.greedy import greedy
from tests.strategies import problem_data

prices = st.lists(st.integers(0, 20), min_size=3, max_size=3)


def every(samples: int, sizes: tuple[int, ...]) -> Iterator[np.ndarray]:
    for division in divisions(samples, sizes):
        yield np.array([division.count(size) for size in sizes])


@given(st.lists(st.tuples(st.integers(0, 30), prices), min_size=1, max_size=5), st.integers(1, 12), st.integers(0, 2))
def test_no_division_meets_all_demands_below(rows: list[tuple[int, list[int]]], samples: int, needed: int) -> None:
    sizes = (1, 2, 4)
    demands = Demands(np.array([float(base) for base, _ in rows]), np.array([row for _, row in rows], dtype=float))
    found = [
        float((demands.base + demands.prices @ counts).max())
        for counts in every(samples, sizes)
        if counts[needed:].any()
    ]
    value = least(demands, np.array(sizes), samples, needed)
    assert value <= min(found, default=np.inf) + 1e-6
    if len(rows) == 1 and found:
        assert value == min(found)


def test_two_demands_at_once_are_more_than_each(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Demands(np.zeros(2), np.array([[2.0, 3.0], [1.0, 4.0]]))
    sizes = np.array([1, 2])
    alone = [least(Demands(both.base[k : k + 1], both.prices[k : k + 1]), sizes, 40) for k in range(2)]
    together = least(both, sizes, 40)
    assert together > max(alone)
    monkeypatch.setattr(divided, "LARGEST_TABLE", 1)
    assert max(alone) <= least(both, sizes, 40) <= together


def test_of_many_demands_the_greatest_are_kept() -> None:
    many = Demands(np.arange(100.0), np.ones((100, 1)))
    assert many.best(np.array([1]), 5).base.tolist() == list(range(100 - divided.MOST_DEMANDS, 100))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), min_size=1, max_size=5), st.integers(5, 12))
def test_no_order_needs_less_time_than_its_memory_says(pieces: list[tuple[int, int]], room: int) -> None:
    """Takers (bytes, ticks) in a row, and in reverse order to free it: what they hold in between cannot be more."""
    taken = np.array([size for size, _ in pieces])
    ticks = np.array([time for _, time in pieces])
    assume(taken.sum() <= room)
    ramp = Ramp(int(taken.max()), float((taken / ticks).max()))
    for order in permutations(range(len(pieces))):
        steps = np.concatenate([ticks[list(order)], ticks[list(order)][::-1]])
        filled = np.cumsum(taken[list(order)])
        levels = np.concatenate([filled, filled[::-1]])
        assert least_time(int((steps * levels).sum()), room, ramp, ramp) <= steps.sum()


def test_what_takes_no_time_makes_no_ramp() -> None:
    """F's and fused backwards that take none: all memory is there at once, and the time is that of the other F's."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 1, "placement": [0, 0]},
            "batch": {"samples": 2},
            "costs": {"forward": [0, 1], "backward_input": [1, 2], "backward_weight": 1, "backward": 0},
            "memory": {"activation": 2, "retained": 0, "limit": 5},
        }
    )
    assert lower_bound(problem) == 2


@settings(max_examples=40, deadline=None)
@given(problem_data(max_ranks=3, max_samples=5), st.sampled_from(("makespan", "span")))
def test_no_division_has_a_schedule_below(data: dict[str, object], objective: Objective) -> None:
    problem = Problem.from_dict(data)
    assume(len(problem.sizes) > 1)
    bound = lower_bound(problem, objective)
    for sizes in divisions(problem.samples, problem.sizes):
        if infeasible(problem, sizes):
            continue
        found = greedy(problem, sizes, objective)
        assert found is not None
        assert check(problem, found) == ()
        assert bound <= simulate(problem, found).value(objective)


def by_share(share: float) -> Problem:
    """The 1.5 B model, its costs those of 4 samples of which a share is fixed, with memory for four times as many."""

    def cost(ticks: int) -> dict[str, int]:
        return {"fixed": round(share * ticks), "per_sample": round((1 - share) * ticks / 4)}

    return Problem.from_dict(
        {
            "pipeline": {"ranks": 4},
            "batch": {"samples": 32, "microbatch_sizes": [1, 2, 3, 4, 5, 6, 7, 8]},
            "costs": {"forward": cost(18522), "backward_input": cost(18086), "backward_weight": cost(9337)},
            "links": {"latency": 601},
            "memory": {
                "activation": {"fixed": 0, "per_sample": 50},
                "retained": {"fixed": 0, "per_sample": 18},
                "limit": 800,
            },
        }
    )


@pytest.mark.parametrize(("share", "times"), [(0.02, 1.05), (0.3, 1.2)])
def test_memory_time_speaks_against_the_largest_size(share: float, times: float) -> None:
    """Work alone would take four micro-batches of 8; they hold too much for too long."""
    problem = by_share(share)
    costs = (problem.forward[0], problem.backward_input[0], problem.weight_units[0][0])
    work = 4 * sum(price(cost, 8) for cost in costs)
    least_of_all = min(instance_bound(problem.instance(problem.uniform_sizes(m))) for m in problem.uniform_counts())
    assert times * work < lower_bound(problem) <= least_of_all
