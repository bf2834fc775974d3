"""What every layer of a splittable model has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import blake2b

import torch
from torch import Tensor, nn


class Layer(nn.Module, ABC):
    """One tensor in, one tensor out, and parameters that depend on nothing but a generator."""

    @abstractmethod
    def reset(self, generator: torch.Generator) -> None:
        """Draw every parameter from `generator`, in a fixed order."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer; the first dimension is the samples'."""


def reset_linear(linear: nn.Linear, std: float, generator: torch.Generator) -> None:
    """Draw the weights from a normal distribution and set the bias to zero."""
    nn.init.normal_(linear.weight, std=std, generator=generator)
    nn.init.zeros_(linear.bias)


def generator_for(seed: int, use: str) -> torch.Generator:
    """A random generator that depends on nothing but the seed and what it is used for."""
    # torch's CPU generator looks at the low 32 bits only, so neighbouring seeds and uses are hashed apart.
    digest = blake2b(f"{seed}/{use}".encode(), digest_size=4).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))
