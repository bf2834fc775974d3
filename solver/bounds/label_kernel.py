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
    group_rank: Links,
    group_dur: Links,
    group_bytes: Array,
    room: Array,
    head: int,
    leave: int,
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
    """States and labels of the next layer, and how many there are; (`FULL`, 0) where they do not fit.

    Ops are those of one micro-batch on the kept ranks in the order of its way; see `few_ranks.Kept`. A label's times
    are the clocks of the ranks, then for every op but the first the moments at which the micro-batches that wait for
    it may start it (none where the op follows on the same rank at once), then, when all are through, the end of their
    way out.
    """
    n, g, k, width = len(rank), len(group_rank), len(room), new_times.shape[1]
    mask = len(table) - 1
    table[:] = -1
    states, labels, free = 0, 0, -1
    held, left, early = np.zeros(k, np.int64), np.zeros(k, np.int64), np.zeros(k, np.int64)
    pending, start = np.zeros(g, np.int64), np.zeros(n, np.int64)
    offset, child = np.zeros(n + 1, np.int64), np.zeros(n + g, np.int64)
    made, key = np.zeros(width, np.int32), np.zeros(n + g, np.int16)
    for state in range(n_states):
        done = counts[state]
        held[:], left[:], pending[:] = 0, 0, 0
        for i in range(n):
            r = rank[i]
            left[r] += dur[i] * (count - done[i])
            if group[i] < 0:
                held[r] += bytes_[i] * done[i]
            else:
                held[r] -= bytes_[i] * done[i]
                pending[group[i]] += done[i]
                left[r] += group_dur[group[i]] * count
        for w in range(g):
            pending[w] -= done[n + w]
            held[group_rank[w]] -= group_bytes[w] * done[n + w]
            left[group_rank[w]] -= group_dur[w] * done[n + w]
        at = k
        for i in range(1, n):
            offset[i] = at
            if same[i] == 0:
                at += done[i - 1] - done[i]
        offset[n] = at
        child[:] = -1
        label = first[state]
        while label >= 0:
            time = times[label]
            early[:] = 2**31
            for w in range(g):
                if pending[w] > 0 and group_dur[w] > 0:
                    r = group_rank[w]
                    early[r] = min(early[r], time[r] + group_dur[w])
            for i in range(n):
                start[i] = -1
                r = rank[i]
                if done[i] >= (done[i - 1] if i > 0 else count):
                    continue
                if group[i] < 0 and held[r] + bytes_[i] > room[r]:
                    continue
                ready = head if i == 0 else (0 if same[i] else time[offset[i]])
                start[i] = max(time[r], ready)
                if group[i] >= 0 and dur[i] > 0:
                    early[r] = min(early[r], start[i] + dur[i])
            for x in range(n + g):
                if x < n:
                    if start[x] < 0:
                        continue
                    r = rank[x]
                    begin = start[x]
                    if early[r] <= begin:
                        continue
                    end = begin + dur[x]
                else:
                    if pending[x - n] <= 0:
                        continue
                    r = group_rank[x - n]
                    begin = time[r]
                    end = begin + group_dur[x - n]
                good = True
                for q in range(k):
                    clock = end if q == r else max(time[q], begin)
                    least = clock + left[q] - (end - begin if q == r else 0)
                    if done[last_forward[q]] + (1 if last_forward[q] == x else 0) < count:
                        least += cool[q, 0]
                    elif done[first_backward[q]] + (1 if first_backward[q] == x else 0) < count:
                        least += cool[q, 1]
                    if least >= below:
                        good = False
                        break
                    made[q] = clock
                if not good:
                    continue
                at = k
                for i in range(1, n):
                    if same[i]:
                        continue
                    q, latest = rank[i], -1
                    for y in range(offset[i] + (1 if i == x else 0), offset[i] + done[i - 1] - done[i]):
                        latest = max(made[q], time[y])
                        made[at] = latest
                        at += 1
                    if i == x + 1:
                        latest = max(made[q], end + lag[i])
                        made[at] = latest
                        at += 1
                    if latest >= 0 and latest + rest[i] >= below:
                        good = False
                        break
                if not good:
                    continue
                if x == n - 1 and done[x] + 1 == count:
                    made[at] = end + leave
                    at += 1
                elif done[n - 1] == count:
                    made[at] = time[offset[n]]
                    at += 1
                if done[n - 1] + (1 if x == n - 1 else 0) == count and made[at - 1] >= below:
                    continue
                to = child[x]
                if to < 0:
                    mixed = np.uint64(1469598103934665603)
                    for i in range(n + g):
                        key[i] = done[i] + (1 if i == x else 0)
                        mixed = (mixed ^ np.uint64(key[i])) * np.uint64(1099511628211)
                    slot = np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64(mask))
                    while table[slot] >= 0:
                        other, equal = new_counts[table[slot]], True
                        for i in range(n + g):
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
                # Dominated: another label of the same counts is nowhere later.
                before, here, dominated = -1, new_first[to], False
                while here >= 0:
                    other_times, less, more = new_times[here], True, True
                    for y in range(at):
                        if other_times[y] > made[y]:
                            less = False
                            if not more:
                                break
                        elif other_times[y] < made[y]:
                            more = False
                            if not less:
                                break
                    after = new_following[here]
                    if less:
                        dominated = True
                        break
                    if more:
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
            label = following[label]
    return states, labels
