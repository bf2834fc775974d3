"""The search over divisions: valid, never worse than its start, and at the optimum of tiny problems."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Kind, Problem, Schedule, check, simulate
from adaptpipe.solver.core.granularity import Granularity
from adaptpipe.solver.core.result import Objective
from adaptpipe.solver.evaluate.limits import over_limit
from adaptpipe.solver.heuristics.one_by_one import one_by_one
from adaptpipe.solver.sizes import search_sizes
from adaptpipe.solver.sizes.screen import Screen
from adaptpipe.solver.sizes.trial import Trial
from tests.solver.oracle import optimum, optimum_of_any_division
from tests.solver.sizes.shapes import affine, pipeline, some_schedule
from tests.strategies import problems

granularities = st.builds(Granularity, st.booleans(), st.booleans(), st.booleans())


@settings(deadline=None, max_examples=20)
@given(problems(max_samples=6), granularities, st.sampled_from(["makespan", "span"]), st.integers(0, 5))
def test_what_is_found_is_valid_and_as_the_granularity_says(
    problem: Problem, free: Granularity, objective: Objective, seed: int
) -> None:
    problem = free.restricted(problem)
    start: Schedule | None = one_by_one(problem, problem.default_sizes())
    assert start is not None
    if over_limit(simulate(problem, start)) or (not free.fused and start.fused_share):
        start = None
    told: list[int] = []
    found = search_sizes(
        problem,
        objective,
        start=start,
        iterations=3_000,
        seed=seed,
        granularity=free,
        on_schedule=lambda _, value: told.append(value),
    )
    assert len({schedule.sizes for schedule in found}) == len(found)
    values = [simulate(problem, schedule).value(objective) for schedule in found]
    assert values == sorted(values)
    assert told == sorted(set(told), reverse=True)
    assert told[-1:] == values[:1]
    for schedule in found:
        assert not check(problem, schedule)
        assert free.fused or not (schedule.table.kind == Kind.B).any()
        assert free.units or not schedule.cut_share
        even = {problem.uniform_sizes(count) for count in problem.uniform_counts()}
        assert free.sizes or schedule.sizes in even or not even
    if start is not None:
        assert values[0] <= simulate(problem, start).value(objective)


@pytest.mark.parametrize("free", ["none", "fused", "sizes", "all"])
@pytest.mark.parametrize(
    ("placement", "samples", "sizes", "units", "limit"),
    [
        ("linear", 5, (1, 2, 3), 1, 12),
        ("linear", 6, (2, 3, 4), 2, 18),
        ("v", 5, (2, 3), 1, 36),
        ("bidirectional", 4, (1, 2, 3), 1, 18),
        ("bidirectional", 6, (2, 3, 4), 2, 24),
    ],
)
def test_the_optimum_of_tiny_problems_is_found(
    free: str, placement: str, samples: int, sizes: tuple[int, ...], units: int, limit: int
) -> None:
    granularity = Granularity.parse(free)
    problem = granularity.restricted(pipeline(2, samples, sizes, placement, limit, units))
    best = search_sizes(problem, iterations=40_000, granularity=granularity)[0]
    least: int | None
    if granularity.sizes:
        least = optimum_of_any_division(problem, "makespan", granularity)
    else:
        even = [problem.uniform_sizes(count) for count in problem.uniform_counts()]
        values = [optimum(problem.instance(sizes), "makespan", granularity) for sizes in even]
        least = min(value for value in values if value is not None)
    assert simulate(problem, best).makespan == least


def test_ramps_beat_every_near_uniform_division() -> None:
    problem = Granularity.parse("sizes").restricted(pipeline(4, 32, limit=48))
    even, free = (
        simulate(problem, search_sizes(problem, iterations=100_000, granularity=Granularity.parse(text))[0]).makespan
        for text in ("none", "sizes")
    )
    assert free < 0.995 * even


def test_equal_arguments_give_equal_answers() -> None:
    problem = pipeline(3, 20)
    once, twice = (search_sizes(problem, iterations=20_000, seed=3) for _ in range(2))
    assert once == twice
    assert once != search_sizes(problem, iterations=20_000, seed=4)


def test_a_start_within_its_target_is_the_answer() -> None:
    problem = pipeline()
    start = some_schedule(problem)
    assert search_sizes(problem, iterations=1_000, start=start, target=simulate(problem, start).makespan) == (start,)


def test_sizes_that_do_not_fit_are_left_out() -> None:
    problem = pipeline(2, 12, (1, 2, 3, 4), limit=6)
    found = search_sizes(problem, iterations=5_000)
    assert found
    assert all(max(schedule.sizes) <= 2 for schedule in found)
    assert search_sizes(pipeline(2, 12, limit=2), iterations=5_000) == ()
    assert search_sizes(pipeline(2, 11, (1, 5), limit=2), iterations=5_000) == ()


def test_a_batch_that_has_no_near_uniform_division() -> None:
    problem = pipeline(2, 11, (3, 5), limit=None)
    assert not problem.uniform_counts()
    for free in ("none", "all"):
        found = search_sizes(problem, iterations=5_000, granularity=Granularity.parse(free))
        assert sorted(found[0].sizes) == [3, 3, 5]


def test_many_counts_are_searched_from_coarse_to_fine() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 500, "microbatch_sizes": list(range(1, 101))},
            "costs": dict.fromkeys(("forward", "backward_input", "backward_weight"), affine(30, 10)),
        }
    )
    trial = Trial(problem, "makespan")
    screen = Screen(trial, Granularity.parse("none"), None, time.monotonic() + 60)
    screen.run(())
    best = screen.best()[0]
    for count in problem.uniform_counts():
        trial.divide(problem.uniform_sizes(count))
        value = trial.value(best.policy)
        assert value is None or value >= best.value


def test_time_is_kept() -> None:
    problem, began = pipeline(4, 60), time.monotonic()
    found = search_sizes(problem, deadline=began + 1.0)
    assert found
    assert not check(problem, found[0])
    assert search_sizes(problem, deadline=began)
