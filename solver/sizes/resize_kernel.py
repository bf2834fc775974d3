"""Compiled annealing of micro-batch sizes under a fixed order of ops. Kernels that call each other share a file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from ..core.schedule import Array

Words = npt.NDArray[np.uint64]

FAR = 2**62
"""A value above that of any schedule."""

BLOCK = 32
"""Ops between two places at which an evaluation can begin."""

VALUE, BEST, TRIED, TAKEN = range(4)
"""Places in the array of values and counters; see `anneal`."""


class Ops(NamedTuple):
    """What no move changes; n ops in an order in which each comes after those it waits for, Z sizes.

    Parameters
    ----------
    rank, batch, before
        Rank, micro-batch, and the two ops waited for (-1: none), shapes (n,), (n,), (n, 2).
    lag, ticks, take, swell, free
        Message times from those two, duration and bytes by size, shapes (n, 2, Z) and (n, Z); see `tables.OpPrices`.
    limit
        Bytes of each rank, shape (p,).
    first
        Each micro-batch's first op, shape (m,).
    sizes
        The sizes, ascending, shape (Z,).
    """

    rank: Array
    batch: Array
    before: Array
    lag: Array
    ticks: Array
    take: Array
    swell: Array
    free: Array
    limit: Array
    first: Array
    sizes: Array


class Kept(NamedTuple):
    """The sizes now and the best ones, and what was evaluated last of those now.

    Parameters
    ----------
    which, best
        Number of each micro-batch's size, shape (m,).
    known, end
        End of each op with the sizes now, and room for those with others, shape (n,).
    clocks, opened, held
        For each block, before its first op: each rank's last end, first start (-1: none yet) and bytes, shape (b, p).
    """

    which: Array
    best: Array
    known: Array
    end: Array
    clocks: Array
    opened: Array
    held: Array


@njit(cache=True)
def sequence(offsets: Array, before: Array, made: Array) -> int:  # pragma: no cover
    """An order of all ops in which each comes after those it waits for, and after those before it on its rank.

    Parameters
    ----------
    offsets
        First op of each rank, shape (p + 1,).
    before
        Ops that each op waits for (-1: none), shape (n, 2).
    made
        Filled with the place of each op in the order, shape (n,).

    Returns
    -------
    int
        Number of ops placed; below n when the ranks wait for each other.
    """
    ranks = len(offsets) - 1
    done = np.zeros(ranks, np.int64)
    made[:] = -1
    total, moved = 0, True
    while moved:
        moved = False
        for rank in range(ranks):
            while offsets[rank] + done[rank] < offsets[rank + 1]:
                op = offsets[rank] + done[rank]
                if (before[op, 0] >= 0 and made[before[op, 0]] < 0) or (before[op, 1] >= 0 and made[before[op, 1]] < 0):
                    break
                made[op] = total
                total += 1
                done[rank] += 1
                moved = True
    return total


@njit(cache=True)
def evaluate(
    ops: Ops, kept: Kept, which: Array, block: int, keep: bool, span: bool, below: int
) -> int:  # pragma: no cover
    """Value with the sizes `which`, by what is kept of all before a block; `FAR` where it does not stay below `below`.

    With `keep`, this evaluation is kept. What passes a memory limit has no value.
    """
    ranks, begin = len(ops.limit), block * BLOCK
    clock, first, held = kept.clocks[block].copy(), kept.opened[block].copy(), kept.held[block].copy()
    for op in range(begin, len(ops.rank)):
        if keep and op % BLOCK == 0:
            b = op // BLOCK
            kept.clocks[b], kept.opened[b], kept.held[b] = clock, first, held
        r, z = ops.rank[op], which[ops.batch[op]]
        at = clock[r]
        for slot in range(2):
            source = ops.before[op, slot]
            if source >= 0:
                at = max(at, (kept.end[source] if source >= begin else kept.known[source]) + ops.lag[op, slot, z])
        if first[r] < 0:
            first[r] = at
        at += ops.ticks[op, z]
        held[r] += ops.take[op, z]
        if at - (first[r] if span else 0) >= below or held[r] + ops.swell[op, z] > ops.limit[r]:
            return FAR
        held[r] -= ops.free[op, z]
        clock[r] = at
        kept.end[op] = at
        if keep:
            kept.known[op] = at
    value = 0
    for r in range(ranks):
        value = max(value, clock[r] - (first[r] if span else 0))
    return value


@njit(cache=True)
def number_of(sizes: Array, size: int) -> int:  # pragma: no cover
    """Number of a size among the allowed ones, ascending; -1 where it is none of them."""
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        if sizes[middle] < size:
            low = middle + 1
        else:
            high = middle
    return low if low < len(sizes) and sizes[low] == size else -1


@njit(cache=True)
def draw(random: Words) -> float:  # pragma: no cover
    """A random number from 0 to below 1 (xorshift64*)."""
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    return float((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True)
def propose(which: Array, fresh: Array, sizes: Array, random: Words) -> tuple[int, int]:  # pragma: no cover
    """Make another division of the same sum in `fresh`, which equals `which`; first and last change, -1: none found."""
    m, allowed = len(which), len(sizes)
    i = int(draw(random) * m)
    if draw(random) < 0.5:
        j = i + int(draw(random) * 13) - 6
    else:
        j = int(draw(random) * m)
    if j < 0 or j >= m or i == j:
        return -1, -1
    low, high = min(i, j), max(i, j)
    kind = draw(random)
    if kind < 0.2:
        if which[i] == which[j]:
            return -1, -1
        fresh[i], fresh[j] = which[j], which[i]
        return low, high
    if kind < 0.4:
        # One goes to the other's place; those between move up.
        if i < j:
            fresh[i:j] = which[i + 1 : j + 1]
        else:
            fresh[j + 1 : i + 1] = which[j:i]
        fresh[j] = which[i]
        while low <= high and fresh[low] == which[low]:
            low += 1
        return (low, high) if low <= high else (-1, -1)
    step = 1 if draw(random) < 0.8 else 1 + int(draw(random) * allowed)
    one = which[i] + (step if draw(random) < 0.5 else -step)
    if one < 0 or one >= allowed:
        return -1, -1
    left = sizes[which[j]] + sizes[which[i]] - sizes[one]
    other = number_of(sizes, left)
    fresh[i] = one
    if other >= 0 and kind < 0.9:
        fresh[j] = other
        return low, high
    # A third one makes up for what the second cannot, where steps are unequal.
    k = int(draw(random) * m)
    near = which[j] + (1 if one < which[i] else -1)
    if k in (i, j) or near < 0 or near >= allowed:
        return -1, -1
    other = number_of(sizes, left - sizes[near] + sizes[which[k]])
    if other < 0:
        return -1, -1
    fresh[j], fresh[k] = near, other
    return min(low, k), max(high, k)


@njit(cache=True)
def anneal(
    ops: Ops, kept: Kept, values: Array, random: Words, span: bool, moves: int, hot: float, cold: float
) -> None:  # pragma: no cover
    """Propose other sizes, and take those that are no worse than the temperature, from `hot` to `cold` ticks, allows.

    Parameters
    ----------
    values
        `VALUE`, `BEST`: value now, and of the best. `TRIED`, `TAKEN`: divisions evaluated, and taken; shape (4,).
    """
    which = kept.which
    fresh = which.copy()
    for move in range(moves):
        low, high = propose(which, fresh, ops.sizes, random)
        if low < 0:
            fresh[:] = which
            continue
        heat = hot + (cold - hot) * move / moves
        below = values[VALUE] + 1 + int(-heat * np.log(1.0 - draw(random)))
        start = len(ops.rank)
        for j in range(low, high + 1):
            if fresh[j] != which[j]:
                start = min(start, ops.first[j])
        block = start // BLOCK
        values[TRIED] += 1
        value = evaluate(ops, kept, fresh, block, False, span, below)
        if value >= below:
            fresh[low : high + 1] = which[low : high + 1]
            continue
        evaluate(ops, kept, fresh, block, True, span, below)
        which[low : high + 1] = fresh[low : high + 1]
        values[VALUE] = value
        values[TAKEN] += 1
        if value < values[BEST]:
            values[BEST] = value
            kept.best[:] = which
