"""One stage by itself: what it keeps, what it counts, and where gradients stop."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from adaptpipe.executor.channels.message import Message
from adaptpipe.executor.stages.runner import StageRunner, detached
from adaptpipe.executor.weights.activations import Storages, count_saved


@pytest.fixture
def linear() -> Iterator[tuple[StageRunner, nn.Linear]]:
    torch.manual_seed(0)
    layer = nn.Linear(4, 4, bias=False)
    runner = StageRunner(1, nn.Sequential(layer, nn.Tanh()), None)
    yield runner, layer
    runner.close()


def forward(runner: StageRunner, *inputs: Tensor | None, split: bool = True, is_batch: bool = False) -> Message:
    return detached(runner.forward(0, inputs, target=None, weight=1.0, split=split, is_batch=is_batch))


def grad_of(layer: nn.Linear) -> Tensor | None:
    return layer.weight.grad


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape).requires_grad_()


def test_bytes_after_each_op(linear: tuple[StageRunner, nn.Linear]) -> None:
    runner, layer = linear
    forward(runner, leaf(2, 4))
    assert runner.held_by(0) == 2 * 2 * 4 * 4  # the input, and tanh's output; not the weight
    runner.backward(0, (torch.ones(2, 4),), split=True)
    assert grad_of(layer) is None
    assert runner.held_by(0) == 2 * 2 * 4 * 4  # the input, and the gradient of the layer's output
    runner.weights(0)
    assert grad_of(layer) is not None
    assert runner.held_bytes == 0
    runner.assert_done()


def test_bytes_are_counted_anew_for_another_shape(linear: tuple[StageRunner, nn.Linear]) -> None:
    runner, _ = linear
    for rows in (2, 5, 2):
        forward(runner, leaf(rows, 4), split=False)
        assert runner.held_by(0) == 2 * rows * 4 * 4
        runner.backward(0, (torch.ones(rows, 4),), split=False)
        assert runner.held_bytes == 0


def test_bytes_are_counted_anew_when_other_parameters_train() -> None:
    runner = StageRunner(1, nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 4)), None)
    held = []
    for trains in (False, True):
        runner.module.requires_grad_(trains)
        runner.begin([0], lambda stage: None)
        forward(runner, torch.randn(2, 4), split=False, is_batch=True)
        held.append(runner.held_by(0))
        runner.backward(0, (torch.ones(2, 4),), split=False)
    runner.close()
    assert held == [0, 2 * 4 * 4]


def test_rows_of_the_batch_do_not_count(linear: tuple[StageRunner, nn.Linear]) -> None:
    runner, _ = linear
    forward(runner, torch.randn(100, 4)[:2], is_batch=True)
    assert runner.held_by(0) == 2 * 4 * 4


def test_rows_of_the_target_do_not_count() -> None:
    """The loss of one sample may keep a view, which holds the target of the whole batch."""
    runner = StageRunner(0, nn.Identity(), lambda output, target: (output * target["y"][0]).mean())
    whole = torch.randn(100, 4)
    runner.forward(0, (leaf(2, 4),), target={"y": (whole[:2],)}, weight=1.0, split=True, is_batch=False)
    assert runner.held_by(0) == 2 * 4 * 4  # the input; not the target, of which the product's gradient is made
    runner.close()


def test_the_output_is_freed_when_nothing_needs_it() -> None:
    """The graph is held by its edges: the last addition's result is not needed for the backward."""
    runner = StageRunner(0, nn.Linear(4, 4, bias=False), None)
    x = leaf(2, 4)
    for split in (True, False):
        made = runner.forward(0, (x,), target=None, weight=1.0, split=split, is_batch=False)
        assert made[0] is not None
        gone = weakref.ref(made[0])
        del made
        assert gone() is None
        (gradient,) = runner.backward(0, (torch.ones(2, 4),), split=split)
        assert gradient is not None
    runner.weights(0)
    runner.close()


def test_inputs_that_pass_through_or_are_not_used() -> None:
    class Through(nn.Module):
        def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return x, x * 2, y.view(-1)

    runner = StageRunner(0, Through(), None)
    x, y, z = leaf(3), leaf(2, 2), leaf(1)
    made = forward(runner, x, y, z)
    assert [None if part is None else part.requires_grad for part in made] == [True, True, True]
    gx, gy, gz = runner.backward(0, (torch.ones(3), torch.ones(3), None), split=True)
    assert gx is not None
    assert gx.tolist() == [3.0, 3.0, 3.0]
    assert gy is None
    assert gz is None


def test_nothing_to_do_where_no_gradient_flows() -> None:
    runner = StageRunner(0, nn.Linear(4, 4).requires_grad_(False), None)
    (made,) = forward(runner, torch.randn(2, 4))
    assert made is not None
    assert not made.requires_grad
    assert runner.backward(0, (None,), split=True) == (None,)
    runner.weights(0)
    runner.assert_done()


def test_checkpointed_layers_run_their_forward_twice_and_no_more() -> None:
    """The split backward recomputed the stage again for W: pytorch/pytorch#136766."""
    calls = []

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def part(self, x: Tensor) -> Tensor:
            calls.append(1)
            return torch.relu(self.layer(torch.tanh(x)))

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.part, x, use_reentrant=False)  # type: ignore[no-any-return]  # modules return Any

    module = Checkpointed()
    runner = StageRunner(0, module, None)
    x = leaf(2, 4)
    wanted = torch.autograd.grad(module(x).sum(), list(module.parameters()))
    for split in (True, False):
        calls.clear()
        module.zero_grad()
        forward(runner, x, split=split)
        assert runner.held_by(0) == 2 * 4 * 4  # the input alone
        runner.backward(0, (torch.ones(2, 4),), split=split)
        runner.weights(0)
        assert len(calls) == 2
        for parameter, gradient in zip(module.parameters(), wanted, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)
    runner.close()


def test_a_change_in_place_is_noticed_while_bytes_are_counted() -> None:
    x = leaf(3)
    with count_saved(Storages()):
        y = x.exp()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(y, torch.ones(3))


def test_counting_keeps_nothing_alive() -> None:
    with count_saved(Storages()):
        y = leaf(3).exp()
    gone = weakref.ref(y)
    del y
    assert gone() is None


def test_storages_count_once_and_not_the_ignored() -> None:
    weight, x = torch.zeros(8), torch.zeros(4)
    storages = Storages([weight])
    for tensor in (weight[:2], x, x[1:], torch.zeros(0), torch.zeros(2, 2).to_sparse()):
        storages.add(tensor)
    assert storages.nbytes() == 16


def test_a_failed_step_leaves_nothing(linear: tuple[StageRunner, nn.Linear]) -> None:
    runner, _ = linear
    forward(runner, leaf(2, 4))
    runner.clear()
    assert runner.held_bytes == 0
    runner.assert_done()
