"""Gradients through the queue equal those of plain autograd, whatever the stage is made of."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adaptpipe.executor.errors import WeightQueueError
from adaptpipe.executor.weights import coverage, install

from .stages import (
    STAGES,
    Block,
    D,
    Tied,
    assert_same,
    backward,
    conv1d,
    frozen,
    noise,
    normed,
    plain,
    split,
    twins,
)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("name", STAGES)
def test_gradients_equal_plain_autograd(name: str, steps: int) -> None:
    stage, reference = twins(name)
    data = STAGES[name][1]
    for step in range(steps):  # gradients add up over steps
        xs, ys = ([data(3 * step + j) for j in range(3)] for _ in range(2))
        with install(stage) as queue:
            split(queue, stage, xs)
            assert queue.pending_bytes() == 0
        plain(reference, ys)
        assert_same(stage, reference, xs, ys, rtol=1e-5, atol=1e-5)


def test_gradients_of_float64_equal_closely() -> None:
    stage = Block().double()
    reference = copy.deepcopy(stage)
    xs, ys = ([noise(2, 5, D)(0).detach().double().requires_grad_()] for _ in range(2))
    with install(stage) as queue:
        split(queue, stage, xs)
    plain(reference, ys)
    assert_same(stage, reference, xs, ys, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["mlp, 3-D", "block", "halves", "tied", "twice", "checkpoint", "functional"])
def test_autocast_gives_the_same_gradients(name: str) -> None:
    stage, reference = twins(name)
    data = STAGES[name][1]
    xs, ys = ([data(0), data(1)] for _ in range(2))
    with install(stage) as queue:
        split(queue, stage, xs, autocast=True)
    plain(reference, ys, autocast=True)
    assert {p.grad.dtype for p in stage.parameters() if p.grad is not None} == {torch.float32}
    assert_same(stage, reference, xs, ys, rtol=0.02, atol=0.02)


def test_autocast_keeps_the_history_of_a_weight_it_caches() -> None:
    layer = nn.Linear(D, D, bias=False)
    x = noise(2, D)(0)
    with install(layer) as queue:
        with queue.bind(0), torch.autocast("cpu", torch.bfloat16):
            y = layer(x) + F.linear(x, layer.weight)
        torch.autograd.backward(y, torch.ones(2, D))
        assert layer.weight.grad is not None
        once = layer.weight.grad.clone()
        queue.run(0)
    torch.testing.assert_close(layer.weight.grad, 2 * once)


def having_gradients(stage: nn.Module) -> set[str]:
    return {name for name, parameter in stage.named_parameters() if parameter.grad is not None}


def test_work_is_left_to_the_queue_and_not_done_in_the_backward() -> None:
    stage = Block()
    with install(stage) as queue:
        with queue.bind(5):
            y = stage(noise(2, 5, D)(0))
        assert queue.entries(5) == ()
        backward(y)
        entries = queue.entries(5)
        assert [e.parameter for e in entries] == ["fc2.weight", "fc1.weight", "proj.weight", "qkv.weight"]
        assert [e.flops for e in entries] == [2 * 10 * D * D * k for k in (4, 4, 1, 3)]
        assert [e.nbytes for e in entries] == [4 * 10 * D * k for k in (5, 5, 2, 4)]
        assert having_gradients(stage).isdisjoint(e.parameter for e in entries)
        assert "qkv.bias" in having_gradients(stage)
        queue.run(5)
        assert having_gradients(stage) == set(dict(stage.named_parameters()))
        assert queue.entries(5) == ()


def test_shared_input_counts_once_and_is_freed_last() -> None:
    stage = nn.ModuleList([nn.Linear(D, 4, bias=False), nn.Linear(D, 4, bias=False)])
    x = noise(3, D)(0)
    with install(stage) as queue:
        with queue.bind(0):
            y, z = (layer(x) for layer in stage)
        torch.autograd.backward([y, z], [torch.ones(3, 4), torch.ones(3, 4)])
        assert queue.pending_bytes() == 4 * (3 * D + 2 * 3 * 4)
        queue.run(0)
        assert queue.pending_bytes() == 0


def test_run_releases_tensors_and_keeps_no_graph() -> None:
    layer = nn.Linear(D, D)
    with install(layer) as queue:
        with queue.bind(0):
            y = layer(noise(3, D)(0))
        backward(y)
        queue.run(0)
    assert layer.weight.grad is not None
    assert layer.weight.grad.grad_fn is None
    assert not layer.weight.grad.requires_grad


def test_a_schedule_that_forgets_w_is_told_so() -> None:
    layer = nn.Linear(D, D)
    with install(layer, stage=3) as queue:
        with queue.bind(7):
            y = layer(noise(3, D)(0))
        backward(y)
        with pytest.raises(WeightQueueError, match=r"stage 3, micro-batch 7: 1 weight gradients .*\(weight\)"):
            queue.assert_empty()
        queue.clear()
        queue.assert_empty()
        assert queue.pending_bytes() == 0


def test_w_with_nothing_to_do_does_nothing() -> None:
    stage = nn.LayerNorm(D)
    with install(stage) as queue:
        with queue.bind(0):
            y = stage(noise(3, D)(0))
        backward(y)
        queue.run(0)
        queue.run(99)
        queue.assert_empty()


@pytest.mark.parametrize("what", ["weight", "input", "output gradient"])
def test_a_tensor_changed_before_w_is_noticed(what: str) -> None:
    layer = nn.Linear(D, D)
    x, gradient = noise(3, D)(0), torch.ones(3, D)
    with install(layer) as queue:
        with queue.bind(0):
            y = layer(x)
        torch.autograd.backward(y, gradient)
        with torch.no_grad():
            {"weight": layer.weight, "input": x, "output gradient": gradient}[what].add_(1)
        with pytest.raises(RuntimeError, match=r"micro-batch 0, weight: .* modified by an inplace operation"):
            queue.run(0)


def test_a_weight_changed_before_i_is_noticed_as_by_autograd() -> None:
    layer = nn.Linear(D, D)
    with install(layer) as queue:
        with queue.bind(0):
            y = layer(noise(3, D)(0))
        with torch.no_grad():
            layer.weight.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            backward(y)


def test_without_a_queue_the_backward_is_fused() -> None:
    stage = Block()
    reference = copy.deepcopy(stage)
    xs, ys = [noise(2, 5, D)(0)], [noise(2, 5, D)(0)]
    with install(stage) as queue:
        plain(stage, xs)
        queue.assert_empty()
    plain(reference, ys)
    assert_same(stage, reference, xs, ys, rtol=0, atol=0)


def test_close_gives_the_modules_their_own_forward_back() -> None:
    stage = Block()
    before = {name: dict(module.__dict__) for name, module in stage.named_modules()}
    first, second = install(stage), install(stage)
    first.close()
    first.close()
    assert "forward" in stage.qkv.__dict__  # the second still needs it
    second.close()
    assert {name: dict(module.__dict__) for name, module in stage.named_modules()} == before


def test_copies_of_a_patched_module_are_on_their_own() -> None:
    layer = nn.Linear(D, D)
    x = noise(3, D)(0)
    with install(layer) as queue:
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            with torch.no_grad():
                other.weight.add_(1)
            torch.testing.assert_close(other(x), F.linear(x, other.weight, other.bias))
            with install(other) as own, own.bind(0):
                backward(other(x))
                assert len(own.entries(0)) == 1
                own.run(0)
            assert layer.weight.grad is None
        queue.assert_empty()


def test_one_layer_in_two_stages_goes_to_the_queue_of_each() -> None:
    layer = nn.Linear(D, D)
    with install(nn.Sequential(layer), stage=0) as first, install(nn.Sequential(layer), stage=1) as second:
        with first.bind(0):
            y = layer(noise(3, D)(0))
        with second.bind(0):
            z = layer(y)
        backward(z)
        assert (len(first.entries(0)), len(second.entries(0))) == (1, 1)


def test_evaluation_leaves_nothing_behind() -> None:
    stage = nn.TransformerEncoderLayer(D, 2, 16, batch_first=True).eval()
    x = noise(2, 5, D)(0).detach()
    with torch.no_grad():
        expected = stage(x)  # by torch's fast path
    with install(stage) as queue, queue.bind(0), torch.no_grad():
        torch.testing.assert_close(stage(x), expected, rtol=0, atol=0)
        queue.assert_empty()


def test_functorch_sees_a_plain_layer() -> None:
    layer = nn.Linear(D, D)
    x = noise(3, D)(0).detach()
    with install(layer) as queue, queue.bind(0):
        jacobian = torch.func.jacrev(layer)(x[0])
        torch.testing.assert_close(jacobian, layer.weight)
        queue.assert_empty()


@pytest.fixture
def wrapped() -> nn.Module:
    class DistributedDataParallel(nn.Module):  # stands for torch's, which needs a process group
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(D, D)

    return DistributedDataParallel()


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_coverage(wrapped: nn.Module) -> None:
    assert coverage(nn.Linear(D, D)) == D / (D + 1)
    assert coverage(Tied()) == 0.0
    assert coverage(nn.MultiheadAttention(D, 2)) == 0.0
    assert coverage(nn.ReLU()) == 1.0
    assert coverage(frozen(weights=True)) == D / (D + 1)
    assert coverage(normed(parametrised=False)) == pytest.approx(D * D / (2 * D * D + 3 * D))
    assert coverage(conv1d()) == (D * 16 + 16 * 3) / (D * 16 + 16 * 3 + 16 + 3)
    assert coverage(wrapped) == 0.0
    layer: Any = nn.Linear(D, D, bias=False)
    layer.forward = lambda input: input @ layer.weight
    assert coverage(layer) == 0.0


def test_wrong_width_and_dtype_are_named_as_by_torch() -> None:
    layer = nn.Linear(D, D)
    with install(layer) as queue, queue.bind(0):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            layer(torch.zeros(3, D + 1))
        with pytest.raises(RuntimeError, match="dtype"):
            layer(torch.zeros(3, D, dtype=torch.float64))


def test_compiled_stage_keeps_its_graph_whole() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    stage = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, 3))
    reference = copy.deepcopy(stage)
    xs, ys = [noise(3, D)(0)], [noise(3, D)(0)]
    with install(stage) as queue:
        compiled = torch.compile(stage, backend=backend)
        with queue.bind(0):
            backward(compiled(xs[0]))
        queue.assert_empty()
    assert len(graphs) == 1
    plain(reference, ys)
    assert_same(stage, reference, xs, ys, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True:UserWarning")
def test_a_backward_that_is_differentiated_does_not_wait() -> None:
    layer = nn.Linear(D, 1, bias=False)
    x = noise(3, D)(0)
    with install(layer) as queue, queue.bind(0):
        layer(x).pow(2).sum().backward(create_graph=True)
        queue.assert_empty()
    gradient = layer.weight.grad
    assert gradient is not None
    (curvature,) = torch.autograd.grad(gradient.sum(), layer.weight)
    torch.testing.assert_close(curvature, 2 * (x.t() @ x).sum(0, keepdim=True).detach())
