"""Orders under noise: valid, never worse in the runs they were made for, the same for the same seed."""

from __future__ import annotations

import math
import time
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, NoAnswerError, Problem, Schedule, check, simulate
from adaptpipe.solver.core.result import Objective
from adaptpipe.solver.evaluate.noise import TRAINING, VALIDATION, Noise
from adaptpipe.solver.evaluate.noisy import noisy
from adaptpipe.solver.heuristics.one_f_one_b import one_f_one_b_split
from adaptpipe.solver.heuristics.zero_bubble import zb_h1, zb_v
from adaptpipe.solver.robust import kernel, robust
from adaptpipe.solver.robust.draw import draw
from adaptpipe.solver.robust.search import Search
from tests.solver.heuristics.shapes import problem as shape
from tests.strategies import problems, schedules_of

NOISE = Noise(sigma=0.3, link=0.2)


def seen(problem: Problem, schedule: Schedule, objective: Objective = "makespan", stream: int = TRAINING) -> float:
    """Mean over the runs that a search for 5 scenarios sees."""
    return noisy(problem, schedule, NOISE, objective, count=5, stream=stream).mean


def on_v(ranks: int, microbatches: int) -> Problem:
    """The published 1.5B costs, each stage in two halves, with the memory of 1F1B."""
    memory: dict[str, object] = {"activation": 201, "retained": 74, "limit": 2 * ranks * 201}
    return shape(ranks, microbatches, "v", costs=(93, 91, 47), latency=6, memory=memory)


@st.composite
def starts(draw: st.DrawFn) -> tuple[Problem, Schedule]:
    """A problem and a valid schedule of it; half of the time no rank may ever hold more than it does there."""
    problem = draw(problems(limited=False))
    schedule = draw(schedules_of(problem))
    if draw(st.booleans()):
        peak = simulate(problem, schedule).peak_memory
        problem = replace(problem, memory=replace(problem.memory, limit=peak))
    return problem, schedule


objectives = st.sampled_from(["makespan", "span"])


@given(starts(), objectives, st.integers(0, 2**32))
def test_valid_never_worse_and_the_same_again(start: tuple[Problem, Schedule], objective: Objective, seed: int) -> None:
    problem, schedule = start
    found = robust(problem, schedule, objective, NOISE, scenarios=5, iterations=400, seed=seed)
    assert check(problem, found) == ()
    assert [sorted(map(str, row)) for row in found.ops] == [sorted(map(str, row)) for row in schedule.ops]
    for stream in (TRAINING, VALIDATION):
        assert seen(problem, found, objective, stream) <= seen(problem, schedule, objective, stream)
    assert found == robust(problem, schedule, objective, NOISE, scenarios=5, iterations=400, seed=seed)


@given(starts(), objectives)
@settings(max_examples=60)
def test_times_mended_move_by_move_are_those_of_a_fresh_start(
    start: tuple[Problem, Schedule], objective: Objective
) -> None:
    problem, schedule = start
    span = objective == "span"
    instance = problem.instance(schedule.sizes)
    drawn = draw(instance, schedule, NOISE, 3)
    assert drawn is not None
    search = Search(instance, schedule, objective, drawn, 0.5, 1)
    x, y = search._ops, search._order
    for _ in range(15):
        # Hot, so that most moves are taken.
        search.anneal(0.0, 0.1, 10, 1e6)
        fresh = deepcopy(y)
        assert kernel.settle(x, fresh, span) == search._totals[0]
        for field in ("end", "tail", "close", "value", "held", "number", "dirty", "late"):
            assert np.array_equal(getattr(fresh, field), getattr(y, field)), field
        assert np.array_equal(y.place[y.row], np.arange(len(y.row)))
        sources = x.before[y.line]
        assert (np.where(sources >= 0, y.number[sources], -1) < np.arange(len(y.line))[:, None]).all()


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_better_in_runs_it_has_not_seen(objective: Objective) -> None:
    problem = on_v(4, 12)
    start = zb_v(problem)
    found = robust(problem, start, objective, iterations=60_000)
    gain, error = noisy(problem, found, Noise(), objective, count=100).gain(
        noisy(problem, start, Noise(), objective, count=100)
    )
    assert gain > 5 * error
    assert simulate(problem, found).value(objective) <= 1.01 * simulate(problem, start).value(objective)


