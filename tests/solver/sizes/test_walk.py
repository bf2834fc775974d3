"""The greedy at one division after another, and walks over divisions and policies."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Problem, check, simulate
from adaptpipe.solver.bounds import infeasible
from adaptpipe.solver.core.granularity import ALL, Granularity
from adaptpipe.solver.core.instance import Instance
from adaptpipe.solver.greedy import Search
from adaptpipe.solver.greedy.policy import change
from adaptpipe.solver.sizes.trial import Trial
from adaptpipe.solver.sizes.walk import Found, moved, walk
from tests.solver.sizes.shapes import pipeline
from tests.strategies import problems, sizes_of


@settings(deadline=None, max_examples=60)
@given(problems(), st.data(), st.integers(0, 99), st.booleans())
def test_a_trial_is_a_run_of_the_greedy(problem: Problem, data: st.DataObject, seed: int, fused: bool) -> None:
    free = Granularity(fused=fused, units=False)
    problem, trial = free.restricted(problem), Trial(free.restricted(problem), "makespan", fused)
    for _ in range(3):
        sizes = data.draw(sizes_of(problem))
        assume(not infeasible(problem, sizes))
        instance = Instance(problem, sizes)
        search = Search(instance, "makespan", free)
        policy = change(next(search.grid()), len(sizes), Random(seed), True)
        trial.divide(sizes)
        found = trial.value(policy)
        assert found == search.attempt(policy, 2**62)
        if found is not None:
            assert trial.schedule() == search.schedule()
            assert simulate(problem, trial.schedule()).makespan == found
            assert not check(problem, trial.schedule())


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.sampled_from([(1, 2, 3, 4), (1, 2, 4, 8), (2, 3, 7, 9)]),
    st.integers(0, 2**30),
)
def test_moves_keep_the_sum(numbers: list[int], allowed: tuple[int, ...], seed: int) -> None:
    division = tuple(allowed[number] for number in numbers)
    other = moved(division, allowed, Random(seed))
    assert sum(other) == sum(division)
    assert set(other) <= set(allowed)


def test_moves_reach_every_division() -> None:
    random = Random(0)
    division: tuple[int, ...] = (3, 3)
    seen = set()
    for _ in range(3_000):
        division = moved(division, (1, 2, 3), random)
        seen.add(division)
    assert len(seen) == 24  # sequences of 1, 2 and 3 that add up to 6


def _start(trial: Trial, problem: Problem, sizes: tuple[int, ...]) -> Found:
    policy = next(Search(Instance(problem, sizes), "makespan").grid())
    trial.divide(sizes)
    value = trial.value(policy)
    assert value is not None
    return Found(value, sizes, policy)


def test_a_walk_gets_better_by_sizes_and_by_policies() -> None:
    problem = pipeline(3, 24)
    trial = Trial(problem, "makespan")
    start = _start(trial, problem, (2,) * 12)
    found = list(walk(trial, start, ALL, Random(0), 2_000, None))
    assert [each.value for each in found] == sorted((each.value for each in found), reverse=True)
    assert found[-1].value < start.value
    trial.divide(found[-1].sizes)
    assert trial.value(found[-1].policy) == found[-1].value
    assert not check(problem, trial.schedule())
    fixed = list(walk(trial, start, Granularity(sizes=False), Random(0), 2_000, None))
    assert all(each.sizes == start.sizes and found[-1].value < each.value < start.value for each in fixed)


@pytest.mark.parametrize("tries", [0, 1, 50])
def test_a_walk_ends_after_its_tries(tries: int) -> None:
    problem = pipeline()
    trial = Trial(problem, "makespan")
    start = _start(trial, problem, problem.default_sizes())
    runs = trial.runs
    list(walk(trial, start, ALL, Random(0), tries, None))
    assert trial.runs == runs + tries


def test_a_walk_ends_in_time() -> None:
    problem = pipeline()
    trial = Trial(problem, "makespan")
    start = _start(trial, problem, problem.default_sizes())
    assert not list(walk(trial, start, ALL, Random(0), None, time.monotonic() - 1))
    list(walk(trial, start, ALL, Random(0), None, time.monotonic() + 0.05))
