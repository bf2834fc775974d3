"""What every layer of a splittable model has in common, and what those on sequences have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import blake2b
from typing import Any

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


Past = tuple[Any, ...]
"""What a layer, or each layer of a stage, knows of the slices before; () before the first one.

Nested tuples of tensors, which may want gradients, and of anything else, as a number of positions.
"""


class SequenceLayer(Layer):
    """A layer on sequences, along the second dimension, which can be given slice by slice."""

    @abstractmethod
    def forward_slice(self, x: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Apply the layer to the next slice of a sequence.

        Parameters
        ----------
        x
            The slice.
        past
            What this gave beside the output of the slice before; () for the first slice.
        """

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to a whole sequence, which is a single slice."""
        return self.forward_slice(x, ())[0]


def reset_linear(linear: nn.Linear, std: float, generator: torch.Generator) -> None:
    """Draw the weights from a normal distribution and set the bias to zero."""
    nn.init.normal_(linear.weight, std=std, generator=generator)
    nn.init.zeros_(linear.bias)


def generator_for(seed: int, use: str) -> torch.Generator:
    """A random generator that depends on nothing but the seed and what it is used for."""
    # torch's CPU generator looks at the low 32 bits only, so neighbouring seeds and uses are hashed apart.
    digest = blake2b(f"{seed}/{use}".encode(), digest_size=4).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))
