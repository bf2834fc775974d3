"""What the compiled annealer works on: named tuples of arrays.

Ops have numbers: F's of all stages and micro-batches (0..Q-1, as s * m + j), then their backwards, I or B (Q..2Q-1, in
the same order), then *pieces* of weight gradient, which belong to a rank and not to a backward: what a piece is part
of, and which units, may change, and pieces that are not needed lie in the rank's pool.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core.schedule import Array


class Ops(NamedTuple):
    """What no move changes; n ops that may exist on p ranks, Q pairs of stage and micro-batch.

    Parameters
    ----------
    first
        Slots of rank r are first[r]..first[r+1]-1, of which only the first `used` are used, shape (p + 1,).
    pool_first
        Pieces of rank r are the ops pool_first[r]..pool_first[r+1]-1, shape (p + 1,).
    rank
        Rank of each op, shape (n,).
    source, source_lag
        The op of another stage that each op waits for (-1: none), and the message time from it, shape (n,).
    target, target_lag
        The op of another stage that waits for each op (-1: none), and the message time to it, shape (n,).
    rest, begin, static, limit
        Ticks added to the end of each rank, and where its time counts from; bytes held before its first op, and its
        limit; shape (p,).
    alike
        F's, backwards or pieces of one number are of equal prices, shape (Q,).
    forward_ticks, activation
        Ticks of F, and bytes that it takes, shape (Q,).
    split_ticks, split_peak, split_net, fused_ticks
        Ticks of I and of B; bytes that I holds for its own time only, and what it adds to those held, shape (Q,).
    unit_ticks, unit_bytes
        Sums of the times, and of the freed bytes, of the first u units, shape (Q, U + 1).
    overhead, units
        Ticks of a range that does not start at unit 0; number of units; shape (Q,). All ticks are scaled, see `State`.
    """

    first: Array
    pool_first: Array
    rank: Array
    source: Array
    source_lag: Array
    target: Array
    target_lag: Array
    rest: Array
    begin: Array
    static: Array
    limit: Array
    alike: Array
    forward_ticks: Array
    activation: Array
    split_ticks: Array
    split_peak: Array
    split_net: Array
    fused_ticks: Array
    unit_ticks: Array
    unit_bytes: Array
    overhead: Array
    units: Array


class Now(NamedTuple):
    """What moves change, and the best schedule.

    Parameters
    ----------
    order, slot
        Op of each slot, slot of each op, shape (n,).
    used
        Slots in use on each rank, and last of all ranks, shape (p + 1,).
    live, place
        The ops that exist, in any order, as many as the last of `used`; where each of them is there, shape (n,).
    pool, pooled
        Pieces that do not exist: pooled[r] numbers from pool_first[r] - 2Q on; shapes (n - 2Q,) and (p,).
    head, tail
        Earliest start of each op, and longest way from its end to the end of all, shape (n,).
    held
        Bytes held after each slot, shape (n,).
    ticks
        Duration of each op, positive, shape (n,).
    peak, net
        Bytes that an op adds to those held while it runs, and after it, shape (n,).
    own
        The op of the same stage and micro-batch that comes before an op on its rank: F of a backward, backward of a
        piece; -1 for F; shape (n,).
    low, high
        Range of units of a piece, shape (n,).
    family
        Ops of one family keep their order on a rank; shape (n,).
    parts
        Number of pieces of each backward; 0: it is fused; shape (Q,).
    best
        The best schedule: code of the op in each slot, -1 where there is none, shape (n,); see `pieces.code`.
    """

    order: Array
    slot: Array
    used: Array
    live: Array
    place: Array
    pool: Array
    pooled: Array
    head: Array
    tail: Array
    held: Array
    ticks: Array
    peak: Array
    net: Array
    own: Array
    low: Array
    high: Array
    family: Array
    parts: Array
    best: Array


class Work(NamedTuple):
    """Room for work: the queue of ops to correct, in buckets by time, and marks of the moves that touched an op.

    `bucket` and `queued` are -1 everywhere between moves; `mark` and `logged` are 0 at first. `old` and `window` are
    the ops of the slots that a move touches, before and after it; `saved` is what it changes of one or two ops.
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
    old: Array
    window: Array
    saved: Array
