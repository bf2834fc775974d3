"""The compiled step of `few_ranks`: every way to go on by one op, dominated ones dropped."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from ..core.schedule import Array

Counts = npt.NDArray[np.int16]
Times = npt.NDArray[np.int32]
Links = npt.NDArray[np.int32]

FULL = -1
"""Returned where there are more labels than there is room for."""

SPENT = -2
"""Returned where more labels had to be compared than was allowed."""


@njit(cache=True)
def dominates(
    one: Times, other: Times, size: int, pool_rank: Links, pool_dur: Links, only: Links
) -> bool:  # pragma: no cover
    """Whether all that can be done from a label can be done from another one with the same ops done, no later.

    Where a rank has one pool of weight gradients, a label that has done fewer of them may do the missing ones at once.
    """
    ranks, pools = len(only), len(pool_dur)
    if one[ranks] > other[ranks]:
        return False
    for q in range(ranks):
        clock = one[q]
        if only[q] >= 0:
            w = ranks + 1 + only[q]
            if one[w] > other[w]:
                clock += (one[w] - other[w]) * pool_dur[only[q]]
        if clock > other[q]:
            return False
    for y in range(ranks + 1 + pools, size):
        if one[y] > other[y]:
            return False
    worse = False
    for g in range(pools):
        worse = worse or (only[pool_rank[g]] < 0 and one[ranks + 1 + g] > other[ranks + 1 + g])
    return not worse


@njit(cache=True)
def step(
    count: int,
    below: int,
    rank: Links,
    dur: Links,
    lag: Links,
    same: Links,
    group: Links,
    bytes_: Array,
    rest: Links,
    last_forward: Links,
    first_backward: Links,
    cool: Array,
    pool_rank: Links,
    pool_dur: Links,
    pool_bytes: Array,
    only: Links,
    room: Array,
    head: int,
    leave: int,
    effort: int,
    n_states: int,
    counts: Counts,
    first: Links,
    following: Links,
    times: Times,
    new_counts: Counts,
    new_first: Links,
    new_following: Links,
    new_times: Times,
    table: Links,
) -> tuple[int, int]:  # pragma: no cover
    """States and labels of the next layer, and how many there are; (`FULL` or `SPENT`, 0) where there are too many.

    Ops are those of one micro-batch on the kept ranks in the order of its way, weight gradients left out; see
    `few_ranks.Kept`. A state is how often each was done. A label's numbers are: the clocks of the ranks; the start of
    the last op; the weight gradients done of each pool, negative; for every op but the first the moments at which the
    micro-batches that wait for it may start it (none where the op follows on the same rank at once); when all are
    through, the end of their way out.
    """
    n, pools, k, width = len(rank), len(pool_rank), len(room), new_times.shape[1]
    mask = len(table) - 1
    table[:] = -1
    states, labels, free, compared = 0, 0, -1, 0
    base = k + 1 + pools
    held0, left0 = np.zeros(k, np.int64), np.zeros(k, np.int64)
    held, left, clocks = np.zeros(k, np.int64), np.zeros(k, np.int64), np.zeros(k, np.int64)
    backs, pending, extra = np.zeros(pools, np.int64), np.zeros(pools, np.int64), np.zeros(pools, np.int64)
    ready = np.zeros(n, np.int64)
    offset, child = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    made, key = np.zeros(width, np.int32), np.zeros(n, np.int16)
    for state in range(n_states):
        done = counts[state]
        held0[:], left0[:], backs[:] = 0, 0, 0
        for i in range(n):
            r = rank[i]
            left0[r] += dur[i] * (count - done[i])
            if group[i] < 0:
                held0[r] += bytes_[i] * done[i]
            else:
                held0[r] -= bytes_[i] * done[i]
                backs[group[i]] += done[i]
                left0[r] += pool_dur[group[i]] * count
        at = base
        for i in range(1, n):
            offset[i] = at
            if same[i] == 0:
                at += done[i - 1] - done[i]
        offset[n] = at
        child[:] = -1
        label = first[state]
        while label >= 0:
            time = times[label]
            label = following[label]
            since = time[k]
            held[:], left[:] = held0, left0
            for g in range(pools):
                pending[g] = backs[g] + time[k + 1 + g]
                held[pool_rank[g]] += pool_bytes[g] * time[k + 1 + g]
                left[pool_rank[g]] += pool_dur[g] * time[k + 1 + g]
            for i in range(n):
                ready[i] = -1
                if done[i] < (done[i - 1] if i > 0 else count):
                    ready[i] = max(since, head if i == 0 else (0 if same[i] else time[offset[i]]))
            for x in range(n):
                if ready[x] < 0:
                    continue
                r = rank[x]
                extra[:] = 0
                more_choices = True
                while more_choices:
                    # Weight gradients of the rank that come just before this op: every number of each pool.
                    spent, freed = 0, 0
                    for g in range(pools):
                        spent += extra[g] * pool_dur[g]
                        freed += extra[g] * pool_bytes[g]
                    clock = time[r] + spent
                    begin = max(clock, ready[x])
                    end = begin + dur[x]
                    good = group[x] >= 0 or held[r] - freed + bytes_[x] <= room[r]
                    if good:
                        # Not if something that does no harm fits before it.
                        for g in range(pools):
                            if pool_rank[g] == r and extra[g] < pending[g] and 0 < pool_dur[g] <= begin - clock:
                                good = False
                    if good:
                        for y in range(n):
                            if (
                                y != x
                                and rank[y] == r
                                and ready[y] >= 0
                                and group[y] >= 0
                                and 0 < dur[y] <= begin - max(clock, ready[y])
                            ):
                                good = False
                    for g in range(pools):
                        made[k + 1 + g] = time[k + 1 + g] - extra[g]
                    # The next choice, whatever becomes of this one.
                    more_choices = False
                    for g in range(pools):
                        if pool_rank[g] == r:
                            if extra[g] < pending[g]:
                                extra[g] += 1
                                more_choices = True
                                break
                            extra[g] = 0
                    if not good:
                        continue
                    made[k] = begin
                    for q in range(k):
                        least = left[q]
                        if q == r:
                            clocks[q] = end
                            least -= dur[x] + spent
                        else:
                            # Weight gradients that fit before this moment are done: nothing else can be.
                            clocks[q] = time[q]
                            idle = begin - clocks[q]
                            g = only[q]
                            if g >= 0:
                                if pool_dur[g] > 0 and idle > 0:
                                    filled = min(pending[g], idle // pool_dur[g])
                                    made[k + 1 + g] -= filled
                                    clocks[q] += filled * pool_dur[g]
                                    least -= filled * pool_dur[g]
                                    if filled == pending[g]:
                                        clocks[q] = max(clocks[q], begin)
                            else:
                                empty = True
                                for h in range(pools):
                                    if pool_rank[h] == q and pending[h] > 0:
                                        empty = False
                                if empty:
                                    clocks[q] = max(clocks[q], begin)
                        least += clocks[q]
                        if done[last_forward[q]] + (1 if last_forward[q] == x else 0) < count:
                            least += cool[q, 0]
                        elif done[first_backward[q]] + (1 if first_backward[q] == x else 0) < count:
                            least += cool[q, 1]
                        if least >= below:
                            good = False
                            break
                        made[q] = clocks[q]
                    if not good:
                        continue
                    at = base
                    for i in range(1, n):
                        if same[i]:
                            continue
                        soonest, latest = max(clocks[rank[i]], begin), -1
                        for y in range(offset[i] + (1 if i == x else 0), offset[i] + done[i - 1] - done[i]):
                            latest = max(soonest, time[y])
                            made[at] = latest
                            at += 1
                        if i == x + 1:
                            latest = max(soonest, end + lag[i])
                            made[at] = latest
                            at += 1
                        if latest >= 0 and latest + rest[i] >= below:
                            good = False
                            break
                    if not good:
                        continue
                    if x == n - 1 and done[x] + 1 == count:
                        made[at] = end + leave
                        if made[at] >= below:
                            continue
                        at += 1
                    to = child[x]
                    if to < 0:
                        mixed = np.uint64(1469598103934665603)
                        for i in range(n):
                            key[i] = done[i] + (1 if i == x else 0)
                            mixed = (mixed ^ np.uint64(key[i])) * np.uint64(1099511628211)
                        slot = np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64(mask))
                        while table[slot] >= 0:
                            other, equal = new_counts[table[slot]], True
                            for i in range(n):
                                if other[i] != key[i]:
                                    equal = False
                                    break
                            if equal:
                                break
                            slot = (slot + 1) & mask
                        to = table[slot]
                        if to < 0:
                            if states == len(new_first):
                                return FULL, 0
                            to = states
                            table[slot] = to
                            new_counts[to] = key
                            new_first[to] = -1
                            states += 1
                        child[x] = to
                    before, here, dominated = -1, new_first[to], False
                    if compared > effort:
                        return SPENT, 0
                    while here >= 0:
                        compared += 1
                        other_times, after = new_times[here], new_following[here]
                        if dominates(other_times, made, at, pool_rank, pool_dur, only):
                            dominated = True
                            break
                        if dominates(made, other_times, at, pool_rank, pool_dur, only):
                            if before < 0:
                                new_first[to] = after
                            else:
                                new_following[before] = after
                            new_following[here] = free
                            free = here
                        else:
                            before = here
                        here = after
                    if dominated:
                        continue
                    if free >= 0:
                        spot = free
                        free = new_following[free]
                    else:
                        if labels == len(new_following):
                            return FULL, 0
                        spot = labels
                        labels += 1
                    new_times[spot, :at] = made[:at]
                    new_following[spot] = new_first[to]
                    new_first[to] = spot
    return states, labels
