"""Compiled annealing of the ranks' orders. Kernels that call each other share a file: numba's cache sees no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from ..core.schedule import Array
from .arrays import Now, Ops, Work

Words = npt.NDArray[np.uint64]

PROPOSED, ESTIMATED, ACCEPTED, UNDONE, CORRECTED = range(5)
COUNTERS = 5
"""Places in the array of counters, and their number; see `anneal`."""

VALUE, BEST, MOVE = range(3)
"""Places in the array that lives from call to call: value, best value, and moves proposed so far."""

_TRIES = 60
"""Ops drawn at random until one is on a critical path."""

_BLOCK = 4
"""Ops that move together at most."""


@njit(cache=True)
def draw(random: Words) -> Any:  # pragma: no cover
    """Next number of a xorshift generator (Marsaglia, 2003)."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return x


@njit(cache=True)
def below(random: Words, n: int) -> Any:  # pragma: no cover
    """Random integer of 0..n-1."""
    return np.int64((draw(random) >> np.uint64(11)) % np.uint64(n))


@njit(cache=True)
def share(random: Words) -> float:  # pragma: no cover
    """Random number above 0, at most 1."""
    return (np.float64(draw(random) >> np.uint64(11)) + 1.0) / 9007199254740992.0


@njit(cache=True)
def head_of(op: int, ops: Ops, now: Now) -> Any:  # pragma: no cover
    """Earliest start of an op, from those of the ops it waits for."""
    at = 0
    place = now.slot[op]
    if place > ops.first[ops.rank[op]]:
        previous = now.order[place - 1]
        at = now.head[previous] + ops.ticks[previous]
    for k in range(2):
        source = ops.before[op, k]
        if source >= 0:
            at = max(at, now.head[source] + ops.ticks[source] + ops.lag[op, k])
    return at


@njit(cache=True)
def tail_of(op: int, ops: Ops, now: Now) -> Any:  # pragma: no cover
    """Longest way from the end of an op to the end of the schedule, from those of the ops that wait for it."""
    place = now.slot[op]
    if place + 1 < ops.first[ops.rank[op] + 1]:
        following = now.order[place + 1]
        at = now.tail[following] + ops.ticks[following]
    else:
        at = ops.rest[ops.rank[op]]
    for k in range(ops.first_after[op], ops.first_after[op + 1]):
        target = ops.after[k]
        at = max(at, ops.after_lag[k] + ops.ticks[target] + now.tail[target])
    return at


@njit(cache=True)
def value_of(ops: Ops, now: Now, relative: bool) -> Any:  # pragma: no cover
    """Latest end of any rank, its `rest` added; `relative`: less what its first op starts later than `begin`."""
    value = 0
    for r in range(len(ops.first) - 1):
        if ops.first[r + 1] > ops.first[r]:
            last = now.order[ops.first[r + 1] - 1]
            end = now.head[last] + ops.ticks[last] + ops.rest[r]
            if relative:
                end += ops.begin[r] - now.head[now.order[ops.first[r]]]
            value = max(value, end)
    return value


@njit(cache=True)
def fill(ops: Ops, now: Now, queue: Array) -> bool:  # pragma: no cover
    """Heads and tails of all ops, from nothing; False when the order deadlocks."""
    n = len(now.order)
    waits = np.zeros(n, np.int64)
    for op in range(n):
        waits[op] = (now.slot[op] > ops.first[ops.rank[op]]) + (ops.before[op, 0] >= 0) + (ops.before[op, 1] >= 0)
    stop = 0
    for op in range(n):
        if waits[op] == 0:
            queue[stop] = op
            stop += 1
    done = 0
    while done < stop:
        op = queue[done]
        done += 1
        now.head[op] = head_of(op, ops, now)
        place = now.slot[op]
        if place + 1 < ops.first[ops.rank[op] + 1]:
            following = now.order[place + 1]
            waits[following] -= 1
            if waits[following] == 0:
                queue[stop] = following
                stop += 1
        for k in range(ops.first_after[op], ops.first_after[op + 1]):
            waits[ops.after[k]] -= 1
            if waits[ops.after[k]] == 0:
                queue[stop] = ops.after[k]
                stop += 1
    if stop < n:
        return False
    for i in range(n - 1, -1, -1):
        op = queue[i]
        now.tail[op] = tail_of(op, ops, now)
    return True


