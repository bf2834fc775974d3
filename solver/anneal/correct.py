"""Compiled correction of heads and tails after a move: from op to op, as far as it changes anything."""

from __future__ import annotations

from .arrays import Now, Ops, Work
from .bare import inner
from .clock import head_of, tail_of

# Compiled with arrays.py f068824a
# Compiled with bare.py 8636d929
# Compiled with clock.py 8beebac7


@inner
def push(op: int, key: int, work: Work) -> int:  # pragma: no cover
    """Put an op on the list of a bucket; 1 if it was on none."""
    if work.queued[op] >= 0:
        return 0
    key = min(key, len(work.bucket) - 1)
    work.queued[op] = key
    work.chain[op] = work.bucket[key]
    work.bucket[key] = op
    return 1


@inner
def pop(at: int, work: Work) -> tuple[int, int]:  # pragma: no cover
    """Take an op off the first list that has one, from bucket `at` on; the op, and its bucket."""
    while work.bucket[at] < 0:
        at += 1
    op = work.bucket[at]
    work.bucket[at] = work.chain[op]
    work.queued[op] = -1
    return op, at


@inner
def correct_heads(
    low: int, size: int, changed: int, move: int, threshold: int, width: int, ops: Ops, now: Now, work: Work
) -> tuple[bool, int, int]:  # pragma: no cover
    """Give the ops of a move their new heads, and then all that these change; what they were is logged.

    Parameters
    ----------
    low, size
        Slots of the move.
    changed
        An op whose ticks have changed: those that wait for it are looked at even if it begins when it did; or -1.
    move
        Its number.
    threshold
        Where a way turns out to be longer than this, no more is done.
    width
        Ticks of a bucket of the queue.

    Returns
    -------
    tuple
        Whether no way was too long; the number of logged heads; the number of ops corrected.
    """
    changes, corrected, waiting, at_bucket = 0, 0, 0, len(work.bucket) - 1
    r = ops.rank[work.window[0]]
    for i in range(size):
        z = work.window[i]
        at = work.new_head[z]
        if at != now.head[z] or z == changed:
            work.logged[z] = move
            work.log_op[changes], work.log_head[changes] = z, now.head[z]
            changes += 1
            now.head[z] = at
            q = ops.target[z]
            if q >= 0:
                at_bucket = min(at_bucket, now.head[q] // width)
                waiting += push(q, now.head[q] // width, work)
    if low + size < ops.first[r] + now.used[r]:
        q = now.order[low + size]
        at_bucket = min(at_bucket, now.head[q] // width)
        waiting += push(q, now.head[q] // width, work)
    while waiting > 0:
        z, at_bucket = pop(at_bucket, work)
        waiting -= 1
        corrected += 1
        at = head_of(z, ops, now)
        if at == now.head[z]:
            continue
        if work.logged[z] != move:
            work.logged[z] = move
            work.log_op[changes], work.log_head[changes] = z, now.head[z]
            changes += 1
        now.head[z] = at
        at += now.ticks[z]
        if at + (work.new_tail[z] if work.mark[z] == 2 * move + 1 else now.tail[z]) > threshold:
            while waiting > 0:
                z, at_bucket = pop(at_bucket, work)
                waiting -= 1
            return False, changes, corrected
        place = now.slot[z]
        if place + 1 < ops.first[ops.rank[z]] + now.used[ops.rank[z]]:
            q = now.order[place + 1]
            waiting += push(q, max(at_bucket, max(now.head[q], at) // width), work)
        q = ops.target[z]
        if q >= 0:
            waiting += push(q, max(at_bucket, max(now.head[q], at + ops.target_lag[z]) // width), work)
    return True, changes, corrected


@inner
def correct_tails(
    low: int, size: int, changed: int, width: int, ops: Ops, now: Now, work: Work
) -> int:  # pragma: no cover
    """Give the ops of a move their new tails, and then all that these change; the number of ops corrected."""
    corrected, waiting, at_bucket = 0, 0, len(work.bucket) - 1
    for i in range(size):
        z = work.window[i]
        if work.new_tail[z] != now.tail[z] or z == changed:
            now.tail[z] = work.new_tail[z]
            q = ops.source[z]
            if q >= 0:
                at_bucket = min(at_bucket, now.tail[q] // width)
                waiting += push(q, now.tail[q] // width, work)
    if low > ops.first[ops.rank[work.window[0]]]:
        q = now.order[low - 1]
        at_bucket = min(at_bucket, now.tail[q] // width)
        waiting += push(q, now.tail[q] // width, work)
    while waiting > 0:
        z, at_bucket = pop(at_bucket, work)
        waiting -= 1
        corrected += 1
        way = tail_of(z, ops, now)
        if way == now.tail[z]:
            continue
        now.tail[z] = way
        way += now.ticks[z]
        place = now.slot[z]
        if place > ops.first[ops.rank[z]]:
            q = now.order[place - 1]
            waiting += push(q, max(at_bucket, max(now.tail[q], way) // width), work)
        q = ops.source[z]
        if q >= 0:
            waiting += push(q, max(at_bucket, max(now.tail[q], way + ops.source_lag[z]) // width), work)
    return corrected
