"""Results: status, gap, text, plain data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adaptpipe.solver import NoAnswerError, Problem, Result, Schedule, Status, simulate

DATA: dict[str, Any] = {
    "pipeline": {"ranks": 1},
    "batch": {"samples": 1},
    "costs": {"forward": 1, "backward_input": 2, "backward_weight": 3},
}


def result(bound: int, **other: Any) -> Result:
    problem = Problem.from_dict(DATA)
    timeline = simulate(problem, Schedule.parse(problem.placement, [1], [["0F0", "0B0"]]))
    return replace(Result("auto", "makespan", timeline, bound, 0.5, "1F1B"), **other)


def test_optimal_only_when_the_bound_is_met() -> None:
    assert (result(6).status, result(6).gap) == (Status.OPTIMAL, 0.0)
    assert result(5).status is Status.FEASIBLE
    assert result(5).gap == pytest.approx(0.2)
    assert (result(0).status, result(0).gap) == (Status.FEASIBLE, None)


def test_without_a_schedule() -> None:
    nothing = result(5, timeline=None, reason="rank 0 is full")
    assert (nothing.status, nothing.value, nothing.gap) == (Status.UNKNOWN, None, None)
    assert replace(nothing, infeasible=True).status is Status.INFEASIBLE
    with pytest.raises(NoAnswerError, match="rank 0 is full"):
        _ = nothing.schedule
    assert str(nothing) == "UNKNOWN by auto: rank 0 is full"


def test_text_says_which_bubble() -> None:
    text = str(result(5))
    for part in ("FEASIBLE by 1F1B", "makespan 6 us", "gap 20.00%", "makespan bubble 0.00%", "span bubble 0.00%"):
        assert part in text


def test_rows_have_the_same_keys_with_and_without_a_schedule() -> None:
    assert set(result(5).row()) == set(result(5, timeline=None).row())
