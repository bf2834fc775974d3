"""Out-of-order backprop: its formula, and that W's give way."""

from __future__ import annotations

import pytest

from adaptpipe.solver import Kind, Problem, check, simulate
from adaptpipe.solver.heuristics import ooo_backprop
from tests.solver.heuristics.shapes import problem


@pytest.mark.parametrize(("ranks", "times"), [(ranks, times) for ranks in range(2, 9) for times in (1, 2, 4)])
def test_formula(ranks: int, times: int) -> None:
    at = problem(ranks, times * ranks, costs=(6, 5, 4))
    timeline = simulate(at, ooo_backprop(at))
    assert timeline.makespan == times * ranks * 15 + (ranks - 1) * 11
    assert timeline.peak_memory == (times * ranks,) * ranks


def test_on_one_chain_a_single_micro_batch_only_leaves_its_weight_gradients_behind() -> None:
    at = problem(4, 1, costs=(6, 5, 4))
    assert simulate(at, ooo_backprop(at)).makespan == 4 * (6 + 5) + 4


def test_weight_gradients_fill_the_waits_for_a_slow_last_rank() -> None:
    costs = {"forward": 1, "backward_input": [2, 2, 9], "backward_weight": 3}
    at = Problem.from_dict({"pipeline": {"ranks": 3}, "batch": {"samples": 5}, "costs": costs})
    schedule = ooo_backprop(at)
    assert check(at, schedule) == ()
    first, _, last = schedule.ops
    assert [op.kind for op in first[5:]] == [Kind.I, Kind.W] * 5
    assert [op.kind for op in last[5:]] == [Kind.I] * 5 + [Kind.W] * 5
