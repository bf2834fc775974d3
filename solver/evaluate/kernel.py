"""Compiled simulation. Kernels that call each other share a file: numba's cache does not see a change elsewhere."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..core.schedule import Array


@njit(cache=True)
def earliest(
    offsets: Array, ticks: Array, before: Array, lag: Array, start: Array, done: Array
) -> int:  # pragma: no cover
    """Start every op as early as its rank's order and its inputs allow.

    Parameters
    ----------
    offsets
        First op of each rank, shape (p + 1,).
    ticks
        Duration of each op, shape (n,).
    before, lag
        Ops that each op waits for (-1: none) and the message time from each, shape (n, 2).
    start
        Filled with start times, shape (n,).
    done
        Filled with the number of ops each rank has run, shape (p,).

    Returns
    -------
    int
        Number of ops run; below n when the order deadlocks.
    """
    ranks = len(offsets) - 1
    clock = np.zeros(ranks, np.int64)
    finished = np.zeros(len(ticks), np.bool_)
    total = 0
    moved = True
    while moved:
        moved = False
        for rank in range(ranks):
            while offsets[rank] + done[rank] < offsets[rank + 1]:
                op = offsets[rank] + done[rank]
                at = clock[rank]
                ready = True
                for slot in range(2):
                    source = before[op, slot]
                    if source >= 0:
                        if not finished[source]:
                            ready = False
                            break
                        arrival = start[source] + ticks[source] + lag[op, slot]
                        if arrival > at:
                            at = arrival
                if not ready:
                    break
                start[op] = at
                clock[rank] = at + ticks[op]
                finished[op] = True
                done[rank] += 1
                total += 1
                moved = True
    return total


@njit(cache=True)
def memory(
    offsets: Array, static: Array, take: Array, swell: Array, free: Array, during: Array, after: Array
) -> None:  # pragma: no cover
    """Walk each rank's ops in order: take, run, free.

    Parameters
    ----------
    offsets, static
        First op of each rank; bytes held before it.
    take, swell, free
        Bytes each op takes and keeps, holds for its own time only, and frees at its end, shape (n,).
    during, after
        Filled with the bytes held while each op runs and once it has ended, shape (n,).
    """
    for rank in range(len(offsets) - 1):
        held = static[rank]
        for op in range(offsets[rank], offsets[rank + 1]):
            held += take[op]
            during[op] = held + swell[op]
            held -= free[op]
            after[op] = held
