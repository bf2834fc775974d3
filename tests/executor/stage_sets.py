"""Models cut into stages, to run in a pipeline and whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
        return self.norm(self.conv(self.embed(x).transpose(1, 2))).transpose(1, 2)  # type: ignore[no-any-return]


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
        return x + self.other(torch.tanh(self.one(self.twice(torch.relu(self.twice(self.norm(x)))))))  # type: ignore[no-any-return]


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
        return y + self.gru(y)[0]  # type: ignore[no-any-return]


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
        return self.linear(x)[:, 0]  # type: ignore[no-any-return]


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


def run_whole(modules: Sequence[nn.Module], batch: object) -> object:
    """Apply stages one after the other in one process."""
    x: object = batch
    for module in modules:
        x = module(*x) if isinstance(x, tuple | list) else module(x)
    return x


SETS = {"gpt": gpt, "mixed": mixed}
