"""What the compiled annealer works on: named tuples of arrays, n ops on p ranks."""

from __future__ import annotations

from typing import NamedTuple

from ..core.schedule import Array


class Ops(NamedTuple):
    """What no move changes.

    Parameters
    ----------
    first
        Slots of rank r are first[r]..first[r+1]-1, shape (p + 1,).
    rank, ticks
        Rank and duration of each op, shape (n,). Every duration is positive.
    before, lag
        The two ops each op waits for (-1: none), and message times from them, shape (n, 2).
    first_after, after, after_lag
        The ops that wait for an op, as rows first_after[op]..first_after[op+1]-1 of `after`, and message times.
    rest, begin
        Ticks added to the end of each rank, and where its time counts from, shape (p,).
    family
        Ops of one family keep their order on a rank; shape (n,).
    take, swell, free, static, limit
        Bytes, as in `evaluate.kernel.memory`; the limit of each rank.
    """

    first: Array
    rank: Array
    ticks: Array
    before: Array
    lag: Array
    first_after: Array
    after: Array
    after_lag: Array
    rest: Array
    begin: Array
    family: Array
    take: Array
    swell: Array
    free: Array
    static: Array
    limit: Array


class Now(NamedTuple):
    """What moves change, and the best order.

    Parameters
    ----------
    order, slot
        Op of each slot, slot of each op, shape (n,).
    head, tail
        Earliest start of each op, and longest way from its end to the end of all, shape (n,).
    held
        Bytes held after each slot, shape (n,).
    best_order
        The order of the best value, shape (n,).
    """

    order: Array
    slot: Array
    head: Array
    tail: Array
    held: Array
    best_order: Array


class Work(NamedTuple):
    """Room for work: the queue of ops to correct, in buckets by time, and marks of the moves that touched an op.

    `bucket` and `queued` are -1 everywhere between moves; `mark` and `logged` are 0 at first.
    """

    bucket: Array
    chain: Array
    queued: Array
    mark: Array
    new_head: Array
    new_tail: Array
    log_op: Array
    log_head: Array
    logged: Array
