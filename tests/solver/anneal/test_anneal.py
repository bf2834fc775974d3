"""The annealer: valid orders, exact values, never worse, the same for the same moves."""

from __future__ import annotations

import time
from queue import SimpleQueue
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Kind, Objective, Op, Problem, Schedule, check, simulate
from adaptpipe.solver.anneal import anneal, kernel, pieces
from adaptpipe.solver.anneal.annealing import Budget
from adaptpipe.solver.anneal.process import DONE, Found, Round, Worker
from adaptpipe.solver.anneal.state import State
from adaptpipe.solver.anneal.team import Team
from adaptpipe.solver.core.granularity import Granularity
from adaptpipe.solver.greedy import greedy
from adaptpipe.solver.heuristics import gpipe, zb_v
from tests.solver.bounds.test_bounds import published
from tests.strategies import problems, schedules_of


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


def canonical(problem: Problem, schedule: Schedule) -> Schedule:
    """The schedule with W's of all units as whole ones."""

    def whole(op: Op) -> Op:
        return Op(op.stage, op.kind, op.microbatch) if op.units == (0, len(problem.weight_units[op.stage])) else op

    rows = tuple(tuple(whole(op) for op in row) for row in schedule.ops)
    return Schedule(schedule.placement, schedule.sizes, rows)


def rows(state: State) -> list[list[tuple[int, ...]]]:
    """Code, head, tail, bytes and prices of the ops of every rank, in order."""
    ops, now, found = state.ops, state.now, []
    for r in range(len(ops.static)):
        slots = range(ops.first[r], ops.first[r] + now.used[r])
        row = []
        for place in slots:
            op = now.order[place]
            assert now.slot[op] == place
            kept = now.head[op], now.tail[op], now.held[place], now.ticks[op], now.peak[op], now.net[op]
            row.append((pieces.code(op, ops, now), *(int(value) for value in kept), int(now.family[op])))
        found.append(row)
    return found


def assert_consistent(state: State) -> None:
    """What exists is listed once; what does not, lies in the pools."""
    ops, now = state.ops, state.now
    pairs = len(ops.alike)
    slots = [place for r, low in enumerate(ops.first[:-1]) for place in range(low, low + now.used[r])]
    live = now.live[: now.used[-1]].tolist()
    assert sorted(live) == sorted(now.order[slots].tolist())
    assert now.place[live].tolist() == list(range(len(live)))
    offsets = ops.pool_first - 2 * pairs
    pooled = [op for r, low in enumerate(offsets[:-1]) for op in now.pool[low : low + now.pooled[r]].tolist()]
    assert sorted(pooled + [op for op in live if op >= 2 * pairs]) == list(range(2 * pairs, len(ops.rank)))
    parts = [op for op in live if op >= 2 * pairs]
    assert np.bincount(now.own[parts] - pairs, minlength=pairs).tolist() == now.parts.tolist()
    assert (state.work.bucket == -1).all()
    assert (state.work.queued == -1).all()


@settings(max_examples=150)
@given(problems(max_ranks=4, max_samples=6), st.sampled_from(get_args(Objective)), st.integers(0, 99), st.data())
def test_moves_keep_heads_tails_bytes_prices_and_value_exact(
    problem: Problem, objective: Objective, seed: int, data: st.DataObject
) -> None:
    start = data.draw(schedules_of(problem))
    if check(problem, start):
        start = first_schedule(problem)
    state = State(problem, start, objective, seed)
    assert state.best == simulate(problem, start).value(objective)
    assert state.best_schedule() == canonical(problem, start)
    heat = state.mean_ticks
    for _ in range(4):
        state.run(200, heat, heat / 2, -1)
        assert_consistent(state)
        found, value, best, best_codes = rows(state), state.value, state.best, state.now.best.copy()
        pieces.keep(state.ops, state.now)
        codes = state.now.best.copy()
        assert check(problem, state.best_schedule()) == ()
        assert simulate(problem, state.best_schedule()).value(objective) == value
        state.now.best[:] = best_codes
        state.restart(codes)
        assert (state.value, state.best) == (value, best)
        assert rows(state) == found
        assert_consistent(state)
        state.now.best[:] = best_codes
    assert check(problem, state.best_schedule()) == ()
    assert simulate(problem, state.best_schedule()).value(objective) == state.best


