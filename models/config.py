"""What a model is, in numbers: enough to plan with, and to build any one of its layers alone. No torch needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from adaptpipe.solver import InputError

from .halves import BlockLayers, Piece

if TYPE_CHECKING:
    from torch import nn

    from .layer import Layer

BYTE_VALUES = 256
"""Size of the vocabulary of bytes."""

ACTIVATIONS = ("gelu", "relu", "silu", "tanh")
"""Activations that an MLP may use, by the names that torch gives them."""


Tie = tuple[tuple[int, str], ...]
"""A parameter that several layers share: the index of each, and the parameter's name there in the unsplit model."""


class ModelConfig(Protocol):
    """A model as a list of layers, of which any run can be built alone, as a stage that maps one tensor to one."""

    @property
    def layer_names(self) -> tuple[str, ...]:
        """What each layer is, in order, for people."""

    @property
    def layer_parameters(self) -> tuple[int, ...]:
        """Number of parameters of each layer, in order."""

    @property
    def layer_sorts(self) -> tuple[str, ...]:
        """What sort each layer is of: those of one sort are equal but for their weights' values, and cost the same.

        The first word, up to a comma, is what a planner calls the layer: embedding, block, head, ….
        """

    @property
    def ties(self) -> tuple[Tie, ...]:
        """Parameters that several layers share."""

    def make_stage(self, seed: int, layers: range) -> nn.Module:
        """Build a contiguous part of the layers, with weights that do not depend on the split."""


@dataclass(frozen=True, slots=True)
class GPTConfig:
    """A byte-level GPT: embedding, `layers` pre-norm transformer blocks, and a head.

    Parameters
    ----------
    layers
        Transformer blocks. The list of layers has two more: the embedding and the head.
    width
        Size of the hidden state; a multiple of `heads`.
    heads
        Attention heads.
    sequence
        Longest sequence, in bytes; positions are learned.
    vocab
        Different tokens.
    mlp_ratio
        Width of a block's hidden MLP layer over `width`.
    tied
        Whether the head scores tokens with the embedding's matrix, as GPT-2 does.
    split_blocks
        Whether a block is two layers, attention and MLP, which may be in different stages. Parameters have the same
        names and values either way.

    Raises
    ------
    InputError
        If a size is not a whole number from 1, `width` is no multiple of `heads`, or a switch is not true or false.

    Examples
    --------
    >>> config = GPTConfig(layers=2, width=8, heads=2, sequence=16)
    >>> config.layer_names
    ('embedding', 'block 0', 'block 1', 'head')
    >>> config.layer_parameters
    (2176, 872, 872, 2320)
    """

    layers: int
    width: int
    heads: int
    sequence: int
    vocab: int = BYTE_VALUES
    mlp_ratio: int = 4
    tied: bool = False
    split_blocks: bool = False

    def __post_init__(self) -> None:
        for key in ("layers", "width", "heads", "sequence", "vocab", "mlp_ratio"):
            _check_count(key, getattr(self, key))
        _check_switch("tied", self.tied)
        _check_switch("split_blocks", self.split_blocks)
        if self.width % self.heads:
            below = self.width - self.width % self.heads
            nearest = [str(width) for width in (below, below + self.heads) if width]
            raise InputError(
                f"model.width = {self.width}: not a multiple of model.heads = {self.heads}; "
                f"use a width of {' or '.join(nearest)}, or other heads"
            )

    @property
    def layer_names(self) -> tuple[str, ...]:
        """`embedding`, `block 0` …, or `attention 0`, `mlp 0` …, and `head`."""
        return self._layers.names

    @property
    def layer_parameters(self) -> tuple[int, ...]:
        """Number of parameters of each layer, in order; a tied matrix counts in both of its layers."""
        width, hidden = self.width, self.width * self.mlp_ratio
        norm = 2 * width
        embedding = (self.vocab + self.sequence) * width
        attention = norm + _linear(width, 3 * width) + _linear(width, width)
        mlp = norm + _linear(width, hidden) + _linear(hidden, width)
        blocks = self._layers.of_each((attention,) * self.layers, (mlp,) * self.layers)
        return (embedding, *blocks, norm + _linear(width, self.vocab))

    @property
    def layer_sorts(self) -> tuple[str, ...]:
        """The layers' names without their numbers."""
        return unnumbered(self.layer_names)

    @property
    def ties(self) -> tuple[Tie, ...]:
        """The token matrix, if it is tied."""
        return self._ties_to(self._layers.head)

    def _ties_to(self, head: int) -> tuple[Tie, ...]:
        return (
            (((0, "layers.0.tokens.weight"), (head, f"layers.{self.layers + 1}.logits.weight")),) if self.tied else ()
        )

    @property
    def _layers(self) -> BlockLayers:
        return BlockLayers(self.layers, self.split_blocks)

    def make_stage(self, seed: int, layers: range) -> nn.Module:
        """Build a contiguous part of the layers, with weights that do not depend on the split."""
        from .stage import stack

        pieces = {piece.block + 1: piece for piece in self._layers.pieces(layers)}
        head = self.layers + 1  # modules are numbered as they are where blocks are whole
        modules = [*[0] * (0 in layers), *pieces, *[head] * (self._layers.head in layers)]
        return stack(
            lambda module: self._make_module(module, pieces.get(module)),
            seed,
            range(modules[0], modules[-1] + 1),
            self._ties_to(head),
        )

    def _make_module(self, index: int, piece: Piece | None) -> Layer:
        from .gpt import Block, Embedding, Head

        if piece is not None:
            return Block(self, piece.attention, piece.mlp)
        return Head(self) if index else Embedding(self)


