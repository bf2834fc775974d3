"""Stages made of all that a user may put into one, and their gradients through the queue and by plain autograd."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from adaptpipe.executor.weights import WeightQueue

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
