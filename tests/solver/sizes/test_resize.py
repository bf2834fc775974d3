"""Resizing under a fixed order: valid, never worse, and as good as trying everything."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Problem, Schedule, check, simulate
from adaptpipe.solver.core.result import Objective
from adaptpipe.solver.evaluate.limits import over_limit
from adaptpipe.solver.sizes import resize_kernel as kernel
from adaptpipe.solver.sizes.resize import _State, resize
from tests.solver.sizes.shapes import pipeline, some_schedule
from tests.strategies import problems, schedules_of

objectives = st.sampled_from(["makespan", "span"])


def value(problem: Problem, schedule: Schedule, objective: Objective) -> int:
    return simulate(problem, schedule).value(objective)


def divisions(problem: Problem, count: int) -> list[tuple[int, ...]]:
    return [sizes for sizes in product(problem.sizes, repeat=count) if sum(sizes) == problem.samples]


@settings(deadline=None, max_examples=60)
@given(problems(max_samples=5), st.data(), objectives)
def test_every_division_is_evaluated_as_by_the_simulator(
    problem: Problem, data: st.DataObject, objective: Objective
) -> None:
    schedule = data.draw(schedules_of(problem))
    assume(not check(problem, schedule))
    state = _State(problem, schedule, objective, 0)
    for sizes in divisions(problem, schedule.microbatches):
        which = np.searchsorted(state.ops.sizes, np.array(sizes))
        found = kernel.evaluate(state.ops, state.kept, which, 0, False, state.span, kernel.FAR)
        timeline = simulate(problem, Schedule(schedule.placement, sizes, schedule.ops))
        assert found == (kernel.FAR if over_limit(timeline) else timeline.value(objective))


@settings(deadline=None, max_examples=60)
@given(problems(max_samples=6), st.data(), objectives, st.integers(0, 9), st.sampled_from([0.0, 0.1, 2.0]))
def test_the_answer_is_valid_and_never_worse(
    problem: Problem, data: st.DataObject, objective: Objective, seed: int, heat: float
) -> None:
    schedule = data.draw(schedules_of(problem))
    assume(not check(problem, schedule))
    better = resize(problem, schedule, objective, iterations=200, seed=seed, heat=heat)
    assert not check(problem, better)
    assert better.ops == schedule.ops
    assert value(problem, better, objective) <= value(problem, schedule, objective)
    assert better == resize(problem, schedule, objective, iterations=200, seed=seed, heat=heat)


@pytest.mark.parametrize("placement", ["linear", "v", "loop", "bidirectional"])
@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), (1, 2, 4, 8)])
def test_the_best_of_all_divisions_is_found(placement: str, objective: Objective, sizes: tuple[int, ...]) -> None:
    problem = pipeline(2, 10, sizes, placement, limit=None)
    schedule = some_schedule(problem, (2, 2, 2, 2, 2))
    rivals = (Schedule(schedule.placement, each, schedule.ops) for each in divisions(problem, schedule.microbatches))
    least = min(value(problem, each, objective) for each in rivals)
    better = resize(problem, schedule, objective, iterations=5_000, heat=3.0)
    assert value(problem, better, objective) == least


@pytest.mark.parametrize("limit", [None, 60])
@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_evaluations_from_a_later_block_are_right(limit: int | None, objective: Objective) -> None:
    problem = pipeline(4, 40, limit=limit)
    schedule = some_schedule(problem, (2,) * 20)
    state = _State(problem, schedule, objective, 5)
    assert len(state.ops.rank) > 5 * kernel.BLOCK
    for _ in range(20):
        state.run(100, 20.0, 0.0, -1)
        now = tuple(state.ops.sizes[state.kept.which].tolist())
        timeline = simulate(problem, Schedule(schedule.placement, now, schedule.ops))
        assert state.values[kernel.VALUE] == timeline.value(objective)
        assert not over_limit(timeline)
        assert value(problem, state.best_schedule(), objective) == state.best
    # In tight memory hardly any other division keeps the limit.
    assert state.values[kernel.TAKEN] > (20 if limit is None else 0)


@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=12),
    st.sampled_from([(1, 2, 3, 4), (1, 2, 4, 8), (2, 3, 7, 9)]),
    st.integers(1, 2**60),
)
def test_proposals_keep_the_sum(numbers: list[int], sizes: tuple[int, ...], seed: int) -> None:
    which, table = np.array(numbers), np.array(sizes)
    fresh, random = which.copy(), np.array([seed], dtype=np.uint64)
    low, high = kernel.propose(which, fresh, table, random)
    if low < 0:
        return
    assert table[fresh].sum() == table[which].sum()
    changed = np.flatnonzero(fresh != which)
    assert len(changed)
    assert low <= changed[0]
    assert changed[-1] <= high


def test_unequal_steps_take_three() -> None:
    """From a 4 to a 2 there are two samples: two 1's become 2's."""
    which, table = np.array([2, 0, 0]), np.array([1, 2, 4])
    found = set()
    random = np.array([7], dtype=np.uint64)
    for _ in range(2_000):
        fresh = which.copy()
        if kernel.propose(which, fresh, table, random)[0] >= 0:
            found.add(tuple(fresh.tolist()))
    assert (1, 1, 1) in found


def test_one_size_or_one_microbatch_leaves_nothing_to_resize() -> None:
    for problem, sizes in ((pipeline(2, 3, (1,)), (1, 1, 1)), (pipeline(2, 3, (1, 3)), (3,))):
        schedule = some_schedule(problem, sizes)
        assert resize(problem, schedule, iterations=10) is schedule


def test_no_time_gives_the_schedule_itself() -> None:
    problem = pipeline()
    schedule = some_schedule(problem)
    assert resize(problem, schedule, deadline=time.monotonic() - 1) is schedule


def test_by_time_it_gains_and_ends() -> None:
    problem = pipeline(3, 24, limit=None)
    schedule = some_schedule(problem, (4, 3, 2, 1) * 2 + (4,))
    better = resize(problem, schedule, deadline=time.monotonic() + 0.2)
    assert value(problem, better, "makespan") < value(problem, schedule, "makespan")
