"""The policy itself, and its simulation, compiled. Kernels that call each other share a file."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..core.schedule import Array
from .arrays import Pieces, State

# Compiled with arrays.py 905479b2

WAIT = -1
"""Nothing should run until the next fixed op's message is there."""

END = -2
"""Everything has run."""

FAR = 2**62


@njit(cache=True)
def first_unit(x: Pieces, y: State, rank: int) -> int:  # pragma: no cover
    """The unit that comes first of those that may run; -1 where there is none."""
    found = -1
    for unit in range(y.head[rank], y.ready[rank]):
        if not y.done[unit] and (found < 0 or x.key[unit] < x.key[found]):
            found = unit
    return found


@njit(cache=True)
def choose(x: Pieces, y: State, rank: int, now: int, arrived: bool) -> int:  # pragma: no cover
    """What a free rank does now: the policy.

    The next fixed op, where its message is there and it fits. Else a unit: always where the op does not fit without, or
    where the plan runs the unit before the op anyway; and one that the plan runs later, where it ends before the op's
    latest start. That is later by as much as the rank has already seen an op start beyond its own: the plan is lost by
    so much whatever is done now. So without noise a unit that is pulled forward does not delay what the plan needs.

    Parameters
    ----------
    now
        Time since the step began.
    arrived
        Whether all that the rank's next fixed op waits for is there.

    Returns
    -------
    int
        The next fixed op, or f + the number of a unit, or `WAIT`, or `END`.
    """
    unit, op, fixed = first_unit(x, y, rank), int(y.fixed[rank]), len(x.latest)
    if op == x.fixed_at[rank + 1]:
        return END if unit < 0 else fixed + unit
    fits = y.held[rank] + x.take[op] + x.swell[op] <= x.room[rank]
    if arrived and fits:
        return op
    if unit < 0:
        return WAIT
    if not fits or y.ran[rank] < x.owed[op]:
        return fixed + unit
    ticks = x.unit_ticks[unit] + (0 if y.last[rank] == unit - 1 else x.overhead[unit])
    return fixed + unit if now + ticks <= x.latest[op] + y.late[rank] else WAIT


@njit(cache=True)
def finish(x: Pieces, y: State, rank: int, piece: int, began: int) -> None:  # pragma: no cover
    """Note that a piece, which began at that time, has ended."""
    unit = piece - len(x.latest)
    if unit < 0:
        y.held[rank] += x.take[piece] - x.free[piece]
        y.fixed[rank] = piece + 1
        y.ready[rank] = x.ready[piece]
        y.late[rank] = max(y.late[rank], began - x.latest[piece])
        y.last[rank] = -1
        return
    y.held[rank] -= x.unit_free[unit]
    y.done[unit] = True
    y.ran[rank] += 1
    y.last[rank] = unit
    while y.head[rank] < x.unit_at[rank + 1] and y.done[y.head[rank]]:
        y.head[rank] += 1


@njit(cache=True)
def arrival(x: Pieces, y: State, rank: int, ended: Array, lag: Array) -> int:  # pragma: no cover
    """When all that a rank's next fixed op waits for is there; `FAR` while that is not known."""
    at, op = 0, int(y.fixed[rank])
    if op == x.fixed_at[rank + 1]:
        return at
    for slot in range(2):
        source = x.before[op, slot]
        if source >= 0:
            at = max(at, FAR if ended[source] < 0 else int(ended[source] + lag[op, slot]))
    return at


@njit(cache=True)
def run(
    x: Pieces,
    y: State,
    ticks: Array,
    unit_ticks: Array,
    overhead: Array,
    lag: Array,
    order: Array,
    start: Array,
    end: Array,
) -> None:  # pragma: no cover
    """Run all ranks, each by the policy.

    Parameters
    ----------
    y
        The state before the first op; afterwards, that at the end.
    ticks, unit_ticks, overhead
        What fixed ops and units really take, shapes (f,), (u,), (u,).
    lag
        What the messages to each fixed op really take, shape (f, 2).
    order, start, end
        Filled with the pieces of each rank, rank after rank, in the order in which they ran, and their times, shape
        (f + u,).
    """
    ranks, fixed = len(x.static), len(x.latest)
    ended = np.full(fixed, -1, np.int64)
    clock = np.zeros(ranks, np.int64)  # when each rank decides next
    parked = np.full(ranks, -1, np.int64)  # since when a rank waits for an op whose end is not known
    place = x.fixed_at[:-1] + x.unit_at[:-1]
    while True:
        rank = int(np.argmin(clock))
        now = int(clock[rank])
        if now == FAR:
            break
        there = arrival(x, y, rank, ended, lag)
        piece = choose(x, y, rank, now, there <= now)
        if piece < 0:
            clock[rank] = FAR
            if piece == WAIT:
                clock[rank] = there
                parked[rank] = now if there == FAR else -1
            continue
        if piece < fixed:
            time = ticks[piece]
        else:
            unit = piece - fixed
            time = unit_ticks[unit] + (0 if y.last[rank] == unit - 1 else overhead[unit])
        order[place[rank]], start[place[rank]], end[place[rank]] = piece, now, now + time
        place[rank] += 1
        clock[rank] = now + time
        finish(x, y, rank, piece, now)
        if piece < fixed:
            ended[piece] = now + time
            for other in range(ranks):
                if parked[other] >= 0:
                    there = arrival(x, y, other, ended, lag)
                    if there < FAR:
                        clock[other] = max(there, parked[other])
                        parked[other] = -1
