"""Models cut into stages, to run in a pipeline and whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from adaptpipe.models import GPTConfig, build_full, build_stage, next_byte_loss, split_layers


@dataclass(frozen=True)
class Model:
    """Stages, a batch with its target, and the loss."""

    stages: list[nn.Module]
    batch: object
    target: object
    loss_fn: Callable[..., Tensor]


class Conv(nn.Module):
    """Embedding, convolution and norm: nothing here waits for W but what it ends with."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.conv = nn.Conv1d(8, 8, 3, padding=1, groups=2)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.conv(self.embed(x).transpose(1, 2))).transpose(1, 2)
        return y


class Shared(nn.Module):
    """One linear layer used twice, and a weight shared by two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.twice = nn.Linear(8, 8)
        self.one = nn.Linear(8, 8, bias=False)
        self.other = nn.Linear(8, 8)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.other(torch.tanh(self.one(self.twice(torch.relu(self.twice(self.norm(x)))))))
        return y


class Cut(nn.Module):
    """The backward splits at a node with two outputs: source pytorch/pytorch#170277."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 16)
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.gru = nn.GRU(8, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        u, v = self.lin(x).chunk(2, -1)
        y = self.a(u) * 2 + self.b(v)
        y = y + self.attention(y, y, y, need_weights=False)[0]
        return y + self.gru(y)[0]  # type: ignore[no-any-return]  # modules return Any


class Plain(nn.Module):
    """No parameters at all."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x)


class Head(nn.Module):
    """Ends in a linear layer on an input of three dimensions, whose output is a view."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)[:, 0]  # type: ignore[no-any-return]  # modules return Any


def gpt(stages: int, samples: int) -> Model:
    config = _config(stages)
    parts = split_layers(len(config.layer_names), stages)
    draw = torch.Generator().manual_seed(1)
    text = torch.randint(0, 13, (samples, 9), generator=draw)
    modules: list[nn.Module] = [build_stage(config, 3, part) for part in parts]
    return Model(modules, text[:, :-1], text[:, 1:], next_byte_loss)


def gpt_whole(stages: int) -> nn.Module:
    return build_full(_config(stages), 3)


def _config(stages: int) -> GPTConfig:
    return GPTConfig(layers=max(2, stages - 2), width=8, heads=2, sequence=8, vocab=13)


def mixed(stages: int, samples: int) -> Model:
    """Convolution, norms, embedding, attention, GRU, shared weights, a stage without parameters."""
    torch.manual_seed(5)
    middle: list[Callable[[], nn.Module]] = [Shared, Cut, Plain]
    modules = [Conv(), *(middle[s % 3]() for s in range(stages - 2)), Head()]
    draw = torch.Generator().manual_seed(1)
    batch = torch.randint(0, 11, (samples, 6), generator=draw)
    return Model(modules, batch, torch.randint(0, 5, (samples,), generator=draw), F.cross_entropy)


class OwnWeight(torch.autograd.Function):
    """A scale whose backward adds the weight gradient itself, as some fused layers do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: nn.Parameter) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.weight = weight
        return x * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, weight = ctx.saved_tensors
        added = (gradients[0] * x).sum((0, 1))
        ctx.weight.grad = added if ctx.weight.grad is None else ctx.weight.grad + added
        return gradients[0] * weight, None


class Scale(nn.Module):
    """A layer that computes its weight gradient during I, and leaves nothing for W."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 8))

    def forward(self, x: Tensor) -> Tensor:
        return OwnWeight.apply(x, self.weight)  # type: ignore[no-any-return, no-untyped-call]


class Normed(nn.Module):
    """Norm and ReLU: nothing for W."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(x))


def nothing_waits(stages: int, samples: int) -> Model:
    """Embedding first, then stages whose W has nothing to do."""
    model = mixed(stages, samples)
    middle = [Normed(), Scale()]
    modules = [nn.Embedding(11, 8), *(middle[s % 2] for s in range(stages - 2)), Head()]
    return Model(modules, model.batch, model.target, model.loss_fn)


class Several(nn.Module):
    """Takes and returns more than one tensor: hidden, mask (bool), positions (int64), a second float, None."""

    def __init__(self, first: bool, as_list: bool) -> None:
        super().__init__()
        self.first, self.as_list = first, as_list
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor | None = None, *more: Tensor | None) -> object:
        if self.first or mask is None:
            mask = x[..., 0] > 0
            more = (torch.arange(x.shape[1]).expand(x.shape[0], -1), x.half(), None)
        positions, side, _ = more
        assert positions is not None
        assert side is not None
        y = torch.tanh(self.linear(x)) * mask[..., None] + positions[..., None] / 10
        out = (y, mask, positions, side + y.to(side.dtype), None)
        return list(out) if self.as_list else out


class Gather(nn.Module):
    """Ends a chain of `Several`."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 5)

    def forward(self, x: Tensor, mask: Tensor, positions: Tensor, side: Tensor, nothing: None) -> Tensor:
        assert nothing is None
        assert mask.dtype == torch.bool
        return self.linear(x + side.to(x.dtype))[:, 0]  # type: ignore[no-any-return]  # modules return Any


def several(stages: int, samples: int) -> Model:
    """Tuples and lists of tensors of several dtypes between the stages."""
    torch.manual_seed(6)
    modules = [*(Several(s == 0, s % 2 == 1) for s in range(stages - 1)), Gather()]
    return Model(modules, torch.randn(samples, 3, 8), torch.randint(0, 5, (samples,)), F.cross_entropy)


class Two(nn.Module):
    """Returns two tensors, and uses the first only of those it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.h, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, h: Tensor, k: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return torch.tanh(self.h(h)), self.k(h)


class One(nn.Module):
    """Uses the first tensor only."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 5)

    def forward(self, h: Tensor, k: Tensor) -> Tensor:
        return self.linear(h)[:, 0]  # type: ignore[no-any-return]  # modules return Any


def unused(stages: int, samples: int) -> Model:
    """A second tensor that the next stage ignores, so that it gets no gradient."""
    torch.manual_seed(6)
    modules = [*(Two() for _ in range(stages - 1)), One()]
    return Model(modules, torch.randn(samples, 3, 8), torch.randint(0, 5, (samples,)), F.cross_entropy)


def frozen(which: tuple[int, ...]) -> Callable[[int, int], Model]:
    """A chain of linear stages, some of them frozen."""

    def make(stages: int, samples: int) -> Model:
        torch.manual_seed(6)
        modules: list[nn.Module] = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(stages)]
        for stage in which:
            modules[stage].requires_grad_(False)
        return Model(modules, torch.randn(samples, 8), torch.randn(samples, 8), F.mse_loss)

    return make


class Recomputed(nn.Module):
    """All of it runs again in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(lambda x: torch.tanh(self.b(torch.tanh(self.a(x)))), x, use_reentrant=False)
        return y


def recomputed(stages: int, samples: int) -> Model:
    """Checkpointed stages."""
    torch.manual_seed(6)
    modules: list[nn.Module] = [Recomputed() for _ in range(stages)]
    return Model(modules, torch.randn(samples, 8), torch.randn(samples, 8), F.mse_loss)


def run_whole(modules: Sequence[nn.Module], batch: object) -> object:
    """Apply stages one after the other in one process."""
    x: object = batch
    for module in modules:
        x = module(*x) if isinstance(x, tuple | list) else module(x)
    return x


SETS: dict[str, Callable[[int, int], Model]] = {
    "gpt": gpt,
    "mixed": mixed,
    "nothing waits": nothing_waits,
    "several tensors": several,
    "unused tensor": unused,
    "recomputed": recomputed,
    "only first trains": frozen((1, 2)),
    "only last trains": frozen((0, 1)),
    "middle frozen": frozen((1,)),
    "nothing trains": frozen((0, 1, 2)),
}
