"""A byte-level GPT as a list of layers.

The block is that of GPT-2 (Radford et al., 2019, section 2.3): pre-norm, learned positions, initial weights of
standard deviation 0.02, divided by sqrt(2 × layers) where a branch joins the residual stream. Every matrix is an
`nn.Linear` of its own, so that each weight gradient is a unit that can wait.

Shapes: S samples, T bytes, D width, H heads of E = D / H, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaptpipe.solver import InputError

from .config import GPTConfig
from .layer import Layer, reset_linear

_STD = 0.02


class Embedding(Layer):
    """Tokens int64 [S, T] to hidden state [S, T, D]: the token's vector plus the position's."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions = nn.Parameter(torch.empty(config.sequence, config.width))

    def reset(self, generator: torch.Generator) -> None:
        """Draw every parameter from `generator`, in a fixed order."""
        nn.init.normal_(self.tokens.weight, std=_STD, generator=generator)
        nn.init.normal_(self.positions, std=_STD, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Embed tokens of at most `sequence` positions."""
        length, longest = x.shape[1], self.positions.shape[0]
        if length > longest:
            raise InputError(
                f"input of {length} bytes: the model has {longest} positions; cut it, or build with sequence = {length}"
            )
        hidden: Tensor = self.tokens(x)
        return hidden + self.positions[:length]


class Block(Layer):
    """Hidden state to hidden state [S, T, D]: causal self-attention, then an MLP, each added to its input.

    Parameters
    ----------
    config
        The whole model.
    attention, mlp
        Which of the two it has. What it has begins with the same weights as in a block that has both.
    """

    def __init__(self, config: GPTConfig, attention: bool = True, mlp: bool = True) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self._config, self._has_attention, self._has_mlp = config, attention, mlp
        if attention:
            self.norm1 = nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.proj = nn.Linear(width, width)
        if mlp:
            self.norm2 = nn.LayerNorm(width)
            self.fc1 = nn.Linear(width, config.mlp_ratio * width)
            self.fc2 = nn.Linear(config.mlp_ratio * width, width)

    def reset(self, generator: torch.Generator) -> None:
        """Draw every parameter from `generator`, in a fixed order."""
        residual_std = _STD / math.sqrt(2 * self._config.layers)
        if self._has_attention:
            self.norm1.reset_parameters()
            reset_linear(self.qkv, _STD, generator)
            reset_linear(self.proj, residual_std, generator)
        else:
            Block(self._config, mlp=False).reset(generator)  # whose numbers come first
        if self._has_mlp:
            self.norm2.reset_parameters()
            reset_linear(self.fc1, _STD, generator)
            reset_linear(self.fc2, residual_std, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Attend and transform."""
        if self._has_attention:
            x = x + self._attention(self.norm1(x))
        if self._has_mlp:
            x = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return x

    def _attention(self, x_STD: Tensor) -> Tensor:
        qkv_ST3HE: Tensor = self.qkv(x_STD).unflatten(-1, (3, self.heads, -1))
        q_SHTE, k_SHTE, v_SHTE = qkv_ST3HE.permute(2, 0, 3, 1, 4)
        mixed_SHTE = F.scaled_dot_product_attention(q_SHTE, k_SHTE, v_SHTE, is_causal=True)
        mixed: Tensor = self.proj(mixed_SHTE.transpose(1, 2).flatten(2))
        return mixed


class Head(Layer):
    """Hidden state [S, T, D] to logits [S, T, V], after the final norm."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.logits = nn.Linear(config.width, config.vocab)

    def reset(self, generator: torch.Generator) -> None:
        """Draw every parameter from `generator`, in a fixed order."""
        self.norm.reset_parameters()
        reset_linear(self.logits, _STD, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Score every token at every position."""
        logits: Tensor = self.logits(self.norm(x))
        return logits
