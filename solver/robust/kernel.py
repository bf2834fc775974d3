"""Compiled annealing of orders under noise. Kernels that call each other share a file: numba's cache sees no other.

One order runs in several scenarios at once. The graph of what waits for what is the same in all of them, only its times
differ: every time is a short row of numbers, one for each scenario, and one walk over the graph serves them all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from ..core.schedule import Array
from .arrays import Ops, Order

# Compiled with arrays.py d66e770a

REACH = 6
"""Places that an op moves at most."""

TRIES = 12
"""Random ops looked at for one that is critical in a scenario."""


@njit(cache=True)
def draw(random: npt.NDArray[np.uint64]) -> np.int64:  # pragma: no cover
    """Next of a stream of 62-bit numbers: splitmix64."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64((z ^ (z >> np.uint64(31))) >> np.uint64(2))


@njit(cache=True)
def set_end(x: Ops, y: Order, op: int) -> bool:  # pragma: no cover
    """Time an op from what it waits for; whether anything changed."""
    at, first, second = y.place[op], x.before[op, 0], x.before[op, 1]
    last = y.row[at - 1] if at > x.offsets[x.rank[op]] else -1
    changed = False
    for k in range(x.ticks.shape[1]):
        start = y.end[last, k] if last >= 0 else 0
        if first >= 0:
            start = max(start, y.end[first, k] + x.lag[op, 0, k])
        if second >= 0:
            start = max(start, y.end[second, k] + x.lag[op, 1, k])
        start += x.ticks[op, k]
        changed |= start != y.end[op, k]
        y.end[op, k] = start
    return changed


@njit(cache=True)
def set_tail(x: Ops, y: Order, op: int) -> bool:  # pragma: no cover
    """Measure the way from an op to the end of the run from those after it; whether anything changed."""
    at, rank = y.place[op] + 1, x.rank[op]
    following = y.row[at] if at < x.offsets[rank + 1] else -1
    changed = False
    for k in range(x.ticks.shape[1]):
        way = y.close[rank, k] if following < 0 else x.ticks[following, k] + y.tail[following, k]
        for edge in range(x.first_after[op], x.first_after[op + 1]):
            other = x.after[edge]
            way = max(way, x.lag[other, x.slot[edge], k] + x.ticks[other, k] + y.tail[other, k])
        changed |= way != y.tail[op, k]
        y.tail[op, k] = way
    return changed


@njit(cache=True)
def retime(x: Ops, y: Order, low: int, high: int) -> None:  # pragma: no cover
    """Time the ops at places low..high after a move, and all that change through them, along the line."""
    number, count = len(y.line), 0
    for at in range(low, min(high + 2, x.offsets[x.rank[y.row[low]] + 1])):
        y.dirty[y.row[at]] = True
        number = min(number, y.number[y.row[at]])
        count += 1
    while count > 0:
        op = y.line[number]
        number += 1
        if not y.dirty[op]:
            continue
        y.dirty[op] = False
        count -= 1
        if not set_end(x, y, op):
            continue
        place = y.place[op] + 1
        if place < x.offsets[x.rank[op] + 1] and not y.dirty[y.row[place]]:
            y.dirty[y.row[place]] = True
            count += 1
        for edge in range(x.first_after[op], x.first_after[op + 1]):
            if not y.dirty[x.after[edge]]:
                y.dirty[x.after[edge]] = True
                count += 1


@njit(cache=True)
def remeasure(x: Ops, y: Order, low: int, high: int, span: bool) -> None:  # pragma: no cover
    """Measure the ways from the ops at places low..high after a move, and all that change through them, back along
    the line."""
    number, count = -1, 0
    for at in range(max(low - 1, x.offsets[x.rank[y.row[low]]]), high + 1):
        y.dirty[y.row[at]] = True
        number = max(number, y.number[y.row[at]])
        count += 1
    for r in range(len(x.offsets) - 1 if span else 0):
        a, b = x.offsets[r], x.offsets[r + 1]
        moved = False
        for k in range(x.ticks.shape[1] if b > a else 0):
            close = x.ticks[y.row[a], k] - y.end[y.row[a], k]
            moved |= close != y.close[r, k]
            y.close[r, k] = close
        if moved and not y.dirty[y.row[b - 1]]:
            y.dirty[y.row[b - 1]] = True
            number = max(number, y.number[y.row[b - 1]])
            count += 1
    while count > 0:
        op = y.line[number]
        number -= 1
        if not y.dirty[op]:
            continue
        y.dirty[op] = False
        count -= 1
        if not set_tail(x, y, op):
            continue
        place = y.place[op] - 1
        if place >= x.offsets[x.rank[op]] and not y.dirty[y.row[place]]:
            y.dirty[y.row[place]] = True
            count += 1
        for s in range(2):
            source = x.before[op, s]
            if source >= 0 and not y.dirty[source]:
                y.dirty[source] = True
                count += 1


