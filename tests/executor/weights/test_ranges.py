"""Weight gradients cut into units: the same gradients in whatever order the units run, and memory freed on the way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adaptpipe.executor.errors import WeightQueueError
from adaptpipe.executor.weights import WeightQueue, install

from .stages import STAGES, D, Twice, assert_same, backward, noise, plain, twins

Range = tuple[int, int]


def ranges_of(units: int, draw: random.Random) -> list[Range]:
    """Cut into ranges, in a random order."""
    cuts = sorted({0, units, *(draw.randint(0, units) for _ in range(3))})
    ranges = list(pairwise(cuts))
    draw.shuffle(ranges)
    return ranges


def split_and_cut(
    queue: WeightQueue, stage: nn.Module, xs: list[Tensor], times: Sequence[int], draw: random.Random
) -> None:
    """All F, then I's and ranges of W in a random order, each micro-batch cut in its own way."""
    outputs = []
    for j, x in enumerate(xs):
        with queue.bind(j):
            outputs.append(stage(x))
    waiting: list[tuple[int, Range]] = []
    for j, output in enumerate(outputs):
        with queue.bind(j):
            backward(output)
        waiting += [(j, units) for units in ranges_of(len(times), draw)]
        draw.shuffle(waiting)
        for _ in range(draw.randint(0, len(waiting))):
            microbatch, units = waiting.pop()
            queue.run(microbatch, units, times)
    for microbatch, units in waiting:
        queue.run(microbatch, units, times)
    queue.assert_empty()


def times_of(draw: random.Random) -> list[int]:
    return [draw.randint(0, 5) for _ in range(draw.randint(1, 9))]


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("name", STAGES)
def test_gradients_equal_plain_autograd(name: str) -> None:
    stage, reference = twins(name)
    data, draw = STAGES[name][1], random.Random(name)
    for step in range(3):  # gradients add up over steps
        xs, ys = ([data(3 * step + j) for j in range(3)] for _ in range(2))
        with install(stage) as queue:
            split_and_cut(queue, stage, xs, times_of(draw), draw)
            assert queue.pending_bytes() == 0
            assert all(queue.held_by(j) == 0 for j in range(3))
        plain(reference, ys)
        assert_same(stage, reference, xs, ys, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["block", "tied", "twice", "checkpoint", "functional"])
def test_gradients_under_autocast(name: str) -> None:
    stage, reference = twins(name)
    data, draw = STAGES[name][1], random.Random(name)
    xs, ys = ([data(0), data(1)] for _ in range(2))
    with install(stage) as queue, torch.autocast("cpu", torch.bfloat16):
        split_and_cut(queue, stage, xs, times_of(draw), draw)
    plain(reference, ys, autocast=True)
    assert {p.grad.dtype for p in stage.parameters() if p.grad is not None} == {torch.float32}
    assert_same(stage, reference, xs, ys, rtol=0.02, atol=0.02)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_any_ranges_of_a_deep_stage(times: list[int], draw: random.Random) -> None:
    stage, reference = deep(), deep()
    xs, ys = ([noise(2, D)(j) for j in range(2)] for _ in range(2))
    with install(stage) as queue:
        split_and_cut(queue, stage, xs, times, draw)
    plain(reference, ys)
    assert_same(stage, reference, xs, ys, rtol=1e-5, atol=1e-6)


