"""Compiled: the best contiguous stages under a limit of load, on a chain of ranks, to and fro, or by local moves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from ...core.schedule import Array

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int16]

NONE = 2**60
"""Value of a state that no stages lead to."""


@njit(cache=True, error_model="numpy")
def chain(work: Array, need: Array, room: Array, value: Array, step: Array) -> None:  # pragma: no cover
    """Least largest load of stages in a row, for every number of stages and of layers that they hold.

    Parameters
    ----------
    work, need
        Load and bytes of layers [a, b) as stage s, shape (S, L + 1, L + 1).
    room
        Bytes that each stage may hold, shape (S,).
    value, step
        Filled: the least largest load of the first s stages on the first b layers, and where the last of them starts;
        shape (S + 1, L + 1).
    """
    stages, layers = len(room), value.shape[1] - 1
    value[:] = NONE
    value[0, 0] = 0
    for s in range(stages):
        for b in range(s + 1, layers - (stages - 1 - s) + 1):
            for a in range(b - 1, s - 1, -1):
                load = work[s, a, b]
                if load >= value[s + 1, b] or need[s, a, b] > room[s]:
                    break  # longer runs load and hold more
                most = max(load, value[s, a])
                if most < value[s + 1, b]:
                    value[s + 1, b], step[s + 1, b] = most, a


@njit(cache=True, error_model="numpy")
def nested(
    work: Array, need: Array, room: Array, ties: Array, cap: int, share: float, value: Floats, first: Steps, last: Steps
) -> None:  # pragma: no cover
    """Best stages to and fro (stage s and 2p - 1 - s on rank s), no rank loaded above `cap`.

    Layers [a, b) are those of ranks r to p - 1: rank r takes a run from their front and one from their back.

    Parameters
    ----------
    work, need
        Load and bytes of layers [a, b) on rank r, shape (p, L + 1, L + 1).
    room
        Bytes that each rank may hold, shape (p,).
    ties
        Rows (first layer, second layer, bytes that are saved where one rank holds both), shape (K, 3).
    cap
        Largest load that a rank may have.
    share
        Below 0: the largest load is minimised. Else the sum over the ranks of how far the first run's load is from this
        share of the rank's.
    value
        Filled: the best value of ranks r to p - 1 on layers [a, b), infinite where there is none, shape
        (p + 1, L + 1, L + 1).
    first, last
        Filled: where the first run ends, and where the second starts.
    """
    ranks, layers = len(room), value.shape[1] - 1
    value[:] = np.inf
    for a in range(layers + 1):
        value[ranks, a, a] = 0.0
    for r in range(ranks - 1, -1, -1):
        within = 2 * (ranks - r - 1)  # layers that the ranks inside need
        for a in range(r, layers - r + 1):
            for b in range(a + within + 2, layers - r + 1):
                if r == 0 and (a > 0 or b < layers):
                    continue
                best = np.inf
                for front in range(a + 1, b - within):
                    one = work[r, a, front]
                    if one > cap or need[r, a, front] > room[r]:
                        break
                    for back in range(b - 1, front + within - 1, -1):
                        two = work[r, back, b]
                        if one + two > cap:
                            break
                        if r == ranks - 1 and back > front:
                            continue
                        held = need[r, a, front] + need[r, back, b]
                        for k in range(len(ties)):
                            if a <= ties[k, 0] < front and back <= ties[k, 1] < b:
                                held -= ties[k, 2]
                        if held > room[r]:
                            continue  # a tie further on may save more than its layers hold
                        inner = value[r + 1, front, back]
                        if share < 0:
                            found = max(inner, float(one + two))
                        else:
                            found = inner + abs(one - share * (one + two))
                        if found < best:
                            best = found
                            first[r, a, b], last[r, a, b] = front, back
                value[r, a, b] = best


@njit(cache=True, error_model="numpy")
def settle(work: Array, need: Array, room: Array, row: Array, bounds: Array) -> None:  # pragma: no cover
    """Move boundaries while that lowers the excess of bytes, then the largest load, then the sum of squared loads.

    A move shifts the boundaries i to j by one layer: stage i - 1 wins a layer (or loses one), stage j loses it.

    Parameters
    ----------
    work, need
        Load and bytes of layers [a, b) on each rank, shape (p, L + 1, L + 1).
    room
        Bytes that each rank may hold, shape (p,).
    row
        Rank of each stage, shape (S,).
    bounds
        Where each stage starts, and the end of the last one, shape (S + 1,). Changed in place.
    """
    stages, ranks = len(row), len(room)
    load, held = np.zeros(ranks, dtype=np.int64), np.zeros(ranks, dtype=np.int64)
    over, most, spread = 2**62, 2**62, np.inf
    while True:
        found = False
        for i in range(stages):
            for j in range(i, stages):
                for way in (-1, 1):
                    if i == 0 and (j > 0 or way > 0):  # i = 0: as it is, once
                        continue
                    if i > 0:
                        bounds[i : j + 1] += way
                    legal = True
                    for s in (max(i - 1, 0), j):
                        legal = legal and bounds[s + 1] > bounds[s]
                    if legal:
                        load[:], held[:] = 0, 0
                        for s in range(stages):
                            load[row[s]] += work[row[s], bounds[s], bounds[s + 1]]
                            held[row[s]] += need[row[s], bounds[s], bounds[s + 1]]
                        excess, top, square = 0, 0, 0.0
                        for r in range(ranks):
                            excess += max(0, held[r] - room[r])
                            top = max(top, load[r])
                            square += float(load[r]) ** 2
                        if (excess, top, square) < (over, most, spread):
                            over, most, spread = excess, top, square
                            found = found or i > 0
                            continue
                    if i > 0:
                        bounds[i : j + 1] -= way
        if not found:
            break