@njit(cache=True)
def evaluate(x: Ops, y: Order, span: bool, value: Array) -> int:  # pragma: no cover
    """Fill each scenario's value, from the ends; their weighted sum."""
    ranks, scenarios = len(x.offsets) - 1, x.ticks.shape[1]
    total = 0
    for k in range(scenarios):
        value[k] = 0
        for r in range(ranks):
            a, b = x.offsets[r], x.offsets[r + 1]
            if b > a:
                first = y.row[a]
                begin = y.end[first, k] - x.ticks[first, k] if span else 0
                value[k] = max(value[k], y.end[y.row[b - 1], k] - begin)
        total += x.weight[k] * value[k]
    return total


@njit(cache=True)
def shift(y: Order, source: int, target: int) -> None:  # pragma: no cover
    """Move the op at one place to another; those between make room."""
    op, step = y.row[source], 1 if target > source else -1
    at = source
    while at != target:
        other = y.row[at + step]
        y.row[at] = other
        y.place[other] = at
        at += step
    y.row[target] = op
    y.place[op] = target


@njit(cache=True)
def reach(x: Ops, y: Order, source: int, step: int, most: int) -> int:  # pragma: no cover
    """Farthest place, at most `most` away, to which the op at `source` may go past those it need not follow."""
    op = y.row[source]
    rank, target = x.rank[op], source
    for _ in range(most):
        there = target + step
        if there < x.offsets[rank] or there >= x.offsets[rank + 1]:
            break
        other = y.row[there]
        if x.group[other] == x.group[op]:
            break
        early, late = (op, other) if step > 0 else (other, op)
        if x.before[late, 0] == early or x.before[late, 1] == early:
            break
        target = there
    return target


@njit(cache=True)
def fits(x: Ops, y: Order, low: int, high: int) -> bool:  # pragma: no cover
    """Whether the ops at places low..high stay within the limit; sets what is held before each."""
    rank = x.rank[y.row[low]]
    held = y.held[low]
    for at in range(low, high + 1):
        op = y.row[at]
        y.held[at] = held
        held += x.take[op]
        if held + x.swell[op] > x.room[rank]:
            return False
        held -= x.free[op]
    return True


@njit(cache=True)
def renumber(x: Ops, y: Order, low: int, high: int, forward: bool, part: Array) -> bool:  # pragma: no cover
    """Mend the line after a move within places low..high; False, and nothing changed, where ops wait in a circle.

    Only what lies in the line between the moved ops can be wrong. Those that have to go after the moved op (or, if it
    moved to an earlier place, the ops that it passed) are found in one walk, and put behind the rest.
    """
    first, last = len(y.line), -1
    for at in range(low, high + 1):
        number = y.number[y.row[at]]
        first, last = min(first, number), max(last, number)
    seed = y.row[high] if forward else y.row[low + 1]
    stop = y.row[high - 1] if forward else y.row[low]
    behind, ahead = 0, first
    sound = True
    for number in range(first, last + 1):
        op = y.line[number]
        late = op == seed
        if not late:
            for s in range(2):
                source = x.before[op, s]
                late |= source >= 0 and y.late[source]
            at = y.place[op]
            late |= at > x.offsets[x.rank[op]] and y.late[y.row[at - 1]]
            if op == stop and late:
                sound = False
                break
        if late:
            y.late[op] = True
            part[behind] = op
            behind += 1
    if sound:
        for number in range(first, last + 1):
            op = y.line[number]
            if not y.late[op]:
                y.line[ahead] = op
                y.number[op] = ahead
                ahead += 1
        for number in range(behind):
            y.line[ahead + number] = part[number]
            y.number[part[number]] = ahead + number
    for number in range(behind):
        y.late[part[number]] = False
    return sound


@njit(cache=True)
def settle(x: Ops, y: Order, span: bool) -> int:  # pragma: no cover
    """Fill all else of an order from its rows and its line; the weighted sum of its values."""
    for at in range(len(y.row)):
        y.place[y.row[at]] = at
        y.number[y.line[at]] = at
    for number in range(len(y.line)):
        set_end(x, y, y.line[number])
    total = evaluate(x, y, span, y.value)
    for r in range(len(x.offsets) - 1):
        a, b = x.offsets[r], x.offsets[r + 1]
        if b > a:
            y.held[a] = x.static[r]
            fits(x, y, a, b - 1)
            for k in range(x.ticks.shape[1]):
                y.close[r, k] = x.ticks[y.row[a], k] - y.end[y.row[a], k] if span else 0
    for number in range(len(y.line) - 1, -1, -1):
        set_tail(x, y, y.line[number])
    return total


