"""A residual MLP on vectors as a list of layers: the smallest model that is worth splitting.

Initial weights have a standard deviation of 1 / sqrt(inputs of the matrix), so that a layer keeps the scale of
its input (LeCun et al., "Efficient BackProp", 1998, section 4.6).

Shapes: S samples, I inputs, D width, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import MLPConfig
from .layer import Layer, reset_linear

_ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


class Entry(Layer):
    """Vectors [S, I] to hidden vectors [S, D]: a matrix and the activation."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        self.fc = nn.Linear(config.inputs, config.width)
        self._activation = _ACTIVATION[config.activation]

    def reset(self, generator: torch.Generator) -> None:
        """Draw every parameter from `generator`, in a fixed order."""
        reset_linear(self.fc, self.fc.in_features**-0.5, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Bring vectors to the hidden width."""
        return self._activation(self.fc(x))


class Hidden(Layer):
    """Hidden vectors to hidden vectors [S, D]: norm, matrix, activation, added to the input."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width) if config.norm else nn.Identity()
        self.fc = nn.Linear(config.width, config.width)
        self._activation = _ACTIVATION[config.activation]

    def reset(self, generator: torch.Generator) -> None:
        """Draw every parameter from `generator`, in a fixed order."""
        if isinstance(self.norm, nn.LayerNorm):
            self.norm.reset_parameters()
        reset_linear(self.fc, self.fc.in_features**-0.5, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Transform and add."""
        return x + self._activation(self.fc(self.norm(x)))


class Output(Layer):
    """Hidden vectors [S, D] to outputs [S, O]: norm and matrix."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width) if config.norm else nn.Identity()
        self.fc = nn.Linear(config.width, config.outputs)

    def reset(self, generator: torch.Generator) -> None:
        """Draw every parameter from `generator`, in a fixed order."""
        if isinstance(self.norm, nn.LayerNorm):
            self.norm.reset_parameters()
        reset_linear(self.fc, self.fc.in_features**-0.5, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Project to the outputs."""
        outputs: Tensor = self.fc(self.norm(x))
        return outputs