def test_the_plan_counts_as_much_as_it_is_told_to() -> None:
    problem = on_v(8, 24)
    start = zb_v(problem)
    free = robust(problem, start, iterations=40_000, planned=0)
    kept = robust(problem, start, iterations=40_000, planned=1000)
    planned = [simulate(problem, each).makespan for each in (kept, start, free)]
    assert planned[0] <= planned[1] < planned[2]
    runs = [noisy(problem, each, Noise(), count=63, stream=VALIDATION).mean for each in (free, kept, start)]
    assert runs[0] < runs[1] <= runs[2]


def test_without_noise_the_plan_is_improved() -> None:
    problem = shape(4, 8)
    start = one_f_one_b_split(problem)
    found = robust(problem, start, noise=Noise(sigma=0, link=0), iterations=20_000)
    assert simulate(problem, found).makespan < simulate(problem, start).makespan


def test_zero_durations() -> None:
    problem = shape(3, 4, costs=(0, 0, 0))
    start = zb_h1(problem)
    assert check(problem, robust(problem, start, iterations=500)) == ()


def test_better_schedules_are_told_with_their_means() -> None:
    problem = shape(4, 8, costs=(60, 50, 40))
    told: list[tuple[Schedule, float]] = []
    start = one_f_one_b_split(problem)
    found = robust(
        problem, start, "makespan", NOISE, scenarios=5, iterations=30_000,
        on_schedule=lambda *each: told.append(each),
    )  # fmt: skip
    assert len(told) > 2
    assert told[0][0] == start
    assert told[-1][0] == found
    for schedule, mean in told:
        assert check(problem, schedule) == ()
        assert mean == pytest.approx(seen(problem, schedule, stream=VALIDATION))


def test_the_deadline_ends_the_search() -> None:
    problem = shape(4, 8, costs=(60, 50, 40))
    start = one_f_one_b_split(problem)
    assert robust(problem, start, deadline=time.monotonic() - 1) == start
    assert robust(problem, start, iterations=10**9, deadline=time.monotonic() - 1) == start
    for iterations in (None, 10**9):
        end = time.monotonic() + 0.3
        found = robust(problem, start, "makespan", NOISE, scenarios=5, iterations=iterations, deadline=end)
        assert seen(problem, found, stream=VALIDATION) < seen(problem, start, stream=VALIDATION)


def test_without_an_end_the_number_of_moves_follows_from_the_ops() -> None:
    problem = shape(2, 2, costs=(60, 50, 40))
    start = one_f_one_b_split(problem)
    assert robust(problem, start) == robust(problem, start, iterations=400 * 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scenarios": 0}, r"robust.scenarios: 0 is below 1; 63 are usual"),
        ({"planned": -0.5}, r"robust.planned: -0.5 is not within 0..1000; 0.4 is usual"),
        ({"planned": math.nan}, r"robust.planned: nan is not within"),
    ],
)
def test_numbers_out_of_range(options: dict[str, float], message: str) -> None:
    problem = shape(2, 2)
    with pytest.raises(InputError, match=message):
        robust(problem, zb_h1(problem), **options)  # type: ignore[arg-type]  # one number for each option


def test_sums_beyond_integers_are_refused() -> None:
    problem = shape(2, 2, costs=(2**53, 0, 0))
    with pytest.raises(InputError, match=r"robust: the durations of all scenarios sum to .* choose a coarser unit"):
        robust(problem, zb_h1(problem))


def test_a_start_that_is_not_valid() -> None:
    problem = shape(2, 2, memory={"activation": 1, "retained": 1, "limit": 1})
    with pytest.raises(NoAnswerError, match=r"the schedule to start from is not valid: rank 0, position 1: 0F1 brings"):
        robust(problem, one_f_one_b_split(problem))
