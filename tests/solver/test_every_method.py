"""What holds for the schedule of every method, on random problems of every placement."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Objective, Problem, Schedule, check, simulate, solve
from adaptpipe.solver.bounds import lower_bound
from adaptpipe.solver.heuristics import LITERATURE
from adaptpipe.solver.methods import METHODS
from tests.strategies import problems


@pytest.mark.parametrize("method", [method.name for method in METHODS])
@given(problem=problems(max_ranks=4, max_samples=6), objective=st.sampled_from(get_args(Objective)))
@settings(max_examples=30)
def test_valid_within_limits_not_below_the_bound_and_kept_by_its_file(
    tmp_path_factory: pytest.TempPathFactory, method: str, problem: Problem, objective: Objective
) -> None:
    try:
        result = solve(problem, method, objective=objective, time_limit=0.3, workers=1)
    except InputError:
        return  # the heuristic does not exist for this placement
    if result.timeline is None:
        assert result.reason
        return
    schedule, timeline = result.schedule, result.timeline
    assert check(problem, schedule) == ()
    for peak, limit in zip(timeline.peak_memory, problem.memory.limit, strict=True):
        assert limit is None or peak <= limit
    assert timeline.value(objective) >= max(result.bound, lower_bound(problem, objective))
    path = tmp_path_factory.mktemp("schedule") / "schedule.json"
    schedule.save(path)
    again = Schedule.load(path)
    assert again == schedule
    assert simulate(problem, again).value(objective) == result.value


@given(problem=problems(max_ranks=4, max_samples=6), objective=st.sampled_from(get_args(Objective)))
@settings(max_examples=30)
def test_auto_is_never_worse_than_a_schedule_of_the_literature(problem: Problem, objective: Objective) -> None:
    found = solve(problem, objective=objective, time_limit=0.3, workers=1)
    for method in LITERATURE:
        try:
            rival = solve(problem, method.name, objective=objective)
        except InputError:
            continue  # it does not exist for this placement
        if rival.value is not None:
            assert found.value is not None
            assert found.value <= rival.value, method.name
