"""The annealer: valid orders, exact values, never worse, the same for the same moves."""

from __future__ import annotations

import time
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Objective, Problem, Schedule, check, simulate
from adaptpipe.solver.anneal import anneal, kernel
from adaptpipe.solver.anneal.state import State
from adaptpipe.solver.heuristics import gpipe, zb_v
from adaptpipe.solver.heuristics.greedy import greedy
from tests.solver.bounds.test_bounds import published
from tests.strategies import problems


def first_schedule(problem: Problem) -> Schedule:
    """A schedule that is far from good, or else whatever fits."""
    try:
        schedule = gpipe(problem, None)
    except Exception:
        schedule = None
    if schedule is None or check(problem, schedule):
        schedule = greedy(problem, deadline=0.0)
    assume(schedule is not None)
    assert schedule is not None
    return schedule


@settings(max_examples=150)
@given(problems(max_ranks=4, max_samples=6), st.sampled_from(get_args(Objective)), st.integers(0, 99))
def test_moves_keep_order_heads_tails_bytes_and_value_exact(problem: Problem, objective: Objective, seed: int) -> None:
    start = first_schedule(problem)
    state = State(problem, start, objective, seed)
    heat = float(state.ops.ticks.mean()) / state.scale
    for _ in range(4):
        state.run(200, heat, heat / 2, -1)
        assert (state.work.bucket == -1).all()
        assert (state.work.queued == -1).all()
        order, head, tail, held, value = (
            state.now.order.copy(), state.now.head.copy(), state.now.tail.copy(), state.now.held.copy(), state.value
        )  # fmt: skip
        best, best_order = state.best, state.now.best_order.copy()
        state.restart(order)
        assert (state.value, state.best) == (value, best)
        assert np.array_equal(state.now.head, head)
        assert np.array_equal(state.now.tail, tail)
        assert np.array_equal(state.now.held, held)
        state.now.best_order[:] = order
        assert check(problem, state.best_schedule()) == ()
        assert simulate(problem, state.best_schedule()).value(objective) == value
        state.now.best_order[:] = best_order
    assert check(problem, state.best_schedule()) == ()
    assert simulate(problem, state.best_schedule()).value(objective) == state.best


@settings(max_examples=30)
@given(problems(max_ranks=3, max_samples=5), st.sampled_from(get_args(Objective)))
def test_never_worse_and_what_it_reports_is_true(problem: Problem, objective: Objective) -> None:
    start, seen = first_schedule(problem), list[tuple[Schedule, int]]()
    better = anneal(
        problem, start, objective, iterations=3000, on_schedule=lambda found, value: seen.append((found, value))
    )
    values = [simulate(problem, start).value(objective), *(value for _, value in seen)]
    assert values == sorted(set(values), reverse=True)
    assert simulate(problem, better).value(objective) == values[-1]
    assert all(simulate(problem, found).value(objective) == value for found, value in seen)
    assert check(problem, better) == ()


@pytest.mark.parametrize(("limit", "optimum"), [(1, 4563), (2, 4245)])
def test_the_optimum_from_a_bad_start(limit: float, optimum: int) -> None:
    problem = published(4, 8, limit)
    start = greedy(problem, deadline=0.0)
    assert start is not None
    better = anneal(problem, start, iterations=400_000, target=optimum)
    assert simulate(problem, better).makespan == optimum


@pytest.mark.timeout(120)
def test_the_same_moves_give_the_same_schedule_on_one_process_and_on_two() -> None:
    problem = published(8, 12, 1, v=True)
    start = zb_v(problem, None)
    for workers in (1, 2):
        one, two = (anneal(problem, start, iterations=30_000, seed=3, workers=workers) for _ in range(2))
        assert one == two
    assert anneal(problem, start, iterations=30_000, seed=4) != one
    assert simulate(problem, one).makespan < simulate(problem, start).makespan


def test_a_deadline_is_kept_and_a_target_ends_the_run() -> None:
    problem = published(4, 8, 1)
    start = greedy(problem, deadline=0.0)
    assert start is not None
    anneal(problem, start, iterations=100)
    began = time.monotonic()
    better = anneal(problem, start, deadline=began + 60, target=simulate(problem, start).makespan - 1)
    assert time.monotonic() - began < 50
    assert simulate(problem, better).makespan < simulate(problem, start).makespan
    assert anneal(problem, start, deadline=began) is start


def test_most_moves_are_turned_down_without_touching_anything() -> None:
    problem = published(8, 24, 1, v=True)
    state = State(problem, zb_v(problem, None), "makespan", 0)
    state.run(50_000, 1.0, 0.1, -1)
    counts = state.counters
    assert counts[kernel.PROPOSED] == 50_000
    assert counts[kernel.UNDONE] < counts[kernel.ESTIMATED] / 100
    assert counts[kernel.ACCEPTED] + counts[kernel.UNDONE] == counts[kernel.ESTIMATED]
