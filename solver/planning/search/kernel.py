"""Compiled search over splits, rank orders and policies: each is judged by the greedy list scheduler."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from ...anneal.chance import Words, below, share
from ...core.instance import UNLIMITED
from ...core.schedule import Array
from ...greedy.kernel import FAR, WHOLE, run
from .moves import trade, transfer, vary
from .point import Point, Room
from .table import Table

# Compiled with chance.py 55b96f21
# Compiled with kernel.py c162278c
# Compiled with instance.py 666e9e52
# Compiled with moves.py 40e75598
# Compiled with point.py 69b8b633
# Compiled with table.py a6f7c70b

VALUE, BEST, TRIED = range(3)
"""Places in the array of values: of the point, of the best one, and the number of moves tried."""


@njit(cache=True, nogil=True)
def lay(table: Table, now: Point, room: Room) -> int:  # pragma: no cover
    """Fill in the prices of a point's stages; ticks before which no rank can be done, by its load and its start."""
    stages, count, ranks = len(now.row), len(table.which), len(now.rules)
    c = 0
    for r in range(ranks):
        room.first[r] = c
        room.room[r] = table.limit[r]
        for s in range(stages):
            if now.row[s] == r:
                room.stage_of[c] = s
                room.ahead[c] = now.ahead[s]
                room.room[r] -= table.static[now.bounds[s + 1]] - table.static[now.bounds[s]]
                c += 1
        if table.limit[r] >= UNLIMITED:
            room.room[r] = UNLIMITED
    room.first[ranks] = c
    for t in range(len(table.tie_static)):
        one = np.searchsorted(now.bounds, table.tie_layers[t, 0], side="right") - 1
        other = np.searchsorted(now.bounds, table.tie_layers[t, 1], side="right") - 1
        r = now.row[one]
        if r == now.row[other] and table.limit[r] < UNLIMITED:
            room.room[r] += table.tie_static[t]
    busiest, end = 0, 0
    for r in range(ranks):
        load = 0
        for k in range(room.first[r], room.first[r + 1]):
            s = room.stage_of[k]
            a, b, v = now.bounds[s], now.bounds[s + 1], table.speed[r]
            before = -1 if s == 0 else table.link[now.row[s - 1], r]
            after = -1 if s == stages - 1 else table.link[now.row[s + 1], r]
            for j in range(count):
                z = table.which[j]
                f, i, w = table.ticks[0, v, a, b, z], table.ticks[1, v, a, b, z], table.ticks[2, v, a, b, z]
                fused = table.ticks[3, v, a, b, z]
                room.rank[s, j] = r
                room.forward[s, j], room.backward_input[s, j] = f, i
                room.backward_weight[s, j], room.backward[s, j] = w, fused
                load += f + min(fused, i + w)
                room.activation[s, j], room.retained[s, j] = table.held[0, a, b, z], table.held[1, a, b, z]
                room.lag_forward[s, j] = 0 if before < 0 else table.lag[before, a - 1, z]
                room.lag_backward[s, j] = 0 if after < 0 else table.lag[after, b - 1, z]
        busiest = max(busiest, load)
        room.made[r] = load
    start = 0
    for s in range(stages):
        # The first micro-batch has passed all stages before a rank's first one when that can start.
        r = now.row[s]
        end = max(end, start + room.made[r])
        room.made[r] = 0
        start += room.forward[s, 0]
        if s + 1 < stages:
            start += room.lag_forward[s + 1, 0]
    each = busiest // count * now.pace[0] // 16
    for j in range(count):
        room.release[j] = max(0, j - now.pace[1]) * each
    return end


