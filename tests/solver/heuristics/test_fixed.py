"""The hand-made schedules: valid for every shape, and as good as their formulas say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver.core.errors import InputError
from adaptpipe.solver.core.ops import Kind
from adaptpipe.solver.core.problem import Problem
from adaptpipe.solver.core.schedule import Schedule
from adaptpipe.solver.evaluate.check import check
from adaptpipe.solver.evaluate.simulate import simulate
from adaptpipe.solver.heuristics import gpipe, interleaved, one_f_one_b, one_f_one_b_split, zb_h1, zb_h2, zb_v
from adaptpipe.solver.methods import find_method
from tests.solver.heuristics.shapes import problem

F, I, W = 6, 5, 4  # noqa: E741 - PyTorch's letter
LINEAR = (gpipe, one_f_one_b, one_f_one_b_split, zb_h1, zb_h2)
SHAPES = sorted(
    {(p, m) for p in (1, 2, 3, 4, 5, 8) for m in (1, 2, 3, 5, 7, 8, 16, 33)}
    | {(p, factor * p) for p in range(2, 9) for factor in (1, 2, 4)}
)

Build = Callable[[Problem], Schedule]


@pytest.mark.parametrize("build", LINEAR)
def test_linear_heuristics_exist_for_every_shape(build: Build) -> None:
    """Fewer micro-batches than ranks hung or were refused (pytorch/torchtitan#775, pytorch PR 144702)."""
    for ranks in range(1, 7):
        for microbatches in range(1, 15):
            at = problem(ranks, microbatches)
            assert check(at, build(at)) == (), (ranks, microbatches)


def test_interleaved_exists_for_every_shape() -> None:
    """Micro-batches that the ranks do not divide were refused (pytorch PR 129597, 137783)."""
    for ranks in range(1, 7):
        for stages_per_rank in range(1, 5):
            for microbatches in range(1, 20):
                at = problem(ranks, microbatches, "loop", stages_per_rank)
                schedule = interleaved(at)
                assert check(at, schedule) == (), (ranks, stages_per_rank, microbatches)
                expected = dict.fromkeys((Kind.F, Kind.B), stages_per_rank * microbatches)
                assert all(Counter(op.kind for op in row) == expected for row in schedule.ops)


def test_zb_v_exists_for_every_shape() -> None:
    for ranks in range(1, 7):
        for microbatches in range(1, 20):
            at = problem(ranks, microbatches, "v")
            schedule = zb_v(at)
            assert check(at, schedule) == (), (ranks, microbatches)
            expected = dict.fromkeys((Kind.F, Kind.I, Kind.W), 2 * microbatches)
            assert all(Counter(op.kind for op in row) == expected for row in schedule.ops)


@given(
    ranks=st.integers(1, 4),
    microbatches=st.integers(1, 6),
    shape=st.sampled_from(["linear", "loop", "v", "wave", "list"]),
    order=st.permutations(range(4)),
)
def test_gpipe_exists_on_every_one_direction_placement(
    ranks: int, microbatches: int, shape: str, order: list[int]
) -> None:
    if shape == "list":
        at = problem(4, microbatches, [*order, order[1], order[0]])
    else:
        at = problem(ranks, microbatches, shape, {"loop": 3, "v": 2, "wave": 4}.get(shape))
    assert check(at, gpipe(at)) == ()


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_gpipe_formula(ranks: int, microbatches: int) -> None:
    at = problem(ranks, microbatches)
    timeline = simulate(at, gpipe(at))
    assert timeline.makespan == (microbatches + ranks - 1) * (F + I + W)
    assert timeline.bubble == pytest.approx((ranks - 1) / (microbatches + ranks - 1))
    assert timeline.peak_memory == (microbatches,) * ranks


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_one_f_one_b_formula(ranks: int, microbatches: int) -> None:
    at = problem(ranks, microbatches)
    timeline = simulate(at, one_f_one_b(at))
    assert timeline.makespan == (microbatches + ranks - 1) * (F + I + W)
    assert timeline.peak_memory == tuple(min(microbatches, ranks - rank) for rank in range(ranks))


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_split_one_f_one_b_is_between_its_bounds(ranks: int, microbatches: int) -> None:
    at = problem(ranks, microbatches)
    timeline = simulate(at, one_f_one_b_split(at))
    idle = timeline.makespan - microbatches * (F + I + W)
    assert (ranks - 1) * (F + I) <= idle <= (ranks - 1) * (F + I + W)
    assert timeline.peak_memory == tuple(min(microbatches, ranks - rank) for rank in range(ranks))


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_zb_h1_formula(ranks: int, microbatches: int) -> None:
    at = problem(ranks, microbatches)
    timeline = simulate(at, zb_h1(at))
    if microbatches >= ranks:
        assert timeline.makespan == microbatches * (F + I + W) + (ranks - 1) * (F + I - W)
    assert timeline.peak_memory == (min(microbatches, ranks),) * ranks


def test_hand_made_zero_bubble_formulas_need_a_w_no_longer_than_f_and_i() -> None:
    for forward, backward, weight in ((4, 6, 5), (8, 3, 6)):
        at = problem(4, 12, costs=(forward, backward, weight))
        work = 12 * (forward + backward + weight)
        assert simulate(at, zb_h1(at)).makespan > work + 3 * (forward + backward - weight)
        assert simulate(at, zb_h2(at)).span > work + 3 * (forward + backward - 2 * weight)
    for name in ("ZB-H1", "ZB-H2"):
        assert "W is no longer than F and I" in find_method(name).bubble


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_zb_h2_formula(ranks: int, microbatches: int) -> None:
    at = problem(ranks, microbatches)
    timeline = simulate(at, zb_h2(at))
    if microbatches >= 2 * ranks:
        assert timeline.span == microbatches * (F + I + W) + (ranks - 1) * (F + I - 2 * W)
    if microbatches == ranks:
        assert timeline.span == microbatches * (F + I + W) + (ranks - 1) * (F + I - W)
    assert timeline.peak_memory == (min(microbatches, 2 * ranks - 1),) * ranks


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_zb_v_formula(ranks: int, microbatches: int) -> None:
    at = problem(ranks, microbatches, "v", costs=(5, 5, 5))
    timeline = simulate(at, zb_v(at))
    assert max(timeline.peak_memory) <= 2 * min(microbatches, ranks)
    if microbatches >= 2 * ranks - 1:
        assert timeline.span == microbatches * 2 * 15
        assert timeline.peak_memory == (2 * ranks,) * ranks
    if microbatches == ranks:
        assert timeline.span == microbatches * 2 * 15 + 2 * (ranks - 1) * 5


@pytest.mark.parametrize("stages_per_rank", [2, 3, 4])
@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_interleaved_formula(ranks: int, microbatches: int, stages_per_rank: int) -> None:
    at = problem(ranks, microbatches, "loop", stages_per_rank)
    timeline = simulate(at, interleaved(at))
    work = microbatches * stages_per_rank
    if microbatches >= ranks:
        assert timeline.makespan == (work + ranks - 1) * (F + I + W)
    largest = -(-microbatches // max(1, microbatches // ranks))
    assert timeline.peak_memory[0] == min(work, (stages_per_rank - 1) * largest + 2 * ranks - 1)


def test_interleaved_with_one_stage_a_rank_is_one_f_one_b() -> None:
    at = problem(4, 9, "loop", 1)
    assert interleaved(at) == one_f_one_b(at)


def test_split_one_f_one_b_known_values() -> None:
    """Makespans at the 1.5B row's prices, in units of 100 us."""
    for ranks, microbatches, makespan in ((4, 8, 4806), (8, 24, 13662), (16, 48, 27702)):
        at = problem(ranks, microbatches, costs=(185, 181, 93), latency=6)
        assert simulate(at, one_f_one_b_split(at)).makespan == makespan


@pytest.mark.parametrize(
    ("build", "name", "needs"),
    [
        (one_f_one_b, "1F1B", "linear"),
        (one_f_one_b_split, "1F1B-split", "linear"),
        (zb_h1, "ZB-H1", "linear"),
        (zb_h2, "ZB-H2", "linear"),
        (interleaved, "Interleaved1F1B", "loop"),
        (zb_v, "ZB-V", "v"),
    ],
)
def test_wrong_placement_is_refused_with_the_right_one(build: Build, name: str, needs: str) -> None:
    at = problem(3, 4, "v" if needs != "v" else "linear")
    with pytest.raises(InputError, match=f"{name} needs placement '{needs}'.*set pipeline.placement = \"{needs}\""):
        build(at)
    with pytest.raises(InputError, match=f"{name} needs placement '{needs}'"):
        build(problem(2, 4, [0, 1, 1]))


def test_gpipe_refuses_two_directions() -> None:
    with pytest.raises(InputError, match=r"GPipe needs a placement with one direction.*'bidirectional'"):
        gpipe(problem(2, 4, "bidirectional"))


def test_sizes_are_the_callers() -> None:
    at = Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 4, "microbatch_sizes": [1, 2, 4]},
            "costs": {key: {"fixed": 1, "per_sample": 1} for key in ("forward", "backward_input", "backward_weight")},
        }
    )
    assert one_f_one_b(at).sizes == (1, 1, 1, 1)
    assert one_f_one_b(at, (1, 2, 1)).sizes == (1, 2, 1)
