"""Compiled annealing of the ranks' orders and of the granularity of their ops."""

from __future__ import annotations

import numpy as np

from ..core.schedule import Array
from .arrays import Now, Ops, Work
from .bare import bare
from .chance import Words, below, share
from .clock import head_of, pop, push, tail_of, value_of
from .grain import NONE, OP, keep, regrain, restore, settle
from .reorder import reorder

# Compiled with bare.py 9eaf370f
# Compiled with chance.py acb2308e
# Compiled with clock.py 25a4d9e3
# Compiled with grain.py e6815433
# Compiled with reorder.py cc721bc4

PROPOSED, ESTIMATED, ACCEPTED, UNDONE, CORRECTED, BY_KIND = range(6)
COUNTERS = 11
"""Places in the array of counters, and their number; from `BY_KIND` on, moves taken of each kind. See `anneal`."""

VALUE, BEST, MOVE = range(3)
"""Places in the array that lives from call to call: value, best value, and moves proposed so far."""

_TRIES = 60
"""Ops drawn at random until one is on a critical path."""


@bare
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
    grain: int,
    fusing: bool,
    cutting: bool,
    target: int,
) -> None:  # pragma: no cover
    """Propose moves: ops go a few places earlier or later on their rank, or become finer or coarser; see `reorder` and
    `grain`.

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
    grain, fusing, cutting
        Moves of a hundred that are to change granularity; whether there may be fused backwards, and parts of weight
        gradients.
    target
        Stop at a value of at most this.
    """
    pairs = len(ops.alike)
    window, old = work.window, work.old
    for step in range(moves):
        if state[BEST] <= target:
            return
        state[MOVE] += 1
        move = state[MOVE]
        counters[PROPOSED] += 1
        value = state[VALUE]

        # An op of a critical path, where one is found soon.
        op = now.live[below(random, now.used[-1])]
        if below(random, 16) < 15:
            for _ in range(_TRIES):
                if now.head[op] + now.ticks[op] + now.tail[op] == value:
                    break
                op = now.live[below(random, now.used[-1])]
        r = ops.rank[op]
        first, stop = ops.first[r], ops.first[r] + now.used[r]
        kind = NONE
        if grain > 0 and op >= pairs and below(random, 100) < grain:
            kind, low, was, size = regrain(op, first, stop, fusing, cutting, ops, now, work, random, reach)
            if kind == NONE:
                continue
        else:
            low, size = reorder(op, first + relative, stop, now.order, now.slot, now.family, old, window, random, reach)
            was = size
            if size == 0:
                continue

        heat = hot + (cold - hot) * (step / moves)
        threshold = value
        if heat > 0.0:
            threshold += np.int64(-heat * np.log(share(random)))
        legal = True
        room = ops.limit[r]
        held = now.held[low - 1] if low > first else ops.static[r]
        for i in range(size):
            z = window[i]
            if held + now.peak[z] > room:
                legal = False
                break
            held += now.net[z]

        # New heads and tails of the window.
        if legal:
            for i in range(size):
                work.mark[window[i]] = 2 * move
            at = 0
            if low > first:
                previous = now.order[low - 1]
                at = now.head[previous] + now.ticks[previous]
            for i in range(size):
                z = window[i]
                q = now.own[z]
                if q >= 0 and work.mark[q] == 2 * move:
                    legal = False
                    break
                q = ops.source[z]
                if q >= 0:
                    if work.mark[q] == 2 * move:
                        legal = False
                        break
                    there = work.new_head[q] if work.mark[q] == 2 * move + 1 else now.head[q]
                    at = max(at, there + now.ticks[q] + ops.source_lag[z])
                work.new_head[z] = at
                work.mark[z] = 2 * move + 1
                at += now.ticks[z]
        if legal:
            way = ops.rest[r]
            if low + was < stop:
                following = now.order[low + was]
                way = now.tail[following] + now.ticks[following]
            for i in range(size - 1, -1, -1):
                z = window[i]
                q = ops.target[z]
                if q >= 0:
                    there = work.new_tail[q] if work.mark[q] == 2 * move + 1 else now.tail[q]
                    way = max(way, ops.target_lag[z] + now.ticks[q] + there)
                work.new_tail[z] = way
                way += now.ticks[z]
                if work.new_head[z] + way > threshold:
                    legal = False
                    break
        if not legal:
            if kind != NONE:
                restore(now, work)
            continue
        counters[ESTIMATED] += 1

        # Take it: order, then heads.
        place_all(window, low, was, size, r, ops, now)
        changes, waiting, at_bucket = 0, 0, len(work.bucket) - 1
        for i in range(size):
            z = window[i]
            at = work.new_head[z]
            # Where its ticks may have changed, those that wait for it are looked at even if it begins when it did.
            if at != now.head[z] or (kind != NONE and z == work.saved[0, OP]):
                work.logged[z] = move
                work.log_op[changes] = z
                work.log_head[changes] = now.head[z]
                changes += 1
                now.head[z] = at
                q = ops.target[z]
                if q >= 0:
                    key = now.head[q] // width
                    at_bucket = min(at_bucket, key)
                    waiting += push(q, key, work)
        if low + size < first + now.used[r]:
            z = now.order[low + size]
            key = now.head[z] // width
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
            at += now.ticks[z]
            if at + (work.new_tail[z] if work.mark[z] == 2 * move + 1 else now.tail[z]) > threshold:
                failed = True
                break
            place = now.slot[z]
            if place + 1 < ops.first[ops.rank[z]] + now.used[ops.rank[z]]:
                q = now.order[place + 1]
                key = max(at_bucket, max(now.head[q], at) // width)
                waiting += push(q, key, work)
            q = ops.target[z]
            if q >= 0:
                key = max(at_bucket, max(now.head[q], at + ops.target_lag[z]) // width)
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
            place_all(old, low, size, was, r, ops, now)
            if kind != NONE:
                restore(now, work)
            continue

        # Bytes, whose the pieces are, and tails.
        counters[ACCEPTED] += 1
        counters[BY_KIND + kind] += 1
        state[VALUE] = after_value
        if size != was:
            end = first + now.used[r]
            if size < was:
                for place in range(low + size, end):
                    now.held[place] = now.held[place + 1]
            else:
                for place in range(end - 1, low + size - 1, -1):
                    now.held[place] = now.held[place - 1]
        held = now.held[low - 1] if low > first else ops.static[r]
        for i in range(size):
            held += now.net[window[i]]
            now.held[low + i] = held
        if kind != NONE:
            settle(kind, low + size, ops, now, work)
        at_bucket = len(work.bucket) - 1
        for i in range(size):
            z = window[i]
            if work.new_tail[z] != now.tail[z] or (kind != NONE and z == work.saved[0, OP]):
                now.tail[z] = work.new_tail[z]
                q = ops.source[z]
                if q >= 0:
                    key = now.tail[q] // width
                    at_bucket = min(at_bucket, key)
                    waiting += push(q, key, work)
        if low > first:
            z = now.order[low - 1]
            key = now.tail[z] // width
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
            way += now.ticks[z]
            place = now.slot[z]
            if place > ops.first[ops.rank[z]]:
                q = now.order[place - 1]
                waiting += push(q, max(at_bucket, max(now.tail[q], way) // width), work)
            q = ops.source[z]
            if q >= 0:
                key = max(at_bucket, max(now.tail[q], way + ops.source_lag[z]) // width)
                waiting += push(q, key, work)
        if after_value < state[BEST]:
            state[BEST] = after_value
            keep(ops, now)


@bare
def place_all(window: Array, low: int, was: int, size: int, r: int, ops: Ops, now: Now) -> None:  # pragma: no cover
    """Let `size` ops of `window` take the place of the `was` ops of rank r from slot `low` on."""
    end = ops.first[r] + now.used[r]
    if size < was:
        for place in range(low + was, end):
            op = now.order[place]
            now.order[place - was + size] = op
            now.slot[op] = place - was + size
    elif size > was:
        for place in range(end - 1, low + was - 1, -1):
            op = now.order[place]
            now.order[place - was + size] = op
            now.slot[op] = place - was + size
    now.used[r] += size - was
    for i in range(size):
        now.order[low + i] = window[i]
        now.slot[window[i]] = low + i
