"""Compiled event-driven list scheduling. Kernels that call each other share a file: numba's cache sees no other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from ..core.schedule import Array

Flags = npt.NDArray[np.bool_]

FAR = 2**62
"""A time that never comes."""

PRIORITY, DEEP, KEEP, FUSE, WAIT, CUT = range(6)
RULES = 6
"""Places in the array of a policy's rules, and their number; see `run`."""

NEVER_FUSE = -1
"""Value of `FUSE`: no backward is fused, not even where nothing else fits."""

_NONE = np.zeros((1, 1, 1), dtype=np.int64)
WHOLE = (np.ones(1, dtype=np.int64), _NONE, _NONE, np.zeros(1, dtype=np.int64))
"""The last arguments of `run` where no policy cuts weight gradients."""


@njit(cache=True, error_model="numpy")
def safe(
    rank: int, take: int, age: int, room: int, base: int, oldest: int, order: Array, hold: Array, rest: Array
) -> bool:  # pragma: no cover
    """Banker's test: may `rank` take `take` bytes for the micro-batch of this age?

    The state stays safe when all micro-batches under way can still be finished one after another, oldest first. An F
    changes memory on its own rank only, and only older micro-batches can come to miss the bytes: each of them needs
    `rest` more on this rank at a time when it and all younger ones hold what they hold now.

    Parameters
    ----------
    room, base
        Bytes of the rank's limit above static; bytes held by micro-batches whose backwards are not done.
    oldest, order
        Age of the oldest micro-batch with work on this rank; micro-batch of each age.
    hold, rest
        Bytes each micro-batch holds on each rank, and still has to take there, shape (m, p).
    """
    younger = base + take
    for older in range(oldest, age):
        j = order[older]
        if rest[j, rank] > 0 and younger + rest[j, rank] > room:
            return False
        younger -= hold[j, rank]
    return True


@njit(cache=True, error_model="numpy")
def longest_kept(
    start: int, stop: int, stage_of: Array, next_w: Array, next_b: Array, split: Flags, age: Array, turned: Array
) -> int:  # pragma: no cover
    """Chunk of start..stop-1 whose pending W belongs to the oldest micro-batch; moves `next_w` over fused backwards."""
    chosen = -1
    for c in range(start, stop):
        while next_w[c] < next_b[c] and not split[stage_of[c], turned[next_w[c]]]:
            next_w[c] += 1
        if next_w[c] < next_b[c] and (chosen < 0 or age[turned[next_w[c]]] < age[turned[next_w[chosen]]]):
            chosen = c
    return chosen


@njit(cache=True, error_model="numpy")
def fitting(
    start: int, count: int, ticks: Array, freed: Array, overhead: int, gap: int, lack: int
) -> int:  # pragma: no cover
    """Where to cut the rest of a W, whose first `start` units are done: after as few units as make room for `lack`
    bytes; else after as many as fit into `gap`, one at least."""
    if lack < FAR:
        for stop in range(start + 1, count):
            if freed[stop] - freed[start] >= lack:
                return stop
        return count
    spent = overhead if start > 0 else 0
    for stop in range(count, start + 1, -1):
        if ticks[stop] - ticks[start] + spent <= gap:
            return stop
    return start + 1


