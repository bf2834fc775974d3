"""Gradients through the queue equal those of plain autograd, whatever the stage is made of."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from adaptpipe.executor.errors import WeightQueueError
from adaptpipe.executor.weights import WeightQueue, coverage, install

D = 8


class Block(nn.Module):
    """A transformer block as GPTs have it: fused q, k, v, split by chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.fc1, self.fc2 = nn.Linear(D, 4 * D, bias=False), nn.Linear(4 * D, D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).flatten(-2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))  # type: ignore[no-any-return]  # modules return Any


class Halves(nn.Module):
    """A layer whose output is cut in two halves of one shape that go different ways."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.a, self.b = nn.Linear(D, 2 * D), nn.Linear(D, 3), nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        u, v = self.layer(x).chunk(2, -1)
        return self.a(u) * 2 + self.b(v)  # type: ignore[no-any-return]


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3, groups=2), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.conv(x)), inplace=True).mean((-1, -2)))  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(D, 2, batch_first=True), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x, need_weights=False)[0])  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(D, 6, batch_first=True), nn.Linear(6, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])  # type: ignore[no-any-return]


class Tied(nn.Module):
    """The embedding's weight is the head's."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, D, sparse=sparse)
        self.head = nn.Linear(D, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embedding(tokens)))  # type: ignore[no-any-return]


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.unused = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x)))  # type: ignore[no-any-return]


class OwnFunction(torch.autograd.Function):
    """A user's fused layer that puts its weight gradient where it belongs by itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        x, weight = ctx.saved_tensors
        (gy,) = gradients
        gradient = x.flatten(0, -2).t() @ gy.flatten(0, -2)
        weight.grad = gradient if weight.grad is None else weight.grad + gradient
        return gy @ weight.t(), None


class UsersOwn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(D, D)), nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(OwnFunction.apply(x, self.weight))  # type: ignore[no-any-return, no-untyped-call]


class Functional(nn.Module):
    """Uses a layer's weight without calling the layer, and calls it too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.layer(x), self.layer.weight) + x @ self.layer.weight


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.block, self.reentrant = nn.Linear(D, D), Block(), reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, self.first(x), use_reentrant=self.reentrant)  # type: ignore[no-any-return]


class Views(nn.Module):
    """Inputs that are views, transposed or expanded; a gradient that is expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(D, D), nn.Linear(5, 5), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(self.a(x).transpose(1, 2))[..., 1:].transpose(1, 2)
        z = self.c(y[..., :4]) + self.c(y[:1, :1, 4:].expand(3, 4, 4))
        return z.sum((1, 2))  # type: ignore[no-any-return]


class InnerGradient(nn.Module):
    """Takes gradients inside its own forward, as models of forces do; they are not for `.grad`."""

    def __init__(self, differentiable: bool) -> None:
        super().__init__()
        self.layer, self.head, self.differentiable = nn.Linear(D, D), nn.Linear(D, 1), differentiable

    def forward(self, x: Tensor) -> Tensor:
        energy = self.head(torch.tanh(self.layer(x)))
        (force,) = torch.autograd.grad(energy.sum(), x, create_graph=self.differentiable, retain_graph=True)
        (slope,) = torch.autograd.grad(energy.sum(), self.layer.weight, retain_graph=True)
        return force.pow(2).sum() + energy.sum() + slope.sum()  # type: ignore[no-any-return]


class Several(nn.Module):
    """Outputs of which the next stage uses only some."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.used(x), self.unused(x)
        return y  # type: ignore[no-any-return]


def frozen(weights: bool) -> nn.Module:
    stage = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D), nn.Linear(D, D))
    for parameter in stage[2].parameters() if weights else [stage[2].bias]:
        assert isinstance(parameter, nn.Parameter)
        parameter.requires_grad_(False)
    return stage


def normed(parametrised: bool) -> nn.Module:
    layer = nn.Linear(D, D)
    old: Callable[[nn.Module], nn.Module] = nn.utils.weight_norm
    return nn.Sequential(nn.utils.parametrizations.weight_norm(layer) if parametrised else old(layer), nn.Linear(D, D))


def triple(module: nn.Module, before: Any, after: Any) -> tuple[Tensor]:
    return (before[0] * 3,)


def hooked() -> nn.Module:
    stage = nn.Sequential(nn.Linear(D, D), nn.Linear(D, D))
    stage[0].weight.register_hook(lambda grad: grad * 2)  # type: ignore[operator]  # a Linear has a weight
    stage[1].register_full_backward_hook(triple)
    stage[1].register_forward_hook(lambda module, inputs, output: output + 1)
    return stage


def transposed() -> nn.Module:
    layer = nn.Linear(D, D)
    layer.weight = nn.Parameter(torch.randn(D, D).t())
    return layer


