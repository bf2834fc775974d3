"""A byte-level GPT as a list of layers.

The block is that of GPT-2 (Radford et al., 2019, section 2.3): pre-norm, learned positions, initial weights of
standard deviation 0.02, divided by sqrt(2 × layers) where a branch joins the residual stream. Every matrix is an
`nn.Linear` of its own, so that each weight gradient is a unit that can wait.

A sequence may be given whole or slice by slice: attention keeps the keys and values of the slices before, and the
embedding the number of their positions.

Shapes: S samples, T bytes of a slice or of a whole sequence, A of a slice and all before it, D width, H heads of
E = D / H, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaptpipe.solver import InputError

from .config import GPTConfig
from .layer import Past, SequenceLayer, reset_linear

_STD = 0.02


class Embedding(SequenceLayer):
    """Tokens int64 [S, T] to hidden state [S, T, D]: the token's vector plus the position's."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.positions = nn.Parameter(torch.empty(config.sequence, config.width))

    def reset(self, generator: torch.Generator) -> None:
        """Draw every parameter from `generator`, in a fixed order."""
        nn.init.normal_(self.tokens.weight, std=_STD, generator=generator)
        nn.init.normal_(self.positions, std=_STD, generator=generator)

    def forward_slice(self, x: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Embed tokens; with those of the slices before there are at most `sequence` positions."""
        (begin,) = past or (0,)
        end, longest = begin + x.shape[1], self.positions.shape[0]
        if end > longest:
            raise InputError(
                f"input of {end} bytes: the model has {longest} positions; cut it, or build with sequence = {end}"
            )
        hidden: Tensor = self.tokens(x)
        return hidden + self.positions[begin:end], (end,)


class Block(SequenceLayer):
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

    def forward_slice(self, x: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Attend and transform."""
        present: Past = ()
        if self._has_attention:
            mixed, present = self._attention(self.norm1(x), past)
            x = x + mixed
        if self._has_mlp:
            x = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return x, present

    def _attention(self, x_STD: Tensor, past: Past) -> tuple[Tensor, Past]:
        qkv_ST3HE: Tensor = self.qkv(x_STD).unflatten(-1, (3, self.heads, -1))
        q_SHTE, k_SHAE, v_SHAE = qkv_ST3HE.permute(2, 0, 3, 1, 4)
        if past:
            k_before, v_before = past
            k_SHAE, v_SHAE = torch.cat((k_before, k_SHAE), 2), torch.cat((v_before, v_SHAE), 2)
            # Not is_causal, which would let the first byte of the slice see the first one of all, and no other.
            before = k_before.shape[2]
            mask_TA = torch.ones(x_STD.shape[1], k_SHAE.shape[2], dtype=torch.bool, device=x_STD.device).tril(before)
            mixed_SHTE = F.scaled_dot_product_attention(q_SHTE, k_SHAE, v_SHAE, attn_mask=mask_TA)
        else:
            mixed_SHTE = F.scaled_dot_product_attention(q_SHTE, k_SHAE, v_SHAE, is_causal=True)
        mixed: Tensor = self.proj(mixed_SHTE.transpose(1, 2).flatten(2))
        return mixed, (k_SHAE, v_SHAE)


class Head(SequenceLayer):
    """Hidden state [S, T, D] to logits [S, T, V], after the final norm."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.logits = nn.Linear(config.width, config.vocab)

    def reset(self, generator: torch.Generator) -> None:
        """Draw every parameter from `generator`, in a fixed order."""
        self.norm.reset_parameters()
        reset_linear(self.logits, _STD, generator)

    def forward_slice(self, x: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Score every token at every position."""
        return self.logits(self.norm(x)), ()
