"""The compiled steps of the beam search. A label is a beginning of a schedule: F's and backwards in order of starts.

Its numbers are those of `bounds.label_kernel`: the clocks of the ranks; the start of the last op; the weight gradients
done on each rank, negative; for every op but the first the moments at which the micro-batches that wait for it may
start it (none where the op follows on the same rank at once). How often each op was done is kept beside them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from ..core.schedule import Array
from .way import Floats, Links, Way

# Compiled with way.py a4412d51

Counts = npt.NDArray[np.int16]


class Layer(NamedTuple):
    """Labels with the same number of ops.

    Attributes
    ----------
    counts
        How often each op was done, shape (width, n).
    times
        The labels' numbers, shape (width, labels).
    """

    counts: Counts
    times: Links


class Choices(NamedTuple):
    """Ways to go on by one op: the label, the op, W's of its rank just before it; and the estimate of the end."""

    estimate: Floats
    parent: Links
    op: Counts
    weights: Counts


class Here(NamedTuple):
    """What follows from the counts of one label: bytes held, work left and W's that wait on each rank, where each op's
    arrivals begin, and the moment at which each op may start (-1: not at all)."""

    held: Array
    left: Array
    waiting: Array
    offset: Array
    ready: Array


@njit(cache=True)
def fresh(ranks: int, ops: int) -> Here:  # pragma: no cover
    """Room for one label's facts."""
    return Here(
        np.zeros(ranks, np.int64),
        np.zeros(ranks, np.int64),
        np.zeros(ranks, np.int64),
        np.zeros(ops + 1, np.int64),
        np.zeros(ops, np.int64),
    )


@njit(cache=True)
def look(way: Way, done: Counts, time: Links, here: Here) -> None:  # pragma: no cover
    """Fill in the facts of a label."""
    n, k = len(way.rank), len(way.room)
    for q in range(k):
        here.held[q] = way.weight_bytes[q] * time[k + 1 + q]
        here.left[q] = way.weight_dur[q] * time[k + 1 + q]
        here.waiting[q] = time[k + 1 + q]
    at = 2 * k + 1
    for i in range(n):
        r = way.rank[i]
        here.left[r] += way.dur[i] * (way.microbatches - done[i])
        if way.forward[i]:
            here.held[r] += way.bytes[i] * done[i]
        else:
            here.held[r] -= way.bytes[i] * done[i]
            here.waiting[r] += done[i]
            here.left[r] += way.weight_dur[r] * way.microbatches
        under = (done[i - 1] if i > 0 else way.microbatches) - done[i]
        here.offset[i] = at
        here.ready[i] = -1
        if under > 0:
            arrival = way.head if i == 0 else (0 if way.same[i] else time[at])
            here.ready[i] = max(time[k], arrival)
        if i > 0 and way.same[i] == 0:
            at += under
    here.offset[n] = at


