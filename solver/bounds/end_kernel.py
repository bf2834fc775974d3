"""The compiled step of `from_the_end`: every way to have one op more behind, dominated ones dropped."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..core.schedule import Array
from .label_kernel import FULL, SPENT, Counts, Links, Times

# Compiled with label_kernel.py 400c1795


@njit(cache=True)
def dominates_back(one: Times, other: Times, size: int, ranks: int, weight: Links) -> bool:  # pragma: no cover
    """The same for labels that are built from the end: fewer weight gradients leave more room."""
    if one[ranks] > other[ranks]:
        return False
    for y in range(2 * ranks + 1, size):
        if one[y] > other[y]:
            return False
    for q in range(ranks):
        missing = other[ranks + 1 + q] - one[ranks + 1 + q]
        if missing < 0 or one[q] + missing * weight[q] > other[q]:
            return False
    return True


@njit(cache=True)
def slot_of(key: Counts, states: Counts, slots: Links) -> np.int64:  # pragma: no cover
    """The slot that has a state's number, or the empty one where it belongs."""
    mask = len(slots) - 1
    mixed = np.uint64(1469598103934665603)
    for i in range(len(key)):
        mixed = (mixed ^ np.uint64(key[i])) * np.uint64(1099511628211)
    slot = np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64(mask))
    while slots[slot] >= 0:
        here, equal = slots[slot], True
        for i in range(len(key)):
            if states[here, i] != key[i]:
                equal = False
                break
        if equal:
            break
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def enter_all(states: Counts, slots: Links) -> None:  # pragma: no cover
    """Fill the slots by which `slot_of` finds."""
    slots[:] = -1
    for here in range(len(states)):
        slots[slot_of(states[here], states, slots)] = here


@njit(cache=True)
def reached(
    below: int,
    made: Times,
    lengths: Links,
    raw: int,
    n: int,
    k: int,
    same: Links,
    total: Array,
    weight: Links,
    only: Links,
    label: int,
    following: Links,
    times: Times,
) -> bool:  # pragma: no cover
    """Whether one of the labels from the start is early enough for a label from the end."""
    while label >= 0:
        time = times[label]
        label = following[label]
        if time[k] + made[k] >= below:
            continue
        good = True
        for q in range(k):
            missing = max(0, total[q] + time[k + 1 + only[q]] - made[k + 1 + q])
            if time[q] + made[q] + missing * weight[q] >= below:
                good = False
                break
        if not good:
            continue
        start, at = 2 * k + 1, raw
        for i in range(1, n):
            if same[i]:
                continue
            size = lengths[i]
            for y in range(size):
                # The oldest from the start is the last one from the end.
                if time[start + y] + made[at + size - 1 - y] >= below:
                    good = False
                    break
            if not good:
                break
            start += size
            at += size
        if good:
            return True
    return False


