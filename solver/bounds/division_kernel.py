"""Compiled: the cheapest way to make up a batch of micro-batch sizes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from ..core.schedule import Array

Floats = npt.NDArray[np.float64]


@njit(cache=True)
def cheapest(prices: Floats, sizes: Array, least: Floats, last: Array) -> None:  # pragma: no cover
    """Least sum of prices of sizes that add up to n, for every n, and the size added last (-1: there is no such sum).

    Parameters
    ----------
    prices
        For each of K price lists, of each size, shape (K, Z).
    sizes
        Ascending, shape (Z,).
    least, last
        Filled, shape (K, N + 1); infinite where no sum gives n.
    """
    for k in range(prices.shape[0]):
        least[k, 0], last[k, 0] = 0.0, -1
        for n in range(1, least.shape[1]):
            best, which = np.inf, -1
            for z in range(len(sizes)):
                if sizes[z] > n:
                    break
                value = least[k, n - sizes[z]] + prices[k, z]
                if value < best:
                    best, which = value, z
            least[k, n], last[k, n] = best, which
