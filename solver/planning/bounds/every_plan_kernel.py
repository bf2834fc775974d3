"""Compiled: a quick bound of each split with each placement."""

from __future__ import annotations

from numba import njit

from ...core.schedule import Array


@njit(cache=True, error_model="numpy")
def rate(
    bounds: Array, rows: Array, speed: Array, forward: Array, passed: Array, work: Array, whole: Array, lag: Array,
    need: Array, room: Array, never: int, found: Array,
) -> None:  # pragma: no cover  # fmt: skip
    """Ticks that no schedule of a split and a placement gets below.

    Parameters
    ----------
    bounds
        Where the stages of each split start, and where the last one ends, shape (A, S + 1).
    rows
        Rank of each stage, for each placement, shape (B, S).
    speed
        Speed class of each rank, shape (p,).
    forward, passed
        Least ticks of one F, and until a backward passes its gradient on, by class and run, shape (C, L + 1, L + 1).
    work, whole
        Ticks of all F and backwards, and of all backwards, by class and run, shape (C, L + 1, L + 1).
    lag
        Least ticks of a message, [from][to].
    need, room
        Bytes of each run, and of each rank.
    never
        Value where memory has no room.
    found
        Filled, shape (A, B).
    """
    stages, ranks = rows.shape[1], len(speed)
    for a in range(len(bounds)):
        for b in range(len(rows)):
            there = back = 0  # when the F of a stage may start; how long the way is from its I to the end
            for s in range(stages):
                r = rows[b, s]
                there += forward[speed[r], bounds[a, s], bounds[a, s + 1]]
                if s > 0:
                    there += lag[rows[b, s - 1], r]
            most = 0
            for rank in range(ranks):
                load = backwards = held = 0
                head = -1
                last = at = way = 0
                for s in range(stages):
                    r = rows[b, s]
                    i, j = bounds[a, s], bounds[a, s + 1]
                    if s > 0:
                        at += lag[rows[b, s - 1], r]
                        way += lag[r, rows[b, s - 1]]
                    if r == rank:
                        if head < 0:
                            head = at
                        load += work[speed[r], i, j]
                        backwards += whole[speed[r], i, j]
                        held += need[i, j]
                        last = s
                    at += forward[speed[r], i, j]
                    way += passed[speed[r], i, j]
                back = 0  # from the end of the last F to the start of the rank's first backward
                for s in range(stages - 1, last, -1):
                    back += passed[speed[rows[b, s]], bounds[a, s], bounds[a, s + 1]] + lag[rows[b, s], rows[b, s - 1]]
                most = max(most, head + load, there + back + backwards, there + way)
                if held > room[rank]:
                    most = never
                    break
            found[a, b] = most
