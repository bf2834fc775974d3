"""Compiled annealing of the ranks' orders and of the granularity of their ops."""

from __future__ import annotations

import numpy as np

from ..core.schedule import Array
from .arrays import Now, Ops, Work
from .bare import bare, inner
from .chance import Words, below, share
from .clock import value_of
from .correct import correct_heads, correct_tails
from .estimate import promising
from .grain import regrain
from .pieces import NONE, OP, keep, restore, settle
from .reorder import reorder

# Compiled with arrays.py f068824a
# Compiled with bare.py 8636d929
# Compiled with chance.py 55b96f21
# Compiled with clock.py 8beebac7
# Compiled with correct.py e6740dfd
# Compiled with estimate.py fb8d3561
# Compiled with grain.py 28d36696
# Compiled with pieces.py 67154a81
# Compiled with reorder.py a3987cf3

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
        if not promising(low, was, size, r, move, threshold, ops, now, work):
            if kind != NONE:
                restore(now, work)
            continue
        counters[ESTIMATED] += 1
        place_all(window, low, was, size, r, ops, now)
        changed = work.saved[0, OP] if kind != NONE else -1
        fine, changes, corrected = correct_heads(low, size, changed, move, threshold, width, ops, now, work)
        counters[CORRECTED] += corrected
        after_value = value_of(ops, now, relative) if fine else value
        if not fine or after_value > threshold:
            counters[UNDONE] += 1
            for i in range(changes):
                now.head[work.log_op[i]] = work.log_head[i]
            place_all(old, low, size, was, r, ops, now)
            if kind != NONE:
                restore(now, work)
            continue

        counters[ACCEPTED] += 1
        counters[BY_KIND + kind] += 1
        state[VALUE] = after_value
        hold(low, was, size, r, ops, now)
        if kind != NONE:
            settle(kind, low + size, ops, now, work)
        counters[CORRECTED] += correct_tails(low, size, changed, width, ops, now, work)
        if after_value < state[BEST]:
            state[BEST] = after_value
            keep(ops, now)


@inner
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


@inner
def hold(low: int, was: int, size: int, r: int, ops: Ops, now: Now) -> None:  # pragma: no cover
    """Bytes held after the slots of a move, from slot `low` of rank r on; later ones hold what they did."""
    first, end = ops.first[r], ops.first[r] + now.used[r]
    if size < was:
        for place in range(low + size, end):
            now.held[place] = now.held[place + was - size]
    elif size > was:
        for place in range(end - 1, low + size - 1, -1):
            now.held[place] = now.held[place + was - size]
    held = now.held[low - 1] if low > first else ops.static[r]
    for place in range(low, low + size):
        held += now.net[now.order[place]]
        now.held[place] = held
