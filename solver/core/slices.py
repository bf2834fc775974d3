"""Micro-batches cut along their sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    from .problem import Cost

MOST_SLICES = 1024
"""More than that is a mistyped number."""


@dataclass(frozen=True, slots=True)
class Slices:
    """How a micro-batch is cut along its sequence, and what part of its prices each slice has.

    The prices of a problem are those of whole micro-batches, so cutting them adds no work but the `fixed` parts of
    affine prices, and latencies, which every slice pays.

    Parameters
    ----------
    tokens
        Tokens of each slice, relative to each other: its part of the bytes.
    work
        Part of the durations of each slice, relative to each other: later slices attend to more tokens.

    Raises
    ------
    InputError
        When there are fewer than two slices, the lists differ in length, or a part is below 1.

    Examples
    --------
    >>> Slices.equal(2)
    Slices(tokens=(1, 1), work=(1, 1))
    """

    tokens: tuple[int, ...]
    work: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.tokens) <= MOST_SLICES:
            raise InputError(
                f"batch.slices: {len(self.tokens)} slices, and there are from 2 to {MOST_SLICES}; leave batch.slices "
                "out for whole micro-batches"
            )
        if len(self.work) != len(self.tokens):
            raise InputError(
                f"batch.slices.work: {len(self.work)} values for {len(self.tokens)} slices; give one for each, or "
                "leave it out"
            )
        for key, parts in (("tokens", self.tokens), ("work", self.work)):
            for i, part in enumerate(parts):
                if part < 1:
                    raise InputError(f"batch.slices.{key}[{i}]: {part} is below 1")

    @classmethod
    def equal(cls, count: int) -> Slices:
        """As many slices of equal length and work."""
        return cls((1,) * count, (1,) * count)

    @property
    def count(self) -> int:
        """Number of slices, k."""
        return len(self.tokens)

    @property
    def even(self) -> bool:
        """Whether all slices have the same parts."""
        return len(set(self.tokens)) == len(set(self.work)) == 1


def sliced_price(cost: Cost, size: int, parts: Sequence[int], index: int) -> int:
    """Price of one slice of a micro-batch of `size` samples: the fixed part, and its part of the rest.

    Rounded so that the slices' parts add up to the whole exactly.

    Parameters
    ----------
    cost
        Price of the whole micro-batch.
    size
        Samples.
    parts
        Part of each slice, relative to each other: `Problem.tokens` or `Problem.work`.
    index
        Which slice.

    Examples
    --------
    >>> [sliced_price(10, 1, (1, 1, 2), index) for index in range(3)]
    [2, 3, 5]
    """
    from .problem import Affine, price

    fixed = cost.fixed if isinstance(cost, Affine) else 0
    whole, total = price(cost, size) - fixed, sum(parts)
    return fixed + whole * sum(parts[: index + 1]) // total - whole * sum(parts[:index]) // total
