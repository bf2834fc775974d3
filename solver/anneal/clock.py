"""Compiled times of an order: heads, tails and value."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ..core.schedule import Array
from .arrays import Now, Ops
from .bare import bare, inner

# Compiled with arrays.py f068824a
# Compiled with bare.py 8636d929


@inner
def head_of(op: int, ops: Ops, now: Now) -> Any:  # pragma: no cover
    """Earliest start of an op, from those of the ops it waits for."""
    at = 0
    place = now.slot[op]
    if place > ops.first[ops.rank[op]]:
        previous = now.order[place - 1]
        at = now.head[previous] + now.ticks[previous]
    source = ops.source[op]
    if source >= 0:
        at = max(at, now.head[source] + now.ticks[source] + ops.source_lag[op])
    return at


@inner
def tail_of(op: int, ops: Ops, now: Now) -> Any:  # pragma: no cover
    """Longest way from the end of an op to the end of the schedule, from those of the ops that wait for it."""
    place, r = now.slot[op], ops.rank[op]
    if place + 1 < ops.first[r] + now.used[r]:
        following = now.order[place + 1]
        at = now.tail[following] + now.ticks[following]
    else:
        at = ops.rest[r]
    target = ops.target[op]
    if target >= 0:
        at = max(at, ops.target_lag[op] + now.ticks[target] + now.tail[target])
    return at


@bare
def value_of(ops: Ops, now: Now, relative: bool) -> Any:  # pragma: no cover
    """Latest end of any rank, its `rest` added; `relative`: less what its first op starts later than `begin`."""
    value = 0
    for r in range(len(ops.first) - 1):
        if now.used[r] > 0:
            last = now.order[ops.first[r] + now.used[r] - 1]
            end = now.head[last] + now.ticks[last] + ops.rest[r]
            if relative:
                end += ops.begin[r] - now.head[now.order[ops.first[r]]]
            value = max(value, end)
    return value


@njit(cache=True)
def fill(ops: Ops, now: Now, queue: Array) -> bool:  # pragma: no cover
    """Heads, tails and bytes of all ops, from nothing; False when the order deadlocks."""
    ranks, n = len(ops.static), now.used[-1]
    waits = np.zeros(len(now.order), np.int64)
    stop = 0
    for r in range(ranks):
        held = ops.static[r]
        for place in range(ops.first[r], ops.first[r] + now.used[r]):
            op = now.order[place]
            held += now.net[op]
            now.held[place] = held
            waits[op] = (place > ops.first[r]) + (ops.source[op] >= 0)
            if waits[op] == 0:
                queue[stop] = op
                stop += 1
    done = 0
    while done < stop:
        op = queue[done]
        done += 1
        now.head[op] = head_of(op, ops, now)
        place, r = now.slot[op], ops.rank[op]
        if place + 1 < ops.first[r] + now.used[r]:
            following = now.order[place + 1]
            waits[following] -= 1
            if waits[following] == 0:
                queue[stop] = following
                stop += 1
        target = ops.target[op]
        if target >= 0:
            waits[target] -= 1
            if waits[target] == 0:
                queue[stop] = target
                stop += 1
    if stop < n:
        return False
    for i in range(n - 1, -1, -1):
        now.tail[queue[i]] = tail_of(queue[i], ops, now)
    return True
