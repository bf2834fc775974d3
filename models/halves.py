"""Blocks as one layer each, or attention and MLP as layers of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """What a stage has of a block.

    Attributes
    ----------
    block
        Number of the block.
    attention, mlp
        Which of its halves; one at least.
    """

    block: int
    attention: bool = True
    mlp: bool = True

    @property
    def whole(self) -> bool:
        """Whether it has both."""
        return self.attention and self.mlp


@dataclass(frozen=True, slots=True)
class BlockLayers:
    """The layers of an embedding, some blocks and a head.

    Parameters
    ----------
    blocks
        Number of blocks.
    split
        Whether attention and MLP are layers of their own.

    Examples
    --------
    >>> BlockLayers(2, split=False).names
    ('embedding', 'block 0', 'block 1', 'head')
    >>> BlockLayers(2, split=True).names
    ('embedding', 'attention 0', 'mlp 0', 'attention 1', 'mlp 1', 'head')
    """

    blocks: int
    split: bool

    @property
    def names(self) -> tuple[str, ...]:
        """What each layer is, in order."""
        kinds = ("attention", "mlp") if self.split else ("block",)
        return ("embedding", *(f"{kind} {block}" for block in range(self.blocks) for kind in kinds), "head")

    @property
    def head(self) -> int:
        """Index of the last layer."""
        return len(self.names) - 1

    def of_each(self, attention: tuple[int, ...], mlp: tuple[int, ...]) -> tuple[int, ...]:
        """Counts of the blocks' layers from those of the blocks' halves.

        Examples
        --------
        >>> BlockLayers(2, split=False).of_each((1, 1), (2, 3)), BlockLayers(2, split=True).of_each((1, 1), (2, 3))
        ((3, 4), (1, 2, 1, 3))
        """
        pairs = list(zip(attention, mlp, strict=True))
        return tuple(count for pair in pairs for count in pair) if self.split else tuple(map(sum, pairs))

    def pieces(self, layers: range) -> Iterator[Piece]:
        """What a stage of some layers has of each block, a block with both halves as one piece.

        Examples
        --------
        >>> list(BlockLayers(2, split=True).pieces(range(2, 5)))
        [Piece(block=0, attention=False, mlp=True), Piece(block=1, attention=True, mlp=True)]
        """
        for block in range(self.blocks):
            attention, mlp = (1 + 2 * block, 2 + 2 * block) if self.split else (1 + block, 1 + block)
            if attention in layers or mlp in layers:
                yield Piece(block, attention in layers, mlp in layers)