@njit(cache=True, error_model="numpy")
def run(
    first: Array,
    stage_of: Array,
    low: Array,
    high: Array,
    rank: Array,
    forward: Array,
    backward_input: Array,
    backward_weight: Array,
    backward: Array,
    lag_forward: Array,
    lag_backward: Array,
    activation: Array,
    retained: Array,
    room: Array,
    ahead: Array,
    release: Array,
    rules: Array,
    span: bool,
    best: int,
    codes: Array,
    made: Array,
    units: Array,
    unit_ticks: Array,
    unit_bytes: Array,
    overhead: Array,
    slices: int,
) -> int:  # pragma: no cover
    """Run one policy; every rank takes, at the moment it is free, the best of its ops that can start then.

    Parameters
    ----------
    first, stage_of, low, high
        Chunks of rank r are first[r]..first[r+1]-1; each has a stage and micro-batches low..high-1.
    rank, forward, backward_input, backward_weight, backward, activation, retained
        As in `Instance`, shape (S, m).
    lag_forward, lag_backward
        Message times from the previous stage's F and from the next stage's I or B, shape (S, m).
    room
        Bytes of each rank's limit above its static bytes.
    ahead
        Most micro-batches each chunk may have between F and I or B, shape (C,); given up where nothing else can run.
    release
        Time before which each micro-batch does not enter the pipeline, shape (m,).
    rules
        For each rank, shape (p, 6). `PRIORITY` of two ready ops: 0 the backward, 1 the forward, 2 in turns. `DEEP`: 1
        prefers the F of the later stage, 0 of the earlier. `KEEP`: W's that may wait; beyond it one goes first.
        `FUSE`: 1 fuses every backward, 2 those whose W would have to follow at once to make room for the next F; 0 and
        2 also those whose I fits on no account, -1 none.
        `WAIT`: a W fills a gap if at least this many 16ths of it fit before the next input that is on its way.
        `CUT`: 1 cuts a W into ranges of its units: as few as make the room that an F waits for, or as many as fit into
        the gap; `WAIT` then is about a single unit.
    span, best
        Whether the value is the span, else the makespan; a run that cannot stay below `best` is given up.
    codes, made
        Filled with each rank's ops, ((range * 4 + kind) * S + stage) * m + micro-batch, shape (p, most), and their
        number. `range` is 0 for a whole W and other ops, else 1 + start * (U + 1) + stop.
    units, unit_ticks, unit_bytes, overhead
        Number of units of each stage, shape (S,), and as in `Instance`; `WHOLE` where no policy cuts.
    slices
        Slices of each micro-batch, 1 where they are whole. A slice takes a micro-batch's place in all of the above.

    Returns
    -------
    int
        The value, or `FAR` when the policy does not get below `best`.
    """
    ranks, stages, count = len(first) - 1, rank.shape[0], rank.shape[1]
    chunks = len(stage_of)
    next_f, next_b, next_w = low.copy(), low.copy(), low.copy()
    # Units done of the next W.
    begun = np.zeros(chunks, np.int64)
    width = unit_ticks.shape[2]
    split = np.zeros((stages, count), np.bool_)
    arrive_f = np.full((stages, count), FAR, np.int64)
    arrive_b = np.full((stages, count), FAR, np.int64)
    arrive_f[0, :] = release
    # The same order without the waits for `release`, as the simulator will time it: inputs, and each rank's clock.
    ready_f, ready_b = np.zeros((stages, count), np.int64), np.zeros((stages, count), np.int64)
    tight = np.zeros(ranks, np.int64)
    # Of each number, the first slice of its micro-batch; and whose backward is run as the n-th.
    batch, turned = np.empty(count, np.int64), np.empty(count, np.int64)
    for j in range(count):
        batch[j] = j - j % slices
        turned[j] = 2 * batch[j] + slices - 1 - j
    # What is told of a micro-batch stands at its first slice, but for its age.
    hold = np.zeros((count, ranks), np.int64)
    rest = np.zeros((count, ranks), np.int64)
    left = np.zeros((count, ranks), np.int64)
    work = np.zeros(ranks, np.int64)
    for s in range(stages):
        for j in range(count):
            r = rank[s, j]
            rest[batch[j], r] += activation[s, j]
            left[batch[j], r] += 1
            halves = backward_input[s, j] + backward_weight[s, j]
            work[r] += forward[s, j] + (backward[s, j] if rules[r, FUSE] == 1 else min(halves, backward[s, j]))
    # Micro-batches by age. With one direction that is their number; with two it is the order in which they start.
    order = np.full(count, -1, np.int64)
    age = np.full(count, -1, np.int64)
    born = 0
    oldest = np.zeros(ranks, np.int64)
    held, base, pending = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    clock, opened = np.zeros(ranks, np.int64), np.full(ranks, -1, np.int64)
    turn = np.zeros(ranks, np.int64)
    wake = np.zeros(ranks, np.int64)
    several = np.zeros(ranks, np.bool_)
    todo = 0
    for r in range(ranks):
        made[r] = 0
        several[r] = first[r + 1] - first[r] > 1 or slices > 1
    for c in range(chunks):
        todo += 2 * (high[c] - low[c])
    relaxed = False
    value = 0
    while True:
        r, now = 0, wake[0]
        for q in range(1, ranks):
            if wake[q] < now:
                r, now = q, wake[q]
        if now >= FAR:
            if todo == 0:
                return value
            if relaxed:
                return FAR
            relaxed = True
            for q in range(ranks):
                wake[q] = clock[q]
            continue

        back, back_age, fore, fore_stage = -1, FAR, -1, -1
        upcoming = FAR
        short = False
        lack = FAR
        for c in range(first[r], first[r + 1]):
            s = stage_of[c]
            j = turned[min(next_b[c], count - 1)]
            if next_b[c] < next_f[c] and j < next_f[c]:
                if arrive_b[s, j] <= now:
                    if age[j] < back_age or (age[j] == back_age and s > stage_of[back]):
                        back, back_age = c, age[j]
                elif arrive_b[s, j] < upcoming:
                    upcoming = arrive_b[s, j]
            j = next_f[c]
            if j >= high[c] or arrive_f[s, j] >= FAR:
                continue
            if not relaxed and j - next_b[c] >= ahead[c]:
                continue
            take = activation[s, j]
            if held[r] + take > room[r]:
                # Weight gradients that run now may make the room.
                short = short or base[r] + take <= room[r]
                if arrive_f[s, j] <= now and base[r] + take <= room[r]:
                    lack = min(lack, held[r] + take - room[r])
                continue
            if several[r] and room[r] < FAR // 2:
                seniority = age[j] if age[j] >= 0 else born
                if not safe(r, take, seniority, room[r], base[r], oldest[r], order, hold, rest):
                    continue
            if arrive_f[s, j] > now:
                upcoming = min(upcoming, arrive_f[s, j])
            elif fore < 0 or (s > fore_stage) == (rules[r, DEEP] == 1):
                fore, fore_stage = c, s

        chosen = -1
        kind = 0
        stop = 0
        if pending[r] > rules[r, KEEP]:
            kind = 2
        elif fore >= 0 and (back < 0 or rules[r, PRIORITY] == 1 or (rules[r, PRIORITY] == 2 and turn[r] == 0)):
            kind, chosen = 0, fore
        elif back >= 0:
            kind, chosen = 1, back
        elif pending[r] > 0:
            kind = 2
        else:
            wake[r] = upcoming
            continue

        if kind == 2:
            chosen = longest_kept(first[r], first[r + 1], stage_of, next_w, next_b, split, age, turned)
            s, j = stage_of[chosen], turned[next_w[chosen]]
            size = backward_weight[s, j]
            waits = pending[r] <= rules[r, KEEP] and not short and upcoming < FAR
            if rules[r, CUT] == 1:
                start, stop = begun[chosen], units[s]
                if pending[r] <= rules[r, KEEP] and (lack < FAR or upcoming < FAR):
                    stop = fitting(start, stop, unit_ticks[s, j], unit_bytes[s, j], overhead[s], upcoming - now, lack)
                size = unit_ticks[s, j, stop] - unit_ticks[s, j, start] + (overhead[s] if start > 0 else 0)
                waits = waits and size > upcoming - now
            if waits and (upcoming - now) * 16 < size * rules[r, WAIT]:
                wake[r] = upcoming
                continue

        s = stage_of[chosen]
        end = now
        done = 0
        piece = 0
        begin = tight[r]
        if kind == 0:
            j = next_f[chosen]
            begin = max(begin, ready_f[s, j])
            next_f[chosen] += 1
            relaxed = False
            if age[j] < 0:
                for i in range(batch[j], batch[j] + slices):
                    age[i] = born
                order[born] = batch[j]
                born += 1
            take = activation[s, j]
            held[r] += take
            base[r] += take
            hold[batch[j], r] += take
            rest[batch[j], r] -= take
            done = forward[s, j]
            end = now + done
            turn[r] = 1
            todo -= 1
            if s + 1 < stages:
                q = rank[s + 1, j]
                there = end + lag_forward[s + 1, j]
                arrive_f[s + 1, j] = there
                ready_f[s + 1, j] = begin + done + lag_forward[s + 1, j]
                wake[q] = min(wake[q], max(clock[q], there))
            else:
                arrive_b[s, j] = end
        elif kind == 1:
            j = turned[next_b[chosen]]
            fuse = rules[r, FUSE] == 1
            if rules[r, FUSE] == 2 and next_f[chosen] < high[chosen]:
                following = activation[s, next_f[chosen]]
                fuse = held[r] + retained[s, j] - activation[s, j] + following > room[r]
            if not fuse and held[r] + max(retained[s, j] - activation[s, j], 0) > room[r]:
                # I does not fit. A pending W may make the room; with none left, B needs nothing.
                if pending[r] > 0:
                    kind = 2
                    lack = held[r] + retained[s, j] - activation[s, j] - room[r]
                    chosen = longest_kept(first[r], first[r + 1], stage_of, next_w, next_b, split, age, turned)
                    s = stage_of[chosen]
                    if rules[r, CUT] == 1:
                        j = turned[next_w[chosen]]
                        stop = fitting(begun[chosen], units[s], unit_ticks[s, j], unit_bytes[s, j], 0, 0, lack)
                elif rules[r, FUSE] == NEVER_FUSE:
                    return FAR
                else:
                    fuse = True
            if kind == 1:
                begin = max(begin, ready_b[s, j])
                next_b[chosen] += 1
                relaxed = False
                base[r] -= activation[s, j]
                hold[batch[j], r] -= activation[s, j]
                left[batch[j], r] -= 1
                turn[r] = 0
                todo -= 1
                if fuse:
                    kind = 3
                    done = backward[s, j]
                    held[r] -= activation[s, j]
                    if rules[r, FUSE] != 1:
                        work[r] += max(0, done - backward_input[s, j] - backward_weight[s, j])
                else:
                    done = backward_input[s, j]
                    held[r] += retained[s, j] - activation[s, j]
                    split[s, j] = True
                    pending[r] += 1
                end = now + done
                if s > 0:
                    q = rank[s - 1, j]
                    there = end + lag_backward[s - 1, j]
                    arrive_b[s - 1, j] = there
                    ready_b[s - 1, j] = begin + done + lag_backward[s - 1, j]
                    wake[q] = min(wake[q], max(clock[q], there))
                while oldest[r] < born and left[order[oldest[r]], r] == 0:
                    oldest[r] += 1
        if kind == 2:
            j = turned[next_w[chosen]]
            if rules[r, CUT] == 1:
                start = begun[chosen]
                if start > 0:
                    work[r] += overhead[s]
                    done = overhead[s]
                if start > 0 or stop < units[s]:
                    piece = 1 + start * width + stop
                done += unit_ticks[s, j, stop] - unit_ticks[s, j, start]
                held[r] -= unit_bytes[s, j, stop] - unit_bytes[s, j, start]
                begun[chosen] = stop
            else:
                stop = 0
                done = backward_weight[s, j]
                held[r] -= retained[s, j]
            if rules[r, CUT] == 0 or stop == units[s]:
                begun[chosen] = 0
                next_w[chosen] += 1
                pending[r] -= 1
            end = now + done
        codes[r, made[r]] = ((piece * 4 + kind) * stages + s) * count + j
        made[r] += 1
        if opened[r] < 0:
            opened[r] = begin
        clock[r] = end
        wake[r] = end
        work[r] -= done
        tight[r] = begin + done
        value = max(value, tight[r] - (opened[r] if span else 0))
        if tight[r] + work[r] - (opened[r] if span else 0) >= best:
            return FAR