@njit(cache=True)
def step_back(
    count: int,
    below: int,
    rank: Links,
    dur: Links,
    lag: Links,
    same: Links,
    group: Links,
    bytes_: Array,
    weight: Links,
    weight_bytes: Array,
    parts: Links,
    only: Links,
    room: Array,
    heads: Links,
    leave: int,
    effort: int,
    fore_states: Counts,
    fore_slots: Links,
    fore_first: Links,
    fore_following: Links,
    fore_times: Times,
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
    """The step of a search from the end, where time, and every op, runs backwards; returns as `step` does.

    An op that ends first starts first; ops come in the order of these ends. A label's numbers are the clocks; the last
    end; the weight gradients done of each rank, which has one pool; for every op but the first, the moments at which
    those that wait for it may start the one before; and the same without regard to what the rank and the order allow,
    the least of all labels that were dropped for this one.
    """
    n, k, width = len(rank), len(room), new_times.shape[1]
    table[:] = -1
    states, labels, free, compared = 0, 0, -1, 0
    base = 2 * k + 1
    held, left, backs, total = (
        np.zeros(k, np.int64),
        np.zeros(k, np.int64),
        np.zeros(k, np.int64),
        np.zeros(k, np.int64),
    )
    offset, child = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    made, key, lengths = np.zeros(width, np.int32), np.zeros(n, np.int16), np.zeros(n, np.int32)
    fore = np.zeros(n, np.int64)
    way, longest = np.zeros(n, np.int64), np.zeros(k, np.int64)
    for i in range(n):
        # From the end of an op, backwards, to the start of everything.
        way[i] = heads[rank[0]] if i == 0 else way[i - 1] + dur[i - 1] + lag[i]
        longest[rank[i]] = max(longest[rank[i]], dur[i])
        if group[i] >= 0:
            total[rank[i]] += count * parts[rank[i]]
    for state in range(n_states):
        done = counts[state]
        held[:], left[:], backs[:] = 0, 0, 0
        for i in range(n):
            r = rank[i]
            left[r] += dur[i] * (count - done[i])
            if group[i] < 0:
                held[r] -= bytes_[i] * done[i]
            else:
                held[r] += bytes_[i] * done[i]
                backs[r] += done[i] * parts[r]
        at = base
        for i in range(1, n):
            offset[i] = at
            if same[i] == 0:
                at += done[i] - done[i - 1]
        offset[n] = at
        entries = at - base
        child[:] = -1
        for x in range(n):
            for i in range(n):
                key[i] = count - done[i] - (1 if i == x else 0)
            fore[x] = fore_slots[slot_of(key, fore_states, fore_slots)]
        label = first[state]
        while label >= 0:
            time = times[label]
            label = following[label]
            since = time[k]
            for x in range(n):
                if fore[x] < 0 or done[x] >= (done[x + 1] if x < n - 1 else count):
                    continue
                for i in range(1, n):
                    lengths[i] = done[i] - done[i - 1] + (1 if i == x else 0) - (1 if i == x + 1 else 0)
                r = rank[x]
                ready = since - dur[x]
                if x == n - 1:
                    ready = max(ready, leave)
                elif same[x + 1] == 0:
                    ready = max(ready, time[offset[x + 1]])
                stock = time[k + 1 + r]
                needed = max(0, backs[r] + parts[r] - stock) if group[x] >= 0 else 0
                extra = needed
                while stock + extra <= total[r]:
                    spent = extra * weight[r]
                    clock = time[r] + spent
                    # With fewer, the missing ones could follow at once, no later.
                    if extra > needed and clock - weight[r] >= ready:
                        break
                    holds = held[r] + weight_bytes[r] * (stock + extra)
                    if holds + (bytes_[x] if group[x] >= 0 else 0) > room[r]:
                        break
                    begin = max(clock, ready)
                    end = begin + dur[x]
                    taken = extra
                    extra += 1
                    # Not if a weight gradient that was done before could be done now just as well.
                    good = end + way[x] < below and not (stock > backs[r] and 0 < weight[r] <= begin - clock)
                    for q in range(k):
                        made[q], made[k + 1 + q] = time[q], time[k + 1 + q]
                    made[r], made[k], made[k + 1 + r] = end, end, stock + taken
                    for q in range(k):
                        if q != r and left[q] > 0:
                            # Before its next op, the rank can do so many weight gradients, which are done at the end.
                            most = total[q] - time[k + 1 + q]
                            if weight_bytes[q] > 0:
                                most = min(most, (room[q] - held[q]) // weight_bytes[q] - time[k + 1 + q])
                            made[q] = max(made[q], end - longest[q] - most * weight[q])
                        todo = left[q] - (dur[x] if q == r else 0) + (total[q] - made[k + 1 + q]) * weight[q]
                        if made[q] + todo + heads[q] >= below:
                            good = False
                    if not good:
                        continue
                    at = base
                    for i in range(1, n):
                        if same[i]:
                            continue
                        soonest = max(made[rank[i - 1]], end - dur[i - 1])
                        for y in range(offset[i] + (1 if i == x + 1 else 0), offset[i] + done[i] - done[i - 1]):
                            made[at] = max(soonest, time[y])
                            at += 1
                        if i == x:
                            made[at] = max(soonest, end + lag[i])
                            at += 1
                    half = at
                    for i in range(1, n):
                        if same[i]:
                            continue
                        for y in range(offset[i] + (1 if i == x + 1 else 0), offset[i] + done[i] - done[i - 1]):
                            made[at] = time[entries + y]
                            at += 1
                        if i == x:
                            made[at] = end
                            at += 1
                    label_of = fore_first[fore[x]]
                    if not reached(
                        below,
                        made,
                        lengths,
                        half,
                        n,
                        k,
                        same,
                        total,
                        weight,
                        only,
                        label_of,
                        fore_following,
                        fore_times,
                    ):
                        continue
                    to = child[x]
                    if to < 0:
                        for i in range(n):
                            key[i] = done[i] + (1 if i == x else 0)
                        slot = slot_of(key, new_counts, table)
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
                        if dominates_back(other_times, made, half, k, weight):
                            dominated = True
                            for y in range(half, at):
                                other_times[y] = min(other_times[y], made[y])
                            break
                        if dominates_back(made, other_times, half, k, weight):
                            for y in range(half, at):
                                made[y] = min(other_times[y], made[y])
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