def conv1d() -> nn.Module:
    """Layers of transformers' GPT-2, which store their weights as (in, out)."""
    layer = import_module("transformers.pytorch_utils").Conv1D
    return nn.Sequential(layer(16, D), nn.ReLU(inplace=True), layer(3, 16))


def tokens(seed: int) -> Tensor:
    return torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(seed))


def noise(*shape: int) -> Callable[[int], Tensor]:
    def make(seed: int) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()

    return make


STAGES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(D, 16), nn.ReLU(inplace=True), nn.Linear(16, 3)), noise(4, D)),
    "mlp, 1-D input": (lambda: nn.Sequential(nn.Linear(D, 16), nn.ReLU(inplace=True), nn.Linear(16, 3)), noise(D)),
    "mlp, 3-D": (lambda: nn.Sequential(nn.Linear(D, 16), nn.ReLU(inplace=True), nn.Linear(16, 3)), noise(2, 3, D)),
    "mlp, 5-D": (lambda: nn.Sequential(nn.Linear(D, D), nn.Linear(D, 1, bias=False)), noise(2, 1, 3, 2, D)),
    "empty batch": (lambda: nn.Linear(D, D), noise(0, 3, D)),
    "first stage": (lambda: nn.Linear(D, D), lambda seed: noise(3, D)(seed).detach()),
    "block": (lambda: nn.Sequential(Block(), Block()), noise(2, 5, D)),
    "halves": (Halves, noise(4, D)),
    "convolutions": (Convolutions, noise(3, 2, 6, 6)),
    "attention": (Attention, noise(2, 5, D)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(D, 2, 16, dropout=0.0, batch_first=True), noise(2, 5, D)),
    "lstm": (Recurrent, noise(2, 5, D)),
    "tied": (Tied, tokens),
    "tied, sparse": (lambda: Tied(sparse=True), tokens),
    "twice": (Twice, noise(4, D)),
    "frozen layer": (lambda: frozen(weights=True), noise(4, D)),
    "frozen bias": (lambda: frozen(weights=False), noise(4, D)),
    "user's function": (UsersOwn, noise(2, 3, D)),
    "functional": (Functional, noise(2, 3, D)),
    "norm only": (lambda: nn.Sequential(nn.LayerNorm(D), nn.ReLU()), noise(2, 3, D)),
    "no parameters": (nn.ReLU, noise(2, 3, D)),
    "checkpoint": (lambda: Checkpointed(reentrant=False), noise(2, 5, D)),
    "reentrant checkpoint": (lambda: Checkpointed(reentrant=True), noise(2, 5, D)),
    "views": (Views, noise(3, 5, D)),
    "forces": (lambda: InnerGradient(differentiable=True), noise(3, D)),
    "saliency": (lambda: InnerGradient(differentiable=False), noise(3, D)),
    "unused output": (Several, noise(3, D)),
    "weight norm": (lambda: normed(parametrised=True), noise(3, D)),
    "old weight norm": (lambda: normed(parametrised=False), noise(3, D)),
    "hooks": (hooked, noise(2, 3, D)),
    "transposed weight": (transposed, noise(2, 3, D)),
    "Conv1D": (conv1d, noise(2, 3, D)),
    "Conv1D, 1-D input": (conv1d, noise(D)),
}


def twins(name: str) -> tuple[nn.Module, nn.Module]:
    """Make the stage twice; a deep copy would lose the hooks of tensors."""
    stages = []
    for _ in range(2):
        torch.manual_seed(0)
        stages.append(STAGES[name][0]())
    return stages[0], stages[1]


def backward(output: Tensor) -> None:
    torch.autograd.backward(output, torch.cos(output.detach()))


def plain(stage: nn.Module, inputs: list[Tensor], autocast: bool = False) -> None:
    for x in inputs:
        with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
            y = stage(x)
        backward(y)


def split(queue: WeightQueue, stage: nn.Module, inputs: list[Tensor], autocast: bool = False) -> None:
    """All F, then all I, then all W: the longest way a gradient can wait."""
    outputs = []
    for j, x in enumerate(inputs):
        with queue.bind(j), torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
            outputs.append(stage(x))
    for j, output in enumerate(outputs):
        with queue.bind(j):
            backward(output)
    for j in range(len(inputs)):
        queue.run(j)
    queue.assert_empty()


def assert_same(
    stage: nn.Module, reference: nn.Module, xs: list[Tensor], ys: list[Tensor], rtol: float, atol: float
) -> None:
    ours, theirs = (
        {**dict(module.named_parameters()), **{f"input {j}": x for j, x in enumerate(inputs)}}
        for module, inputs in ((stage, xs), (reference, ys))
    )
    for name, tensor in ours.items():
        a, b = tensor.grad, theirs[name].grad
        assert (a is None) == (b is None), name
        if a is not None and b is not None:
            assert a.is_contiguous() == b.is_contiguous(), name
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol, msg=f"{name}: {a} is not {b}")


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