@njit(cache=True)
def promise(x: Ops, y: Order, source: int, target: int, ends: Array, tails: Array) -> int:  # pragma: no cover
    """What the weighted sum would be at least after a move, from the longest ways through the ops it concerns.

    The move is made; the times are left as they were. The bound is exact but for ways that leave the moved ops and come
    back to them.
    """
    low, high = min(source, target), max(source, target)
    scenarios = x.ticks.shape[1]
    critical = np.zeros(scenarios, np.bool_)
    for at in range(low, high + 1):
        op = y.row[at]
        for k in range(scenarios):
            critical[k] |= y.end[op, k] + y.tail[op, k] == y.value[k]
    shift(y, source, target)
    for at in range(low, high + 1):
        op = y.row[at]
        for k in range(scenarios):
            ends[at - low, k], tails[at - low, k] = y.end[op, k], y.tail[op, k]
    for at in range(low, high + 1):
        set_end(x, y, y.row[at])
    for at in range(high, low - 1, -1):
        set_tail(x, y, y.row[at])
    total = 0
    for k in range(scenarios):
        # Where no moved op is critical, the critical way is still there.
        longest = 0 if critical[k] else y.value[k]
        for at in range(low, high + 1):
            longest = max(longest, y.end[y.row[at], k] + y.tail[y.row[at], k])
        total += x.weight[k] * longest
    for at in range(low, high + 1):
        op = y.row[at]
        for k in range(scenarios):
            y.end[op, k], y.tail[op, k] = ends[at - low, k], tails[at - low, k]
    return total


@njit(cache=True)
def anneal(
    x: Ops,
    y: Order,
    span: bool,
    heat: float,
    begin: float,
    finish: float,
    count: int,
    random: npt.NDArray[np.uint64],
    totals: Array,
    best: Array,
    best_line: Array,
) -> int:  # pragma: no cover
    """Try `count` moves of one op by a few places on its rank.

    Parameters
    ----------
    span
        Whether values are spans, else makespans.
    heat
        Temperature at the start of the whole search, in the unit of the weighted sum of the values. 0: only moves that
        gain are taken.
    begin, finish
        Share of the search that is over before and after these moves; the temperature falls quadratically with it.
    random
        State of the random numbers, shape (1,).
    totals
        Weighted sum of this order and of the best one so far; sum under noise, without the plan, of the best one so
        far, and the most that it may be. Shape (4,).
    best, best_line
        Rows and line of the best order, shape (n,).

    Returns
    -------
    int
        Number of moves made.
    """
    n, scenarios = len(y.row), x.ticks.shape[1]
    ends, tails = np.empty((REACH + 1, scenarios), np.int64), np.empty((REACH + 1, scenarios), np.int64)
    value, part = np.empty(scenarios, np.int64), np.empty(n, np.int64)
    made = 0
    for trial in range(count):
        left = 1.0 - (begin + (finish - begin) * trial / count)
        limit = totals[0] - 1.0
        if heat > 0.0:
            limit = totals[0] - heat * left * left * np.log((draw(random) + 1) / 2.0**62)
        op = draw(random) % n
        if draw(random) % 4 > 0:
            k = draw(random) % scenarios
            for _ in range(TRIES):
                if y.end[op, k] + y.tail[op, k] == y.value[k]:
                    break
                op = draw(random) % n
        source = y.place[op]
        step = 1 if draw(random) % 2 == 0 else -1
        target = reach(x, y, source, step, int(1 + draw(random) % REACH))
        if target == source:
            continue
        low, high = min(source, target), max(source, target)
        if promise(x, y, source, target, ends, tails) > limit:
            shift(y, target, source)
            continue
        if not (fits(x, y, low, high) and renumber(x, y, low, high, target > source, part)):
            shift(y, target, source)
            fits(x, y, low, high)
            continue
        retime(x, y, low, high)
        total = evaluate(x, y, span, value)
        if total > limit:
            shift(y, target, source)
            fits(x, y, low, high)
            renumber(x, y, low, high, source > target, part)
            retime(x, y, low, high)
            continue
        made += 1
        totals[0] = total
        y.value[:] = value
        remeasure(x, y, low, high, span)
        under_noise = total - x.weight[0] * value[0]
        if total < totals[1] and under_noise <= totals[3]:
            totals[1], totals[2] = total, under_noise
            best[:], best_line[:] = y.row, y.line
    return made