@njit(cache=True)
def push(op: int, key: int, work: Work) -> int:  # pragma: no cover
    """Put an op on the list of a bucket; 1 if it was on none."""
    if work.queued[op] >= 0:
        return 0
    key = min(key, len(work.bucket) - 1)
    work.queued[op] = key
    work.chain[op] = work.bucket[key]
    work.bucket[key] = op
    return 1


@njit(cache=True)
def pop(at: int, work: Work) -> tuple[int, int]:  # pragma: no cover
    """Take an op off the first list that has one, from bucket `at` on; the op, and its bucket."""
    while work.bucket[at] < 0:
        at += 1
    op = work.bucket[at]
    work.bucket[at] = work.chain[op]
    work.queued[op] = -1
    return op, at


@njit(cache=True)
def anneal(
    ops: Ops,
    now: Now,
    work: Work,
    width: int,
    relative: bool,
    random: Words,
    state: Array,
    counters: Array,
    moves: int,
    hot: float,
    cold: float,
    reach: int,
    target: int,
) -> None:  # pragma: no cover
    """Propose moves: an op or a few go a few places earlier or later on their rank, or two ops change places.

    A move is judged by the longest way through the ops it touches, from their new heads and tails; nearly all that are
    worse than the temperature allows are turned down by that, without touching anything else. What a move that is
    taken changes is corrected from op to op, in the order of time, and only as far as it changes anything.

    Parameters
    ----------
    width
        Ticks of a bucket in the queue of ops to correct.
    relative
        Whether the value counts from each rank's first start; first ops stay where they are then.
    random, state, counters
        State of the generator; the values; counts of moves and corrections.
    moves, hot, cold
        Moves to propose, and temperatures in ticks at the first and at the last.
    reach
        Places that an op moves at most, as a rule.
    target
        Stop at a value of at most this.
    """
    n = len(now.order)
    window, old = np.empty(4 * reach + _BLOCK, np.int64), np.empty(4 * reach + _BLOCK, np.int64)
    for step in range(moves):
        if state[BEST] <= target:
            return
        state[MOVE] += 1
        move = state[MOVE]
        counters[PROPOSED] += 1
        value = state[VALUE]

        # An op of a critical path, where one is found soon.
        op = below(random, n)
        if below(random, 16) < 15:
            for _ in range(_TRIES):
                if now.head[op] + ops.ticks[op] + now.tail[op] == value:
                    break
                op = below(random, n)
        r = ops.rank[op]
        start, stop = ops.first[r], ops.first[r + 1]
        if relative:
            start += 1
        far = 1 + below(random, reach)
        pick = below(random, 16)
        if pick == 0:
            far = 1 + below(random, 4 * reach)
        elif pick < 6:
            far = 1
        exchange = far > 1 and below(random, 4) == 0
        block = 1 if exchange or below(random, 4) > 0 else 1 + below(random, _BLOCK)
        low = now.slot[op] - below(random, block)
        back = below(random, 2) == 0
        if back:
            low -= far
        size = block + far
        if low < start or low + size > stop:
            continue

        # The ops in their new order: two of them change places, or a block and the ops before or after it do. Ops of
        # one family do not pass each other.
        turn = far if back else block
        for i in range(size):
            old[i] = now.order[low + i]
            window[i] = now.order[low + i if exchange else low + (i + turn) % size]
        legal = True
        if exchange:
            window[0], window[far] = old[far], old[0]
            for i in range(1, size):
                legal = legal and ops.family[old[i]] != ops.family[old[0]]
                legal = legal and ops.family[old[i - 1]] != ops.family[old[far]]
        else:
            for i in range(turn):
                for k in range(turn, size):
                    legal = legal and ops.family[old[i]] != ops.family[old[k]]
        if not legal:
            continue
        room = ops.limit[r]
        bytes_now = now.held[low - 1] if low > ops.first[r] else ops.static[r]
        for i in range(size):
            z = window[i]
            bytes_now += ops.take[z]
            if bytes_now + ops.swell[z] > room:
                legal = False
                break
            bytes_now -= ops.free[z]
        if not legal:
            continue

        # New heads and tails of the window.
        heat = hot + (cold - hot) * (step / moves)
        threshold = value
        if heat > 0.0:
            threshold += np.int64(-heat * np.log(share(random)))
        for i in range(size):
            work.mark[window[i]] = 2 * move
        at = 0
        if low > ops.first[r]:
            previous = now.order[low - 1]
            at = now.head[previous] + ops.ticks[previous]
        for i in range(size):
            z = window[i]
            for k in range(2):
                q = ops.before[z, k]
                if q >= 0:
                    if work.mark[q] == 2 * move:
                        legal = False
                        break
                    there = work.new_head[q] if work.mark[q] == 2 * move + 1 else now.head[q]
                    at = max(at, there + ops.ticks[q] + ops.lag[z, k])
            if not legal:
                break
            work.new_head[z] = at
            work.mark[z] = 2 * move + 1
            at += ops.ticks[z]
        if not legal:
            continue
        way = ops.rest[r]
        if low + size < ops.first[r + 1]:
            following = now.order[low + size]
            way = now.tail[following] + ops.ticks[following]
        for i in range(size - 1, -1, -1):
            z = window[i]
            for k in range(ops.first_after[z], ops.first_after[z + 1]):
                q = ops.after[k]
                there = work.new_tail[q] if work.mark[q] == 2 * move + 1 else now.tail[q]
                way = max(way, ops.after_lag[k] + ops.ticks[q] + there)
            work.new_tail[z] = way
            way += ops.ticks[z]
            if work.new_head[z] + way > threshold:
                legal = False
                break
        if not legal:
            continue
        counters[ESTIMATED] += 1

        # Take it: order, then heads.
        for i in range(size):
            now.order[low + i] = window[i]
            now.slot[window[i]] = low + i
        changes, waiting, at_bucket = 0, 0, len(work.bucket) - 1
        for i in range(size + 1):
            if low + i < ops.first[r + 1]:
                z = now.order[low + i]
                key = (work.new_head[z] if i < size else now.head[z]) // width
                at_bucket = min(at_bucket, key)
                waiting += push(z, key, work)
        failed = False
        while waiting > 0:
            z, at_bucket = pop(at_bucket, work)
            waiting -= 1
            counters[CORRECTED] += 1
            at = head_of(z, ops, now)
            if at == now.head[z]:
                continue
            if work.logged[z] != move:
                work.logged[z] = move
                work.log_op[changes] = z
                work.log_head[changes] = now.head[z]
                changes += 1
            now.head[z] = at
            at += ops.ticks[z]
            if at + (work.new_tail[z] if work.mark[z] == 2 * move + 1 else now.tail[z]) > threshold:
                failed = True
                break
            place = now.slot[z]
            if place + 1 < ops.first[ops.rank[z] + 1]:
                q = now.order[place + 1]
                key = max(at_bucket, max(now.head[q], at) // width)
                waiting += push(q, key, work)
            for k in range(ops.first_after[z], ops.first_after[z + 1]):
                q = ops.after[k]
                key = max(at_bucket, max(now.head[q], at + ops.after_lag[k]) // width)
                waiting += push(q, key, work)
        after_value = value
        if not failed:
            after_value = value_of(ops, now, relative)
            failed = after_value > threshold
        if failed:
            counters[UNDONE] += 1
            while waiting > 0:
                z, at_bucket = pop(at_bucket, work)
                waiting -= 1
            for i in range(changes):
                now.head[work.log_op[i]] = work.log_head[i]
            for i in range(size):
                now.order[low + i] = old[i]
                now.slot[old[i]] = low + i
            continue

        # Bytes and tails.
        counters[ACCEPTED] += 1
        state[VALUE] = after_value
        bytes_now = now.held[low - 1] if low > ops.first[r] else ops.static[r]
        for i in range(size):
            bytes_now += ops.take[window[i]] - ops.free[window[i]]
            now.held[low + i] = bytes_now
        at_bucket = len(work.bucket) - 1
        for i in range(-1, size):
            if low + i >= ops.first[r]:
                z = now.order[low + i]
                key = (work.new_tail[z] if i >= 0 else now.tail[z]) // width
                at_bucket = min(at_bucket, key)
                waiting += push(z, key, work)
        while waiting > 0:
            z, at_bucket = pop(at_bucket, work)
            waiting -= 1
            counters[CORRECTED] += 1
            way = tail_of(z, ops, now)
            if way == now.tail[z]:
                continue
            now.tail[z] = way
            way += ops.ticks[z]
            place = now.slot[z]
            if place > ops.first[ops.rank[z]]:
                q = now.order[place - 1]
                waiting += push(q, max(at_bucket, max(now.tail[q], way) // width), work)
            for k in range(2):
                q = ops.before[z, k]
                if q >= 0:
                    key = max(at_bucket, max(now.tail[q], way + ops.lag[z, k]) // width)
                    waiting += push(q, key, work)
        if after_value < state[BEST]:
            state[BEST] = after_value
            now.best_order[:] = now.order
