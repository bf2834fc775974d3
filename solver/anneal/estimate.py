"""Compiled judgement of a move from the slots it touches alone."""

from __future__ import annotations

from .arrays import Now, Ops, Work
from .bare import inner

# Compiled with arrays.py f068824a
# Compiled with bare.py 8636d929


@inner
def promising(
    low: int, was: int, size: int, r: int, move: int, threshold: int, ops: Ops, now: Now, work: Work
) -> bool:  # pragma: no cover
    """Whether a move is legal, and no way through the ops of its slots is longer than a threshold.

    Fills `work.new_head` and `work.new_tail` of these ops, and marks them with twice the move's number, and 1.

    Parameters
    ----------
    low, was, size, r
        The `size` ops of `work.window` come in the place of `was` ops of rank r, from slot `low` on.
    move
        Its number.
    """
    window, mark, first = work.window, work.mark, ops.first[r]
    held, room = now.held[low - 1] if low > first else ops.static[r], ops.limit[r]
    for i in range(size):
        z = window[i]
        if held + now.peak[z] > room:
            return False
        held += now.net[z]

    for i in range(size):
        mark[window[i]] = 2 * move
    at = 0
    if low > first:
        previous = now.order[low - 1]
        at = now.head[previous] + now.ticks[previous]
    for i in range(size):
        z = window[i]
        # What comes before an op on its rank, and what it waits for, must not come after it here.
        own, source = now.own[z], ops.source[z]
        if own >= 0 and mark[own] == 2 * move:
            return False
        if source >= 0:
            if mark[source] == 2 * move:
                return False
            there = work.new_head[source] if mark[source] == 2 * move + 1 else now.head[source]
            at = max(at, there + now.ticks[source] + ops.source_lag[z])
        work.new_head[z] = at
        mark[z] = 2 * move + 1
        at += now.ticks[z]

    way = ops.rest[r]
    if low + was < first + now.used[r]:
        following = now.order[low + was]
        way = now.tail[following] + now.ticks[following]
    for i in range(size - 1, -1, -1):
        z = window[i]
        target = ops.target[z]
        if target >= 0:
            there = work.new_tail[target] if mark[target] == 2 * move + 1 else now.tail[target]
            way = max(way, ops.target_lag[z] + now.ticks[target] + there)
        work.new_tail[z] = way
        way += now.ticks[z]
        if work.new_head[z] + way > threshold:
            return False
    return True
