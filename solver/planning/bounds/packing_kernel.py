"""Compiled: whether layers of a few types can be packed into ranks in a given time."""

from __future__ import annotations

import numpy as np
from numba import njit

from ...core.schedule import Array

WORK, NEED, FORWARD, HELD, STATIC, BACK, PASS = range(7)
"""Columns of an item: nanoseconds of the batch, least bytes, minus the nanoseconds of one F, bytes that it takes, and
bytes before; nanoseconds of the batch's backwards, and of its F's and backwards until they pass the gradient on."""


@njit(cache=True, error_model="numpy")
def ahead(item: Array, holds: Array, order: Array, room: int, batch: int, op: int) -> float:  # pragma: no cover
    """Most nanoseconds of F's that a rank can run before its first backward ends: one of each of its layers, then as
    many as find room, those first that take least bytes for their time.

    Parameters
    ----------
    item, holds
        Columns of each type, and items of each type on the rank.
    order
        Types by time for each byte, most first.
    room
        Bytes that the rank may hold.
    batch, op
        Items of each layer in the whole batch; nanoseconds of each op beside its layers.
    """
    free, time = float(room), 0.0
    for k in range(len(holds)):
        free -= holds[k] * (item[k, STATIC] + item[k, HELD])
        time += holds[k] * (op - item[k, FORWARD])
    for k in order:
        more = float(holds[k] * (batch - 1))
        if item[k, HELD] > 0:
            more = min(more, max(0.0, free) / item[k, HELD])
        free -= more * item[k, HELD]
        time += more * (op - item[k, FORWARD])
    return time + 1.0  # not below it by what floats lose


@njit(cache=True, error_model="numpy")
def packs(
    item: Array, count: Array, order: Array, bins: Array, free: Array, between: Array, late: Array, limit: Array,
    apart: Array, first: int, last: int, batch: int, op: int, ops: int,
) -> bool:  # pragma: no cover  # fmt: skip
    """Whether every layer finds a rank.

    Ranks are filled in the order of their first layers. For every number of ranks of each class that are filled, of
    layers that these first runs hold beyond one each, and of items of the types from 1 on that are placed, the most
    items of type 0 beside them is kept.

    Parameters
    ----------
    item, count
        Columns of each type, shape (K, 7), and items of each type, shape (K,).
    order
        See `ahead`.
    bins
        Ranks of each class, shape (C,).
    free
        Nanoseconds at speed 1 from a rank's earliest start to the end, by the ranks that are filled before (their
        numbers by class, the first class counting fastest), the layers of their first runs beyond one each, and its
        class; shape (product of bins + 1, E, C).
    between
        The same to the earliest moment after which the rank only has W's.
    late
        The same from the earliest moment of its first backward, for each class: with the last layer, and without.
    limit
        Bytes that a rank may hold, by class.
    apart
        For each type, whether no two of its layers follow each other, shape (K,).
    first, last
        Type of the first layer, -1: not known; type of the last one, -1: not known or not the only one of its type.
    batch, op
        See `ahead`.
    ops
        Nanoseconds of one stage for the batch, beside its layers.
    """
    kinds, classes, extras = len(count), len(bins), free.shape[1]
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
    value = np.full((fills, extras, states), -1, dtype=np.int64)
    value[0, 0, 0] = 0
    holds = np.zeros(kinds, dtype=np.int64)
    for fill in range(fills - 1):
        for extra in range(extras):
            if value[fill, extra].max() < 0:
                continue
            for c in range(classes):
                if fill // jump[c] % (bins[c] + 1) == bins[c]:
                    continue
                target = fill + jump[c]
                holds[:] = 0
                time, room = free[fill, extra, c] - ops, limit[c]
                more = time >= 0
                while more:
                    offset, many = 0, 0
                    for k in range(1, kinds):
                        offset += holds[k] * stride[k]
                        many += holds[k]
                    most = count[0]
                    if item[0, WORK] > 0:
                        most = min(most, time // item[0, WORK])
                    if item[0, NEED] > 0:
                        most = min(most, room // item[0, NEED])
                    whole = far = False  # whether the most is found that fits with two stages, and with as many extras
                    for beside in range(most, -1, -1):
                        holds[0] = beside
                        if many + beside == 0 or (fill == 0 and first >= 0 and holds[first] == 0):
                            continue
                        to = late[c, int(last >= 0 and holds[last] == 0)]
                        by = min(float(free[fill, extra, c]), to + ahead(item, holds, order, limit[c], batch, op))
                        load = free[fill, extra, c] - time + beside * item[0, WORK]  # with the ops of one stage
                        back, passed, least = 0, 0, 1
                        for k in range(kinds):
                            if apart[k]:  # each run holds at most one layer of it more than of others
                                least = max(least, 2 * holds[k] - many - beside)
                            back += holds[k] * item[k, BACK]
                            passed += holds[k] * item[k, PASS]
                        for stages in (1, max(2, least)):
                            if (stages == 1 and least > 1) or (stages > 1 and (whole or many + beside < 2)):
                                continue
                            if load + (stages - 1) * ops > by or back + stages * ops // 2 > to:
                                continue
                            if passed + stages * ops > between[fill, extra, c]:
                                continue
                            after = extra if stages > 1 else min(extras - 1, extra + many + beside - 1)
                            if stages == 1 and after == extras - 1 and far:
                                continue
                            whole = whole or stages > 1
                            far = far or after == extras - 1
                            for state in range(states - offset):
                                before = value[fill, extra, state]
                                if before < 0:
                                    continue
                                fits = True
                                for k in range(1, kinds):
                                    fits = fits and state // stride[k] % (count[k] + 1) + holds[k] <= count[k]
                                if fits:
                                    placed = min(count[0], before + beside)
                                    if placed > value[target, after, state + offset]:
                                        value[target, after, state + offset] = placed
                    holds[0] = 0
                    # The next set of items of the types from 1 on that finds time and room.
                    more = False
                    for k in range(1, kinds):
                        if holds[k] < count[k] and time >= item[k, WORK] and room >= item[k, NEED]:
                            holds[k] += 1
                            time -= item[k, WORK]
                            room -= item[k, NEED]
                            more = True
                            break
                        time += holds[k] * item[k, WORK]
                        room += holds[k] * item[k, NEED]
                        holds[k] = 0
    return bool(value[fills - 1, :, states - 1].max() >= count[0])
