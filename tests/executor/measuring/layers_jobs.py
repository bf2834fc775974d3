"""What the ranks of the tests of layers do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

from torch import Tensor, nn, ones
from torch.nn import functional as F

from adaptpipe.executor.measuring.layers import LayerName, measure_layers
from adaptpipe.solver import Profile


def profile_of(rank: int, world: int, _: None) -> Profile:
    """Measure three layers."""

    def batch_of(samples: int) -> tuple[Tensor, Tensor]:
        return ones(samples, 64), ones(samples, 64)

    layers = [LayerName(name, name.split()[0], 64 * 65) for name in ("block 0", "block 1", "head")]
    return measure_layers(layers, lambda _: nn.Linear(64, 64), F.mse_loss, batch_of, [1, 8], rounds=3)