@njit(cache=True, nogil=True)
def value_of(table: Table, now: Point, room: Room, best: int) -> int:  # pragma: no cover
    """Makespan of a point's greedy schedule; `FAR` where it is not below `best`, or does not fit."""
    if lay(table, now, room) >= best:
        return FAR
    for r in range(len(now.rules)):
        if room.room[r] < 0:
            return FAR
    return run(
        room.first, room.stage_of, room.low, room.high, room.rank,
        room.forward, room.backward_input, room.backward_weight, room.backward, room.lag_forward, room.lag_backward,
        room.activation, room.retained, room.room, room.ahead, room.release,
        now.rules, False, best, room.codes, room.made, WHOLE[0], WHOLE[1], WHOLE[2], WHOLE[3], 1,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def take(target: Point, source: Point) -> None:  # pragma: no cover
    """Let one point be as another."""
    target.row[:] = source.row
    target.bounds[:] = source.bounds
    target.ahead[:] = source.ahead
    target.rules[:] = source.rules
    target.pace[:] = source.pace


@njit(cache=True, nogil=True)
def climb(
    table: Table,
    now: Point,
    trial: Point,
    best: Point,
    room: Room,
    values: Array,
    random: Words,
    moves: int,
    hot: float,
    cold: float,
    splits: float,
    trading: float,
    fusing: bool,
    goal: int,
) -> None:  # pragma: no cover
    """Anneal a point.

    Parameters
    ----------
    now, trial, best
        The point, room for another, and the best one found.
    values
        See `VALUE`; kept up to date.
    moves
        To try.
    hot, cold
        Temperatures to begin and to end with, in ticks.
    splits, trading
        Share of the moves that change the split or the order of ranks, and of these the share that do the latter.
    fusing
        Whether fused backwards may help.
    goal
        Stop at a value of at most this.
    """
    count = len(table.which)
    for move in range(moves):
        if values[BEST] <= goal:
            return
        take(trial, now)
        changed = False
        for _ in range(1 + (below(random, 5) < 2)):
            if share(random) >= splits:
                vary(trial, count, random, fusing)
                changed = True
            elif share(random) < trading:
                trade(trial, table.speed, table.limit, random)
                changed = True
            elif transfer(trial, random):
                changed = True
        if not changed:
            continue
        values[TRIED] += 1
        heat = hot + (cold - hot) * move / moves
        limit = values[VALUE] + 1
        if heat > 0:
            limit += int(min(-math.log(share(random)), 40.0) * heat)
        value = value_of(table, trial, room, limit)
        if value >= limit:
            continue
        values[VALUE] = value
        take(now, trial)
        if value < values[BEST]:
            values[BEST] = value
            take(best, trial)


@njit(cache=True, nogil=True)
def strain(table: Table, now: Point, room: Room) -> float:  # pragma: no cover
    """Ticks before which no rank can be done, raised where one has no room for a micro-batch: less lack is better."""
    end = lay(table, now, room)
    lack = 0.0
    for r in range(len(now.rules)):
        need = 0
        for k in range(room.first[r], room.first[r + 1]):
            need += room.activation[room.stage_of[k], 0]
        if room.room[r] < need:
            lack += (need - room.room[r]) / (table.limit[r] + 1.0)
    return end * (1.0 + 10.0 * lack)


@njit(cache=True, nogil=True)
def level(
    table: Table,
    now: Point,
    trial: Point,
    best: Point,
    room: Room,
    random: Words,
    moves: int,
    heat: float,
    trading: float,
) -> None:  # pragma: no cover
    """Anneal split and order of ranks for the least `strain`, from a temperature that is a share of it.

    Leaves the best in `now`; `best` is room for it.
    """
    value = strain(table, now, room)
    least = value
    take(best, now)
    for move in range(moves):
        take(trial, now)
        for _ in range(1 + below(random, 2)):
            if share(random) < trading:
                trade(trial, table.speed, table.limit, random)
            else:
                transfer(trial, random)
        limit = value * (1.0 - heat * (1.0 - move / moves) * math.log(share(random)))
        found = strain(table, trial, room)
        if found > limit:
            continue
        value = found
        take(now, trial)
        if value < least:
            least = value
            take(best, now)
    take(now, best)
