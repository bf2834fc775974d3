"""Hanayo and Hanayo with floating W's: formulas, memory, and what they refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver.core.errors import InputError
from adaptpipe.solver.core.ops import Kind, Op
from adaptpipe.solver.core.problem import Problem
from adaptpipe.solver.core.schedule import Schedule
from adaptpipe.solver.evaluate.check import check
from adaptpipe.solver.evaluate.simulate import simulate
from adaptpipe.solver.heuristics import hanayo, hanayo_w
from tests.solver.heuristics.shapes import SHAPES, problem
from tests.strategies import Data, problem_data

WAVES = (1, 2, 3)


@pytest.mark.parametrize("build", [hanayo, hanayo_w])
def test_both_exist_for_every_shape(build: Callable[[Problem], Schedule]) -> None:
    for ranks in range(1, 6):
        for waves in WAVES:
            for microbatches in (1, 2, 3, 5, 7, 8, 11):
                at = problem(ranks, microbatches, "wave", 2 * waves)
                assert check(at, build(at)) == (), (ranks, waves, microbatches)


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_hanayo_formula(ranks: int, microbatches: int) -> None:
    for waves in WAVES:
        for costs in [(6, 5, 4), (3, 1, 2), (4, 1, 1), (1, 1, 1)]:
            forward, backward = costs[0], costs[1] + costs[2]
            at = problem(ranks, microbatches, "wave", 2 * waves, costs=costs)
            timeline = simulate(at, hanayo(at))
            idle, more = timeline.makespan - max(timeline.work), microbatches // ranks - 1
            assert idle == 2 * (ranks - 1) * (max(forward, backward) + more * abs(backward - forward))
            assert timeline.peak_memory == tuple((2 * waves - 1) * ranks + rank + 1 for rank in range(ranks))
            if costs == (1, 1, 1) and not more:
                assert timeline.bubble == pytest.approx((2 * ranks - 2) / (3 * ranks * waves + 2 * ranks - 2))


def test_hanayo_on_one_wave_is_chimeras_order_without_the_second_copy() -> None:
    """Each rank runs, in Chimera's order, the way back where Chimera runs the other direction's stage."""
    at = problem(2, 2, "wave", 2)
    assert [" ".join(map(str, row)) for row in hanayo(at).ops] == [
        "0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1",
        "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1",
    ]


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_floating_w_leaves_a_forward_of_idle_time_per_further_rank(ranks: int, microbatches: int) -> None:
    for waves in WAVES[: 3 if microbatches <= 16 else 1]:
        for costs in [(1, 1, 1), (3, 3, 9)]:
            at = problem(ranks, microbatches, "wave", 2 * waves, costs=costs)
            timeline = simulate(at, hanayo_w(at))
            assert timeline.makespan - max(timeline.work) == (ranks - 1) * costs[0]
            assert max(timeline.peak_memory) <= 2 * waves * ranks
            assert timeline.makespan < simulate(at, hanayo(at)).makespan


@given(problem_data(families=("wave", "v"), limited=False, sizes=False))
@settings(max_examples=40)
def test_forwards_and_input_gradients_stay_in_the_order_of_hanayo(data: Data) -> None:
    at = Problem.from_dict(data)
    schedule, plain = hanayo_w(at), hanayo(at)
    assert check(at, schedule) == ()
    for row, other in zip(schedule.ops, plain.ops, strict=True):
        assert [op for op in row if op.kind is not Kind.W] == [
            Op(op.stage, Kind.I, op.microbatch) if op.kind is Kind.B else op for op in other
        ]


@given(
    ranks=st.integers(1, 4),
    waves=st.integers(1, 2),
    microbatches=st.integers(1, 9),
    retained=st.integers(0, 4),
    units=st.integers(1, 3),
    latency=st.integers(0, 9),
)
@settings(max_examples=40)
def test_memory_stays_within_that_of_1f1b(
    ranks: int, waves: int, microbatches: int, retained: int, units: int, latency: int
) -> None:
    at = Problem.from_dict(
        {
            "pipeline": {"ranks": ranks, "placement": "wave", "stages_per_rank": 2 * waves},
            "batch": {"samples": microbatches},
            "costs": {"forward": 3, "backward_input": 2, "weight_units": [4] * units},
            "memory": {"activation": 4, "retained": retained},
            "links": {"latency": latency},
        }
    )
    assert max(simulate(at, hanayo_w(at)).peak_memory) <= 4 * 2 * waves * ranks


def of_units(units: list[int], overhead: int, activation: int, retained: int) -> Problem:
    """Two micro-batches on two ranks, with F = I = 4 and messages of 2."""
    return Problem.from_dict(
        {
            "pipeline": {"ranks": 2, "placement": "wave", "stages_per_rank": 2},
            "batch": {"samples": 2},
            "costs": {"forward": 4, "backward_input": 4, "weight_units": units, "overhead": overhead},
            "memory": {"activation": activation, "retained": retained},
            "links": {"latency": 2},
        }
    )


def test_units_run_in_the_waits_one_by_one() -> None:
    """Waits are shorter than a whole W: some W's are cut, and what is left at the end runs whole."""
    at = of_units([3, 3, 3], 1, 1, 1)
    schedule = hanayo_w(at)
    cut = Counter(op.units is not None for row in schedule.ops for op in row if op.kind is Kind.W)
    assert cut[True] > 0
    assert cut[False] > 0
    assert simulate(at, schedule).makespan < simulate(at, hanayo(at).split()).makespan


def test_what_cutting_costs_counts() -> None:
    """Where it did not, one more unit would seem to fit a wait, and the step would take 68."""
    at = of_units([2, 2, 2], 2, 1, 1)
    assert simulate(at, hanayo_w(at)).makespan == 66


def test_units_make_room_for_an_input_gradient_too() -> None:
    """What an I leaves may be more than its F left: rank 0 runs units before it, and would hold 17 otherwise. Rank 1
    has none to run when its first I comes, and exceeds 1F1B's 16."""
    at = of_units([3, 3], 0, 4, 6)
    assert simulate(at, hanayo_w(at)).peak_memory == (15, 18)


@pytest.mark.parametrize(("build", "name"), [(hanayo, "Hanayo"), (hanayo_w, "Hanayo-W")])
def test_wrong_placement_is_refused_with_the_right_one(build: Callable[[Problem], Schedule], name: str) -> None:
    for at in (problem(3, 4), problem(3, 4, "loop", 2), problem(3, 4, "loop", 3), problem(2, 4, [0, 1, 1])):
        with pytest.raises(InputError, match=f"{name} needs placement 'wave'.*set pipeline.placement = \"wave\""):
            build(at)
