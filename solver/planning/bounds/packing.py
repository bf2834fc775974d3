"""Layers as items of a few types, to be packed whole into ranks: a relaxation of every split and placement."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ...core.schedule import Array

MOST_STATES = 500
"""Types are merged until there are no more numbers of placed items than this."""


@dataclass(frozen=True)
class Items:
    """Items of a few types, the most frequent type first.

    Parameters
    ----------
    weight
        Of an item of each type in each column, shape (K, R).
    count
        Items of each type, shape (K,).
    """

    weight: Array
    count: Array

    def type_of(self, weight: Array, *, alone: bool = False) -> int:
        """The type of an item, `alone` where it is the only one of it; -1 where it was merged with others."""
        found = np.flatnonzero((self.weight == weight).all(axis=1) & ((self.count == 1) | (not alone)))
        return int(found[0]) if len(found) else -1

    def apart(self, weight: Array) -> Array:
        """For each type, whether no two items of it follow each other in a row of items, shape (K,): 0 or 1."""
        kinds = np.array([self.type_of(row) for row in weight], dtype=np.int64)
        found = np.ones(len(self.count), dtype=np.int64)
        found[kinds[1:][kinds[1:] == kinds[:-1]]] = 0
        found[np.setdiff1d(np.arange(len(self.count)), kinds)] = 0
        return found


def items(weight: Array, most_states: int = MOST_STATES) -> Items:
    """Items by type, from the columns of each, shape (L, R).

    Where there are too many types, those are merged that lose least by it, in parts of the sum of each column: a merged
    type has the least value of each column, so that it takes no more of anything than any item did.

    Examples
    --------
    >>> found = items(np.array([[1], [5], [5], [5], [9]]))
    >>> found.weight.tolist(), found.count.tolist(), found.type_of(np.array([9]))
    ([[5], [1], [9]], [3, 1, 1], 2)
    >>> items(np.array([[1], [5], [5], [6], [9]]), most_states=4).weight.tolist()
    [[5], [1], [9]]
    """
    weight = np.asarray(weight, dtype=np.int64)
    types, count = np.unique(weight, axis=0, return_counts=True)
    scale = 1.0 / np.maximum(1.0, np.abs(weight).sum(axis=0))
    while _states(count) > most_states:
        low = np.minimum(types[:, None], types[None])
        lost = count[:, None] * ((types[:, None] - low) * scale).max(axis=2)
        both = lost + lost.T
        both[np.tril_indices(len(types))] = np.inf
        i, j = np.unravel_index(int(both.argmin()), both.shape)
        types[i], count[i] = low[i, j], count[i] + count[j]
        types, count = np.delete(types, j, axis=0), np.delete(count, j)
    order = np.argsort(-count, kind="stable")
    return Items(types[order], count[order].astype(np.int64))


def _states(count: Array) -> int:
    """Numbers of placed items of all types but the most frequent."""
    return prod(int(n) + 1 for n in np.sort(count)[:-1])