@njit(cache=True)
def go(way: Way, done: Counts, time: Links, here: Here, x: int, weights: int, made: Links) -> tuple[int, int]:
    # pragma: no cover
    """Numbers of the label after op x with so many W's before it: how many, and the least end of what is under way."""
    n, k = len(way.rank), len(way.room)
    r = way.rank[x]
    begin = max(time[r] + weights * way.weight_dur[r], here.ready[x])
    end = begin + way.dur[x]
    made[k] = begin
    for q in range(k):
        clock, count = time[q], time[k + 1 + q]
        if q == r:
            clock = end
            count -= weights
        elif clock < begin:
            # W's that fit before this moment are done: nothing else can be.
            fitting = here.waiting[q]
            if way.weight_dur[q] > 0:
                fitting = min(fitting, (begin - clock) // way.weight_dur[q])
            count -= fitting
            clock += fitting * way.weight_dur[q]
            if fitting == here.waiting[q]:
                clock = max(clock, begin)
        made[q] = clock
        made[k + 1 + q] = count
    at, least = 2 * k + 1, 0
    for i in range(1, n):
        if way.same[i]:
            continue
        soonest, latest = max(made[way.rank[i]], begin), -1
        for y in range(here.offset[i] + (1 if i == x else 0), here.offset[i] + done[i - 1] - done[i]):
            latest = max(soonest, time[y])
            made[at] = latest
            at += 1
        if i == x + 1:
            latest = max(soonest, end + way.lag[i])
            made[at] = latest
            at += 1
        if latest >= 0:
            least = max(least, latest + way.rest[i])
    return at, least


@njit(cache=True)
def needed(way: Way, done: Counts, here: Here, x: int) -> int:  # pragma: no cover
    """W's that memory asks for before an F; -1 where it cannot be had, or the oldest micro-batch could not go on."""
    r = way.rank[x]
    waiting = int(here.waiting[r])
    # Those that take no time are done at once.
    least, over = waiting if way.weight_dur[r] == 0 else 0, here.held[r] + way.bytes[x] - way.room[r]
    if not way.forward[x]:
        return least
    if over > 0 and way.weight_dur[r] > 0:
        least = waiting + 1 if way.weight_bytes[r] == 0 else int(-(-over // way.weight_bytes[r]))
    # Once all W's are done, what the oldest micro-batch has still to take here must fit: it goes first through all.
    held = here.held[r] + way.bytes[x] - way.weight_bytes[r] * waiting
    oldest = done[way.first_backward[r]]
    for i in range(len(way.rank)):
        if way.rank[i] == r and way.forward[i] and done[i] + (1 if i == x else 0) <= oldest:
            held += way.bytes[i]
    return least if least <= waiting and held <= way.room[r] else -1


@njit(cache=True)
def wasteful(way: Way, here: Here, x: int, clock: int, begin: int) -> bool:  # pragma: no cover
    """Whether a backward of the rank would fit before op x starts."""
    for y in range(len(way.rank)):
        mine = y != x and way.rank[y] == way.rank[x] and here.ready[y] >= 0 and not way.forward[y]
        if mine and 0 < way.dur[y] <= begin - max(clock, here.ready[y]):
            return True
    return False


@njit(cache=True)
def softest(values: Floats, heat: float) -> float:  # pragma: no cover
    """A smooth maximum: between the mean (a high heat) and the maximum (a low one)."""
    top = values.max()
    total = 0.0
    for value in values:
        total += np.exp((value - top) / heat)
    return float(top + heat * np.log(total / len(values)))


@njit(cache=True)
def expand(
    way: Way, below: int, heat: float, share: float, labels: int, layer: Layer, choices: Choices
) -> int:  # pragma: no cover
    """Every way to go on from a layer that may end below a value; how many.

    The estimate of the end is a smooth maximum, over the ranks, of the moment at which the memory-time that is left
    can have been spent; plus `share` times the same of clock + work left + cool-down.
    """
    n, k = len(way.rank), len(way.room)
    here, made, found = fresh(k, n), np.zeros(way.labels, np.int32), 0
    latest = np.int64(2**62)
    worked, spent, area = np.zeros(k), np.zeros(k), np.zeros(k)
    for label in range(labels):
        done, time = layer.counts[label], layer.times[label]
        look(way, done, time, here)
        area[:] = way.area[0] * (way.microbatches - done[0])
        for i in range(1, n):
            if done[i - 1] > done[i]:
                for q in range(k):
                    area[q] += (done[i - 1] - done[i]) * way.area[i, q]
        soonest = latest
        for y in range(n):
            if here.ready[y] >= 0 and not way.forward[y] and way.dur[y] > 0:
                soonest = min(soonest, max(time[way.rank[y]], here.ready[y]) + way.dur[y])
        for x in range(n):
            least = needed(way, done, here, x) if here.ready[x] >= 0 else -1
            if least < 0:
                continue
            r = way.rank[x]
            for weights in range(least, here.waiting[r] + 1):
                clock = time[r] + weights * way.weight_dur[r]
                if weights > least and clock - way.weight_dur[r] >= here.ready[x]:
                    # There is nothing to fill: these can come after x as well.
                    break
                begin = max(clock, here.ready[x])
                if begin >= soonest:
                    # Some backward would be over by then, and would harm nothing.
                    break
                if (weights < here.waiting[r] and way.weight_dur[r] <= begin - clock) or wasteful(
                    way, here, x, clock, begin
                ):
                    continue
                _, end = go(way, done, time, here, x, weights, made)
                for q in range(k):
                    work = made[q] + here.left[q] - (time[k + 1 + q] - made[k + 1 + q]) * way.weight_dur[q]
                    if q == r:
                        work -= way.dur[x]
                    if done[way.last_forward[q]] + (1 if way.last_forward[q] == x else 0) < way.microbatches:
                        work += way.cool[q, 0]
                    elif done[way.first_backward[q]] + (1 if way.first_backward[q] == x else 0) < way.microbatches:
                        work += way.cool[q, 1]
                    end = max(end, work)
                    worked[q] = work
                    waiting = here.waiting[q] + made[k + 1 + q] - time[k + 1 + q]
                    spent[q] = way.weight_bytes[q] * way.weight_dur[q] * waiting * (waiting + 1) / 2
                    spent[q] += area[q] - way.area[x, q] + way.area[x + 1, q]
                if end >= below:
                    continue
                at = 2 * k + 1
                for i in range(1, n):
                    wait = 0
                    if way.same[i]:
                        wait = way.dur[x] if i == x + 1 else 0
                    else:
                        under = done[i - 1] - done[i] - (1 if i == x else 0) + (1 if i == x + 1 else 0)
                        for y in range(at, at + under):
                            wait += made[y] - begin
                        at += under
                    if wait > 0:
                        for q in range(k):
                            spent[q] += way.hold[i, q] * wait
                for q in range(k):
                    spent[q] = begin + spent[q] / max(1, way.room[q])
                estimate = softest(spent, heat)
                if share > 0:
                    estimate += share * softest(worked, heat)
                if found == len(choices.estimate):
                    return found
                choices.estimate[found] = estimate
                choices.parent[found] = label
                choices.op[found] = x
                choices.weights[found] = weights
                found += 1
    return found


@njit(cache=True)
def covers(way: Way, one: Links, other: Links, size: int) -> bool:  # pragma: no cover
    """Whether a label is nowhere later than another one with the same ops done; see `bounds.label_kernel`."""
    k = len(way.room)
    if one[k] > other[k]:
        return False
    for q in range(k):
        fewer = max(0, one[k + 1 + q] - other[k + 1 + q])
        if one[q] + fewer * way.weight_dur[q] > other[q]:
            return False
    later = False
    for y in range(2 * k + 1, size):
        later = later or one[y] > other[y]
    return not later


@njit(cache=True)
def keep(
    way: Way, order: Array, layer: Layer, choices: Choices, new: Layer, following: Links, table: Links, chosen: Links
) -> int:  # pragma: no cover
    """Make the labels of the next layer from choices in order, until it is full; how many. Those that an earlier one
    of the same counts covers are left out. `chosen` says of which choice each was made."""
    n, k = len(way.rank), len(way.room)
    here, made, key = fresh(k, n), np.zeros(way.labels, np.int32), np.zeros(n, np.int16)
    mask, kept = len(table) - 1, 0
    table[:] = -1
    for choice in order:
        label, x = choices.parent[choice], int(choices.op[choice])
        done, time = layer.counts[label], layer.times[label]
        look(way, done, time, here)
        size, _ = go(way, done, time, here, x, int(choices.weights[choice]), made)
        mixed = np.uint64(1469598103934665603)
        for i in range(n):
            key[i] = done[i] + (1 if i == x else 0)
            mixed = (mixed ^ np.uint64(key[i])) * np.uint64(1099511628211)
        slot = np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64(mask))
        while table[slot] >= 0 and not np.array_equal(new.counts[table[slot]], key):
            slot = (slot + 1) & mask
        other = table[slot]
        while other >= 0 and not covers(way, new.times[other], made, size):
            other = following[other]
        if other >= 0:
            continue
        new.counts[kept] = key
        new.times[kept, :size] = made[:size]
        following[kept] = table[slot]
        table[slot] = kept
        chosen[kept] = choice
        kept += 1
        if kept == len(chosen):
            break
    return kept


@njit(cache=True)
def replay(way: Way, ops: Counts, weights: Counts, done_weights: Counts) -> None:  # pragma: no cover
    """Of each op of a path, how many W's each rank has done when it has started; shape (ops, p)."""
    n, k = len(way.rank), len(way.room)
    here, made, time = fresh(k, n), np.zeros(way.labels, np.int32), np.zeros(way.labels, np.int32)
    done = np.zeros(n, np.int16)
    for step in range(len(ops)):
        x = int(ops[step])
        look(way, done, time, here)
        go(way, done, time, here, x, int(weights[step]), made)
        done[x] += 1
        time[:] = made
        for q in range(k):
            done_weights[step, q] = -made[k + 1 + q]
