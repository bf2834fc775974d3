"""How much work memory lets happen at once: knapsacks, never underestimated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.schedule import Array


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of work that hold memory.

    Parameters
    ----------
    ticks, held
        Time and bytes of each piece, shape (n,).
    """

    ticks: Array
    held: Array

    def __add__(self, other: Pieces) -> Pieces:
        return Pieces(np.concatenate([self.ticks, other.ticks]), np.concatenate([self.held, other.held]))

    @property
    def equal(self) -> bool:
        """Whether all pieces hold the same."""
        return len(self.held) == 0 or bool((self.held == self.held[0]).all())


def most(pieces: Pieces, room: int) -> int:
    """At least the largest total time of pieces that fit into `room` bytes together.

    As many pieces are counted as the smallest holds room for, the longest first: exact where all hold the same. Else
    the knapsack's linear relaxation is solved, too (densest first, a part of the last), which is never below the true
    value either; the lesser of the two holds.

    Examples
    --------
    >>> most(Pieces(np.array([5, 5, 4]), np.array([3, 3, 3])), 7)
    10
    """
    return int(table(pieces, np.array([room], dtype=np.int64))[0])


def most_of_two(first: Pieces, second: Pieces, room: int, forced: int = 0) -> int:
    """The same for two kinds at once, of which `forced` pieces of the first are there in any case.

    Where all pieces of the first kind hold the same, every number of them is tried; otherwise both kinds are relaxed
    together.
    """
    if not first.equal or len(first.held) == 0 or first.held[0] == 0:
        return most(first + second, room)
    each, longest = int(first.held[0]), np.sort(first.ticks)[::-1]
    fit = min(len(longest), max(room, 0) // each)
    counts = np.arange(min(forced, fit), fit + 1)
    sums = np.concatenate([[0], np.cumsum(longest)])
    return int((sums[counts] + table(second, room - counts * each)).max())


def table(pieces: Pieces, rooms: Array) -> Array:
    """`most` for many rooms."""
    free = int(pieces.ticks[pieces.held == 0].sum())
    ticks, held = pieces.ticks[pieces.held > 0], pieces.held[pieces.held > 0]
    if len(ticks) == 0:
        return np.full(len(rooms), free, dtype=np.int64)
    rooms = np.clip(rooms, 0, int(held.sum()))
    sums = np.concatenate([[0], np.cumsum(np.sort(ticks)[::-1])])
    counted: Array = sums[np.minimum(rooms // held.min(), len(ticks))]
    if pieces.equal:
        return free + counted
    order = np.argsort(-(ticks / held), kind="stable")
    ticks, held = ticks[order], held[order]
    time, room = np.concatenate([[0], np.cumsum(ticks)]), np.concatenate([[0], np.cumsum(held)])
    whole = np.searchsorted(room, rooms, side="right") - 1
    # Rounded up, and one more for the floating point in the order: an upper bound must not be below.
    partial = whole < len(ticks)
    index = np.minimum(whole, len(ticks) - 1)
    part = np.ceil(ticks[index] * ((rooms - room[whole]) / held[index])).astype(np.int64) + 1
    packed: Array = time[whole] + np.where(partial, np.minimum(part, ticks[index]), 0)
    return free + np.minimum(counted, packed)
