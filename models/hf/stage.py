"""One stage of a decoder: transformers' own parts, under the names that the unsplit model gives them.

Shapes: S samples, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from adaptpipe.solver import InputError

from ..layer import generator_for
from .positions import Positions

if TYPE_CHECKING:
    from .config import DecoderConfig

M = TypeVar("M", bound=nn.Module)


class DecoderStage(nn.Module):
    """A contiguous run of a decoder's layers.

    Takes tokens int64 [S, T] if it has the embedding, else a hidden state [S, T, D]; gives logits [S, T, V] if it has
    the head, else a hidden state. Attention is causal, and positions count from 0.

    The keys of its state dict are those of the unsplit model, `AutoModelForCausalLM.from_config(…)`: whichever stage
    holds block 3 has `model.layers.3.self_attn.q_proj.weight`. Each layer's weights are drawn as transformers draws
    them, but from a generator of the layer's own, on the CPU in float32. So they do not depend on the split, and the
    global random state is neither read nor changed.

    A head that is tied to the embedding begins with the embedding's matrix. It is one parameter with it where one
    stage holds both; else somebody must sum the two gradients.

    Parameters
    ----------
    config
        The whole model.
    seed
        Any integer.
    layers
        Indices of the stage's layers, a part of `range(len(config.layer_names))`.
    """

    def __init__(self, config: DecoderConfig, seed: int, layers: range) -> None:
        super().__init__()
        family, settings = config.family, config.settings
        owner = family.owner(settings)

        def drawn(module: int, make: Callable[[], M]) -> M:
            # Constructors and initialisers draw from the global generator.
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                made = make()
                torch.default_generator.set_state(generator_for(seed, f"layer {module}").get_state())
                made.apply(owner._init_weights)
            return made

        first, last = 0, config.layers.head
        self._family = family
        self._longest: int = settings.max_position_embeddings
        self._has_embedding, self._has_head = first in layers, last in layers
        body = nn.Module()
        self.add_module(family.body, body)
        embeddings = nn.ModuleDict()
        if self._has_embedding or (self._has_head and config.tied):
            embeddings = drawn(first, lambda: family.make_embeddings(settings))
        if self._has_embedding:
            for name, part in embeddings.items():
                body.add_module(name, part)
        self._pieces = tuple(config.layers.pieces(layers))
        blocks = {}
        for piece in self._pieces:
            block = drawn(piece.block + 1, partial(family.make_block, settings, piece.block))
            if not piece.whole:
                family.keep(block, piece.attention)
            blocks[str(piece.block)] = block
        body.add_module(family.blocks, nn.ModuleDict(blocks))
        if self._has_head:
            head = drawn(config.blocks + 1, lambda: _make_head(config))
            body.add_module(family.norm, head["norm"])
            self.lm_head = head["lm_head"]
            if config.tied:
                self.lm_head.weight = embeddings[family.tokens].weight
        self._windows = [family.window(settings, piece.block) for piece in self._pieces]
        attending = [window for piece, window in zip(self._pieces, self._windows, strict=True) if piece.attention]
        rotary = family.make_rotary(settings) if attending else None
        eager = settings._attn_implementation == "eager"
        self._positions = Positions(rotary, attending, eager, config.sequence)

    def forward(self, x: Tensor) -> Tensor:
        """Apply every layer.

        Raises
        ------
        InputError
            If a sample is longer than the model's positions.
        """
        length = x.shape[1]
        if length > self._longest:
            raise InputError(
                f"input of {length} tokens: the model has {self._longest} positions; cut it, or build with "
                f"max_position_embeddings = {length}"
            )
        family, body = self._family, self.get_submodule(self._family.body)
        if self._has_embedding:
            x = family.embed(body, x)
        self._positions.prepare(x)
        rotation = self._positions.rotation
        blocks = body.get_submodule(family.blocks).children()
        for block, piece, window in zip(blocks, self._pieces, self._windows, strict=True):
            if piece.whole:
                x = family.apply(block, x, self._positions.mask(window), rotation)
            elif piece.attention:
                x = family.attend(block, x, self._positions.mask(window), rotation)
            else:
                x = family.transform(block, x)
        if self._has_head:
            x = self.lm_head(body.get_submodule(family.norm)(x))
        return x


def _make_head(config: DecoderConfig) -> nn.ModuleDict:
    width, vocab = config.settings.hidden_size, config.vocab
    norm, matrix = config.family.make_norm(config.settings), nn.Linear(width, vocab, bias=False)
    return nn.ModuleDict({"norm": norm, "lm_head": matrix})
