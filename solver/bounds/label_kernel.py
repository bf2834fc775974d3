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

NONE = -2
"""Mark of a state that a table of labels from the end does not have."""

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
def mixed_of(name: int, key: Counts, n: int) -> np.int64:  # pragma: no cover
    """Where to look for a state of a table: a number of 40 bits."""
    mixed = np.uint64(1469598103934665603 + name)
    for i in range(n):
        mixed = (mixed ^ np.uint64(key[i])) * np.uint64(1099511628211)
    return np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64((1 << 40) - 1))


@njit(cache=True)
def find(name: int, key: Counts, n: int, names: Links, states: Counts, slots: Links) -> np.int64:  # pragma: no cover
    """The number of a state in the tables; -1: it is in none."""
    mask = len(slots) - 1
    slot = mixed_of(name, key, n) & mask
    while slots[slot] >= 0:
        here, equal = np.int64(slots[slot]), names[slots[slot]] == name
        for i in range(n):
            equal = equal and states[here, i] == key[i]
        if equal:
            return here
        slot = (slot + 1) & mask
    return np.int64(-1)


@njit(cache=True)
def enter(names: Links, states: Counts, sizes: Links, slots: Links) -> None:  # pragma: no cover
    """Fill the slots by which `find` finds."""
    mask, slots[:] = len(slots) - 1, -1
    for here in range(len(names)):
        slot = mixed_of(names[here], states[here], sizes[names[here]]) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = here


@njit(cache=True)
def fits(
    below: int, clocks: Array, since: int, weights: Array, total: Array, soon: Array, lengths: Array, n: int,
    ranks: int,  weight: Links, label: int, following: Links, times: Times,
) -> bool:  # pragma: no cover  # fmt: skip
    """Whether one of the labels from the end leaves enough time for what was done from the start.

    `soon` has the earliest starts of those that wait for an op, oldest first, one row an op.
    """
    while label >= 0:
        time, label = times[label], following[label]
        good = since + time[ranks] < below
        for q in range(ranks):
            missing = total[q] - weights[q] - time[ranks + 1 + q]
            if missing < 0 or clocks[q] + time[q] + missing * weight[q] >= below:
                good = False
                break
        if not good:
            continue
        at = 2 * ranks + 1 + lengths[1:n].sum()
        for i in range(1, n):
            size = lengths[i]
            for y in range(size):
                # The oldest from the start is the last one from the end.
                if soon[i, y] + time[at + size - 1 - y] >= below:
                    good = False
                    break
            if not good:
                break
            at += size
        if good:
            return True
    return False


@njit(cache=True)
def step(
    count: int, below: int, rank: Links, dur: Links, lag: Links, same: Links, group: Links, bytes_: Array, rest:
    Links, last_forward: Links, first_backward: Links, cool: Array, pool_rank: Links, pool_dur: Links,
    pool_bytes: Array, parts: Links, only: Links, room: Array, head: int, leave: int, effort: int, every: bool,
    back_ops: Links, back_ranks: Links, back_same: Links, back_names: Links, back_states: Counts, back_slots: Links,
    back_first: Links, back_following: Links, back_times: Times, n_states: int, counts: Counts, first: Links,
    following: Links, times: Times, new_counts: Counts, new_first: Links, new_following: Links, new_times:
    Times, table: Links,
) -> tuple[int, int]:  # pragma: no cover  # fmt: skip
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
    ready, offset, child = np.zeros(n, np.int64), np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    made, key = np.zeros(width, np.int32), np.zeros(n, np.int16)
    tables, back_child = len(back_ops), np.zeros((n, len(back_ops)), np.int64)
    begins, soon = np.zeros(n + 1, np.int64), np.zeros((n, count), np.int64)
    lengths, back_weight = np.zeros(n, np.int64), np.zeros(k, np.int32)
    back_clocks, weights, all_weights = np.zeros(k, np.int64), np.zeros(k, np.int64), np.zeros(k, np.int64)
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
                backs[group[i]] += done[i] * parts[group[i]]
                left0[r] += pool_dur[group[i]] * count * parts[group[i]]
        at = base
        for i in range(1, n):
            offset[i] = at
            if same[i] == 0:
                at += done[i - 1] - done[i]
        offset[n] = at
        child[:], back_child[:] = -1, -1
        label = first[state]
        while label >= 0:
            time, label = times[label], following[label]
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
                    if good and not every:
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
                    if tables > 0 and back_child[x, 0] == -1:
                        for t in range(tables):
                            size = 0
                            while size < back_ops.shape[1] and back_ops[t, size] >= 0:
                                i = back_ops[t, size]
                                key[size] = count - done[i] - (1 if i == x else 0)
                                size += 1
                            back_child[x, t] = find(t, key, size, back_names, back_states, back_slots)
                            if back_child[x, t] < 0:
                                back_child[x, 0] = NONE
                                break
                    if tables > 0 and back_child[x, 0] == NONE:
                        break
                    if tables > 0:
                        at_i = base
                        for i in range(1, n):
                            begins[i] = at_i
                            if same[i] == 0:
                                at_i += done[i - 1] - done[i] + (1 if i == x + 1 else 0) - (1 if i == x else 0)
                        for t in range(tables):
                            size, mine = 0, 0
                            while mine < back_ranks.shape[1] and back_ranks[t, mine] >= 0:
                                q = back_ranks[t, mine]
                                back_clocks[mine], weights[mine] = clocks[q], -made[k + 1 + only[q]]
                                back_weight[mine], all_weights[mine] = pool_dur[only[q]], 0
                                mine += 1
                            while size < back_ops.shape[1] and back_ops[t, size] >= 0:
                                b = back_ops[t, size]
                                for q in range(mine):
                                    if rank[b] == back_ranks[t, q] and group[b] >= 0:
                                        all_weights[q] += count * parts[group[b]]
                                lengths[size] = 0
                                if size > 0 and back_same[t, size] == 0:
                                    a, much, later = back_ops[t, size - 1], 0, 0
                                    for i in range(b, a, -1):
                                        # Those that wait for op i still have all ops from there to b to do.
                                        waits = done[i - 1] - done[i] + (1 if i == x + 1 else 0) - (1 if i == x else 0)
                                        for y in range(waits):
                                            arrival = max(begin, clocks[rank[i]]) if same[i] else made[begins[i] + y]
                                            soon[size, much] = arrival + later
                                            much += 1
                                        later += dur[i - 1] + lag[i]
                                    lengths[size] = much
                                size += 1
                            possible = fits(
                                below, back_clocks, begin, weights, all_weights, soon, lengths, size, mine,
                                 back_weight, back_first[back_child[x, t]], back_following, back_times,
                            )  # fmt: skip
                            if not possible:
                                good = False
                                break
                        if not good:
                            continue
                    to = child[x]
                    if to < 0:
                        for i in range(n):
                            key[i] = done[i] + (1 if i == x else 0)
                        slot = mixed_of(0, key, n) & mask
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
