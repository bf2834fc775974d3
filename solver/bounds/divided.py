"""The least that several demands at once let any division of the batch reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..core.schedule import Array
from .division_kernel import Floats, cheapest

STEPS, PARTS = 12, np.array([1 / 64, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4])
"""How often weights of demands are improved, and how much of the weight then goes to another demand."""

MOST_DEMANDS = 40
"""Demands that are looked at: those that promise most by themselves."""

LARGEST_TABLE = 1 << 16
"""Samples x sizes beyond which the cheapest price per sample stands in for the table of sums."""


@dataclass(frozen=True, slots=True)
class Demands:
    """Several lower bounds, each a sum over the micro-batches of a division.

    Parameters
    ----------
    base
        What each adds to the sum, shape (C,).
    prices
        What a micro-batch of each size adds, shape (C, Z).
    """

    base: Floats
    prices: Floats

    def best(self, sizes: Array, samples: int) -> Demands:
        """Those of which most is to be expected."""
        if len(self.base) <= MOST_DEMANDS:
            return self
        value = self.base + samples * (self.prices / sizes).min(axis=1)
        chosen = np.sort(np.argsort(-value, kind="stable")[:MOST_DEMANDS])
        return Demands(self.base[chosen], self.prices[chosen])


def least(demands: Demands, sizes: Array, samples: int, needed: int = 0) -> float:
    """A number that no division of `samples` gets below in all demands at once; infinite where there is no division.

    For any weights of the demands that add up to 1, the largest demand is at least their weighted mean, and the least
    of that is a sum of prices, found by dynamic programming. The weights are improved step by step: the division which
    is the cheapest under them shows which demand is not met (Frank and Wolfe, *An algorithm for quadratic programming*,
    1956, applied to the Lagrangian dual).

    Parameters
    ----------
    demands, sizes, samples
        The demands, the sizes that may be used, ascending, and their sum.
    needed
        Number of a size such that one of at least that is used.

    Examples
    --------
    Sizes 1 and 2 for a batch of 4. Two large ones cost 6 by the first demand but 8 by the second, four small ones 8 and
    4: one large and two small ones have 7 and 6.

    >>> both = Demands(np.zeros(2), np.array([[2.0, 3.0], [1.0, 4.0]]))
    >>> 6 < least(both, np.array([1, 2]), 4) <= 7
    True
    """
    if samples * len(sizes) > LARGEST_TABLE:
        return float((demands.base + samples * (demands.prices / sizes).min(axis=1)).max())
    alone, divisions = _cheapest(demands, sizes, samples, needed)
    at = int(np.argmax(alone))
    best, weights = float(alone[at]), np.zeros(len(alone))
    if not np.isfinite(best):
        return best
    weights[at], division = 1.0, divisions(at)
    for _ in range(STEPS):
        missed = np.zeros(len(weights))
        missed[int(np.argmax(demands.base + demands.prices @ division))] = 1.0
        tried = (1 - PARTS)[:, None] * weights + PARTS[:, None] * missed
        values, divisions = _cheapest(Demands(tried @ demands.base, tried @ demands.prices), sizes, samples, needed)
        at = int(np.argmax(values))
        if values[at] <= best:
            break
        best, weights, division = float(values[at]), tried[at], divisions(at)
    return best


def _cheapest(demands: Demands, sizes: Array, samples: int, needed: int) -> tuple[Floats, Callable[[int], Array]]:
    """The least of each demand alone, shape (C,), and the division that has it: how often it has each size."""
    count = len(demands.base)
    table, last = np.empty((count, samples + 1)), np.empty((count, samples + 1), dtype=np.int64)
    cheapest(np.ascontiguousarray(demands.prices), sizes, table, last)
    large = np.flatnonzero((np.arange(len(sizes)) >= needed) & (sizes <= samples))
    with_one = table[:, samples - sizes[large]] + demands.prices[:, large]

    def division(which: int) -> Array:
        one = int(large[np.argmin(with_one[which])])
        counts, left = np.zeros(len(sizes), dtype=np.int64), samples - int(sizes[one])
        counts[one] = 1
        while left > 0:
            counts[last[which, left]] += 1
            left -= int(sizes[last[which, left]])
        return counts

    return demands.base + with_one.min(axis=1, initial=np.inf), division
