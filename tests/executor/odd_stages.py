"""Modules that users write and runtimes stumble over, from (samples, 4, 8) to the same shape, to put in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from .stage_sets import Cut, Scale, Shared

D = 8


class Piece(nn.Module):
    """Two layers, and a function of both."""

    def __init__(self, function: Callable[[nn.Linear, nn.Linear, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.function = nn.Linear(D, D), nn.Linear(D, D), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.a, self.b, x)


def changed_in_place(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    y = F.relu(a(x), inplace=True)
    z: Tensor = b(y)
    z.mul_(0.5).add_(x)
    return F.leaky_relu_(z)


def used_twice(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    return b(torch.tanh(a(torch.tanh(a(x))))) + b(x)  # type: ignore[no-any-return]  # modules return Any


def used_by_hand(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    """The weight of a layer that is also called, and of one that is not."""
    return F.linear(a(x), a.weight) + x @ b.weight.t() + b.bias


def view_of_a_layer(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    return b(a(x).transpose(0, 1)).transpose(0, 1)[:, :, :]  # type: ignore[no-any-return]


def view_of_the_input(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    return x.flatten(0, 1).view(x.shape)


def the_input_itself(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    return x


def expanded(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    mean = a(x[:, :1].expand(-1, 4, -1)) + b(x.mean((0, 1)))  # one with a stride of 0, one with a single dimension
    return torch.tanh(mean) + x


def constant_input(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    return x * torch.sigmoid(a(torch.ones(D))) + b(x.detach())  # type: ignore[no-any-return]


def routed(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    """A mixture of experts, of which one may get no token."""
    tokens = x.flatten(0, 1)
    first, nobody = tokens[:, 0] > 0, tokens[:, 0] > 1e9
    y = torch.zeros_like(tokens)
    y = y.index_put((first.nonzero()[:, 0],), a(tokens[first])).index_put(
        (~first).nonzero().unbind(1), b(tokens[~first])
    )
    return (y + b(tokens[nobody]).sum()).view(x.shape) + x  # type: ignore[no-any-return]


def double_inside(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    return a(F.linear(x.double(), b.weight.double()).to(x.dtype)) + x  # type: ignore[no-any-return]


def without_history(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    with torch.no_grad():
        gate = torch.sigmoid(a(x))
    return a(x) * gate + x  # type: ignore[no-any-return]


def some_recomputed(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    y = checkpoint(lambda x: torch.tanh(b(torch.relu(a(x)))), x, use_reentrant=False)
    return y + checkpoint(lambda x: b(x), a(x), use_reentrant=True)  # type: ignore[no-any-return]


def gradient_inside(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    """A force: the gradient of an energy, which is differentiated again."""
    y = a(x)
    energy = torch.sin(b(y)).sum()
    (force,) = torch.autograd.grad(energy, y, create_graph=True)
    return x + force  # type: ignore[no-any-return]


class Norms(nn.Module):
    """Old and new ways to normalise a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.new = parametrizations.weight_norm(nn.Linear(D, D))
        self.orthogonal = parametrizations.orthogonal(nn.Linear(D, D))
        self.old: nn.Module = nn.utils.weight_norm(nn.Linear(D, D))
        self.batch = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.old(torch.tanh(self.batch(self.new(x)))) + self.orthogonal(x)  # type: ignore[no-any-return]


class PartlyFrozen(nn.Module):
    """A frozen weight, a frozen bias, a layer without a use."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias, self.idle = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.weight.weight.requires_grad_(False)
        self.bias.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.bias(torch.tanh(self.weight(x)))  # type: ignore[no-any-return]


def triple(module: nn.Module, after: Any) -> tuple[Tensor]:
    return (after[0] * 3,)


class Hooked(nn.Module):
    """Hooks that change a weight's gradient, a module's, and its output."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(D, D), nn.Linear(D, D)
        self.a.weight.register_hook(lambda gradient: gradient * 2)  # type: ignore[no-untyped-call]  # torch's
        self.b.register_full_backward_pre_hook(triple)
        self.b.register_forward_hook(lambda module, inputs, output: output + 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x)))  # type: ignore[no-any-return]


FUNCTIONS = (
    changed_in_place,
    used_twice,
    used_by_hand,
    view_of_a_layer,
    view_of_the_input,
    the_input_itself,
    expanded,
    constant_input,
    routed,
    double_inside,
    without_history,
    some_recomputed,
    gradient_inside,
)
CLASSES: tuple[Callable[[], nn.Module], ...] = (Shared, Cut, Scale, Norms, PartlyFrozen, Hooked, nn.Tanh)

ODD: dict[str, Callable[[], nn.Module]] = {
    **{function.__name__: lambda function=function: Piece(function) for function in FUNCTIONS},  # type: ignore[misc]
    **{kind.__name__: kind for kind in CLASSES},
}


def odd_stages(names: str) -> list[nn.Module]:
    """Stages of a text such as "Cut+routed|used_twice"."""
    torch.manual_seed(8)
    return [nn.Sequential(*(ODD[name]() for name in stage.split("+"))) for stage in names.split("|")]