@settings(max_examples=60)
@given(problems(max_ranks=3, max_samples=5), st.sampled_from(get_args(Objective)), st.booleans(), st.booleans())
def test_never_worse_and_what_it_reports_is_true(
    problem: Problem, objective: Objective, fused: bool, units: bool
) -> None:
    granularity = Granularity(fused, units)
    problem = granularity.restricted(problem)
    start, seen = first_schedule(problem), list[tuple[Schedule, int]]()
    assume(fused or not (start.table.kind == Kind.B).any())
    better = anneal(
        problem,
        start,
        objective,
        iterations=3000,
        on_schedule=lambda found, value: seen.append((found, value)),
        granularity=granularity,
    )
    assert fused or not (better.table.kind == Kind.B).any()
    assert units or (better.table.start < 0).all()
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
    for workers in (1, 3):
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


class Fake(Worker):
    """A worker that has found one order, at once."""

    def __init__(self, value: int, order: bytes) -> None:
        self.warmer, self.ready, self.round = 1.0, True, 0
        self.found = SimpleQueue()
        self._answer = value, order

    def start(self, task: Round) -> None:
        self.round = task.number
        self.found.put(Found(DONE, task.number, *self._answer))

    def close(self) -> None:
        return


@pytest.mark.parametrize("late", [0, 1])
def test_of_equal_finds_the_first_workers_counts_whoever_is_first(late: int) -> None:
    problem = published(4, 8, 1)
    start = greedy(problem, deadline=0.0)
    assert start is not None
    state = State(problem, start, "makespan", 0)
    orders = [np.full(len(state.now.best), fill, dtype=np.int64) for fill in (1, 2)]
    team = Team(state, 0, 0)
    team._workers = [Fake(1, order.tobytes()) for order in orders]
    heard = team._hear

    def slow(index: int, worker: Worker, found: list[Any], wait: float | None) -> None:
        if wait != 0.0 or index != late:
            heard(index, worker, found, wait)

    team._hear = slow  # type: ignore[method-assign]  # the other order of arrival
    team.round(2_000, None, 0.0, 0, lambda: None)
    assert np.array_equal(state.now.best, orders[0])


def test_a_lost_worker_leaves_the_others() -> None:
    problem = published(4, 8, 1)
    start = greedy(problem, deadline=0.0)
    assert start is not None
    state = State(problem, start, "makespan", 0)
    with Team(state, 2, 0) as team:
        team._workers[0]._process.kill()
        team.round(20_000, None, 1.0, 0, lambda: None)
        assert len(team._workers) == 1
    assert state.best < simulate(problem, start).makespan


def test_no_process_is_left_and_starting_many_takes_no_time_of_the_search() -> None:
    problem = published(8, 24, 1, v=True)
    state = State(problem, zb_v(problem, None), "makespan", 0)
    with Team(state, 6, 0) as team:
        processes = [worker._process for worker in team._workers]
        team.round(None, time.monotonic() + 0.2, 1.0, 0, lambda: None)
        # None has been loaded in so short a time; this process has not waited for one.
        assert state.counters[kernel.PROPOSED] > 0
    assert all(process.poll() is not None for process in processes)


def test_rounds_by_moves_are_not_cut_by_time() -> None:
    """A share of the deadline for each round let slow workers' finds go missing."""
    whole = Budget(1000, time.monotonic() + 50)
    part = whole.part(0.04, 1.0)
    assert (part.iterations, part.deadline) == (40, whole.deadline)
    timed = Budget(None, time.monotonic() + 50).part(0.04, 1.0)
    assert timed.iterations is None
    assert timed.deadline is not None
    assert timed.deadline < time.monotonic() + 3