@dataclass(frozen=True, slots=True)
class MLPConfig:
    """A residual MLP on vectors: an entry, `layers` hidden layers of one square matrix each, and a head.

    Parameters
    ----------
    layers
        Hidden layers. The list of layers has two more: the entry and the head.
    width
        Size of the hidden vectors.
    inputs
        Size of the input vectors.
    outputs
        Size of the output vectors: one logit for each byte, unless told otherwise.
    activation
        gelu, relu, silu or tanh.
    norm
        Whether each hidden layer and the head begin with a layer norm.

    Raises
    ------
    InputError
        If a size is not a whole number from 1, the activation is unknown, or `norm` is not true or false.

    Examples
    --------
    >>> config = MLPConfig(layers=2, width=8, inputs=4, outputs=3, norm=False)
    >>> config.layer_names
    ('entry', 'hidden 0', 'hidden 1', 'head')
    >>> config.layer_parameters
    (40, 72, 72, 27)
    """

    layers: int
    width: int
    inputs: int
    outputs: int = BYTE_VALUES
    activation: str = "gelu"
    norm: bool = True

    def __post_init__(self) -> None:
        for key in ("layers", "width", "inputs", "outputs"):
            _check_count(key, getattr(self, key))
        if self.activation not in ACTIVATIONS:
            raise InputError(f"model.activation = {self.activation!r}: unknown; use one of {', '.join(ACTIVATIONS)}")
        _check_switch("norm", self.norm)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """`entry`, `hidden 0` … and `head`."""
        return ("entry", *(f"hidden {layer}" for layer in range(self.layers)), "head")

    @property
    def layer_parameters(self) -> tuple[int, ...]:
        """Number of parameters of each layer, in order."""
        norm = 2 * self.width if self.norm else 0
        hidden = norm + _linear(self.width, self.width)
        return (_linear(self.inputs, self.width), *(hidden,) * self.layers, norm + _linear(self.width, self.outputs))

    @property
    def layer_sorts(self) -> tuple[str, ...]:
        """The layers' names without their numbers."""
        return unnumbered(self.layer_names)

    @property
    def ties(self) -> tuple[Tie, ...]:
        """None."""
        return ()

    def make_stage(self, seed: int, layers: range) -> nn.Module:
        """Build a contiguous part of the layers, with weights that do not depend on the split."""
        from .stage import stack

        return stack(self.make_layer, seed, layers)

    def make_layer(self, index: int) -> Layer:
        """Build the layer at `index`, its parameters not yet initialised."""
        from .mlp import Entry, Hidden, Output

        if index == 0:
            return Entry(self)
        return Output(self) if index == self.layers + 1 else Hidden(self)


def unnumbered(names: Sequence[str]) -> tuple[str, ...]:
    """Names without a number at their end.

    Examples
    --------
    >>> unnumbered(["embedding", "block 0", "block 11"])
    ('embedding', 'block', 'block')
    """
    return tuple(name.rstrip("0123456789").rstrip() for name in names)


def _linear(inputs: int, outputs: int) -> int:
    """Parameters of a linear layer with a bias."""
    return (inputs + 1) * outputs


def _check_switch(key: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InputError(f"model.{key} = {value!r}: must be true or false")


def _check_count(key: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"model.{key} = {value!r}: must be a whole number from 1")