def deep(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(*(layer for _ in range(9) for layer in (nn.Linear(D, D), nn.Tanh())))


def ready(stage: nn.Module, queue: WeightQueue, x: Tensor) -> None:
    with queue.bind(0):
        backward(stage(x))


@pytest.mark.parametrize("units", [1, 4, 7, 9, 10, 50, 100])
def test_units_in_any_order_give_the_bits_of_the_whole(units: int) -> None:
    found = []
    for ranges in ([(0, units)], [(u, u + 1) for u in range(units)], [(u, u + 1) for u in reversed(range(units))]):
        stage = deep()
        with install(stage) as queue:
            ready(stage, queue, noise(3, D)(0))
            for part in ranges:
                queue.run(0, part, (1,) * units)
            queue.assert_empty()
        found.append([p.grad for p in stage.parameters()])
    for others in found[1:]:
        for wanted, got in zip(found[0], others, strict=True):
            assert wanted is not None
            assert got is not None
            assert torch.equal(wanted, got)


def test_rows_that_have_not_been_computed_are_zero_and_added_to_what_is_there() -> None:
    layer = nn.Linear(1, 4, bias=False)
    with install(layer) as queue:
        for before in (0.0, 2.0):
            ready(layer, queue, torch.ones(1, 1))
            gy = torch.cos(layer.weight.detach())
            queue.run(0, (1, 2), (1, 1))
            assert layer.weight.grad is not None
            torch.testing.assert_close(layer.weight.grad, torch.tensor([0.0, 0.0, 1.0, 1.0])[:, None] * gy + before)
            queue.run(0, (0, 1), (1, 1))
            torch.testing.assert_close(layer.weight.grad, gy + before)
            layer.weight.grad.fill_(2.0)


def test_each_unit_frees_what_no_other_needs() -> None:
    stage = nn.Sequential(nn.Linear(D, D, bias=False), nn.Tanh(), nn.Linear(D, D, bias=False))
    one = 4 * 3 * D
    for order, held in (((0, 1, 2, 3), (4, 2, 2, 0)), ((3, 0, 2, 1), (4, 4, 2, 0)), ((2, 3, 1, 0), (4, 2, 2, 0))):
        with install(stage) as queue:
            ready(stage, queue, noise(3, D)(0))
            assert queue.held_by(0) == 4 * one
            for unit, wanted in zip(order, held, strict=True):
                queue.run(0, (unit, unit + 1), (1, 1, 1, 1))
                assert queue.held_by(0) == queue.pending_bytes() == wanted * one
            assert queue.groups() == (2 * 3 * D * D,) * 2


def test_groups_share_no_tensor() -> None:
    class Parallel(nn.Module):
        """Two layers read one input, as separate queries and keys do."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(D, D, bias=False) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(self.a(x))
            return torch.sin(self.b(y)) * torch.cos(self.c(y))

    stage = Parallel()
    with install(stage) as queue:
        assert queue.groups() == ()
        ready(stage, queue, noise(3, D)(0))
        queue.run(0)
        assert queue.groups() == (2 * 2 * 3 * D * D, 2 * 3 * D * D)


def test_units_that_did_not_run_are_named() -> None:
    stage = Twice()
    with install(stage, stage=3) as queue:
        ready(stage, queue, noise(3, D)(0))
        queue.run(0, (1, 2), (1, 1, 1))
        text = (
            r"^stage 3, micro-batch 0: 2 weight gradients were never computed \(layer.weight\); of its units 0, 2 did"
        )
        with pytest.raises(WeightQueueError, match=text):
            queue.assert_empty()
        queue.clear()
        queue.assert_empty()


@pytest.mark.parametrize("units", [(0, 1), (0, 2), (1, 4)])
def test_a_unit_runs_once(units: Range) -> None:
    stage = nn.Sequential(nn.Linear(D, D), nn.Linear(D, D))
    with install(stage) as queue:
        ready(stage, queue, noise(3, D)(0))
        queue.run(0, (0, 1), (1, 1, 1))
        with pytest.raises(AssertionError, match="runs twice, or is beyond the last"):
            queue.run(0, units, (1, 1, 1))


def test_a_tensor_changed_between_two_ranges_is_noticed() -> None:
    layer = nn.Linear(D, D)
    with install(layer) as queue:
        ready(layer, queue, noise(3, D)(0))
        queue.run(0, (0, 1), (1, 1))
        with torch.no_grad():
            layer.weight.add_(1)
        with pytest.raises(RuntimeError, match=r"micro-batch 0, weight: .* modified by an inplace operation"):
            queue.run(0, (1, 2), (1, 1))
