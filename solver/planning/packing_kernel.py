"""Compiled: whether layers of a few types fit into bins."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..core.schedule import Array


@njit(cache=True, error_model="numpy")
def packs(weight: Array, count: Array, room: Array, bins: Array) -> bool:  # pragma: no cover
    """Whether every item finds a place.

    Bins are filled one after the other. For every number of bins of each class that are filled and every number of
    items of the types from 1 on that are placed, the most items of type 0 that can be placed beside them is kept.

    Parameters
    ----------
    weight
        Of an item of each type in each resource, shape (K, R).
    count
        Items of each type, shape (K,).
    room
        Of a bin in each resource, by the bins that are filled before (their numbers by class, the first class counting
        fastest) and by its class, shape (product of bins + 1, C, R).
    bins
        Bins of each class, shape (C,).
    """
    kinds, resources, classes = len(count), weight.shape[1], len(bins)
    stride = np.ones(kinds, dtype=np.int64)
    states = 1
    for k in range(1, kinds):
        stride[k] = states
        states *= count[k] + 1
    jump = np.ones(classes, dtype=np.int64)
    fills = 1
    for c in range(classes):
        jump[c] = fills
        fills *= bins[c] + 1
    value = np.full((fills, states), -1, dtype=np.int64)
    value[0, 0] = 0
    used = np.zeros(kinds, dtype=np.int64)
    free = np.zeros(resources, dtype=np.int64)
    for fill in range(fills - 1):
        for c in range(classes):
            if fill // jump[c] % (bins[c] + 1) == bins[c]:
                continue
            used[:] = 0
            free[:] = room[fill, c]
            ok = True
            for x in range(resources):
                ok = ok and free[x] >= 0
            while ok:
                beside = count[0]
                for x in range(resources):
                    if weight[0, x] > 0:
                        beside = min(beside, free[x] // weight[0, x])
                offset = 0
                for k in range(1, kinds):
                    offset += used[k] * stride[k]
                for state in range(states - offset):
                    before = value[fill, state]
                    if before < 0:
                        continue
                    legal = True
                    for k in range(1, kinds):
                        legal = legal and state // stride[k] % (count[k] + 1) + used[k] <= count[k]
                    if legal:
                        after = min(count[0], before + beside)
                        if after > value[fill + jump[c], state + offset]:
                            value[fill + jump[c], state + offset] = after
                # The next set of items of the types from 1 on that finds room.
                ok = False
                for k in range(1, kinds):
                    fits = used[k] < count[k]
                    for x in range(resources):
                        fits = fits and free[x] >= weight[k, x]
                    if fits:
                        used[k] += 1
                        for x in range(resources):
                            free[x] -= weight[k, x]
                        ok = True
                        break
                    for x in range(resources):
                        free[x] += used[k] * weight[k, x]
                    used[k] = 0
    return bool(value[fills - 1, states - 1] >= count[0])
