"""The model's constraints, one function each. The docstring is the sentence."""

from __future__ import annotations

from math import gcd

import numpy as np
import pulp

from ..core.instance import UNLIMITED
from .sets import BACKWARD, FORWARD
from .variables import Linear, Variables


def data_flow(v: Variables) -> None:
    """An op starts no sooner than each of its predecessors has ended and its message has arrived."""
    for one, other, lag in v.sets.flow:
        v.model += v.start[other] >= v.end(one) + lag


def first_in_first_out(v: Variables) -> None:
    """Micro-batches that are alike pass each stage in order; see `Sets.queue`."""
    for one, other in v.sets.queue:
        v.model += v.start[other] >= v.end(one)


def one_op_at_a_time(v: Variables) -> None:
    """Of two ops of a rank, one starts no sooner than the other has ended; the order binary says which."""
    for (one, other), order in v.order.items():
        v.model += v.start[other] >= v.end(one) - v.slack(one, other) * (1 - order)
        v.model += v.start[one] >= v.end(other) - v.slack(other, one) * order


def order_is_transitive(v: Variables) -> None:
    """What comes before an op comes before all that surely follows it.

    Stated for an F, its backward and its W, and for neighbours in a queue. It follows from the times, except for a W
    that stands for nothing; stated, it tightens the relaxation.
    """
    chains = [(a, b) for f, i, w in v.triples() for a, b in ((f, i), (i, w))]
    chains += v.sets.queue
    every: dict[int, list[int]] = {}
    for a, b in v.sets.pairs:
        every.setdefault(a, []).append(b)
        every.setdefault(b, []).append(a)
    for one, other in chains:
        for third in dict.fromkeys([*every.get(one, ()), *every.get(other, ())]):
            if third not in (one, other):
                low, high = v.before(third, one), v.before(third, other)
                if not (isinstance(low, int) and low == 0) and not (isinstance(high, int) and high == 1):
                    v.model += low <= high


def work_before_and_after(v: Variables) -> None:
    """Before an op starts, its rank has run all that comes before it; after its end, all that comes after is left.

    This follows from the times; stated, it tightens the relaxation, in which a binary that is not whole frees both its
    ops of all order. A rank's work goes between its earliest start and its least way to the end; its span is no less.
    """
    sets = v.sets
    # Not every rank: one that is used in one direction only has no ops where no micro-batch takes that direction.
    for rank in np.unique(sets.rank).tolist():
        mine = [node for node in range(sets.count) if sets.rank[node] == rank]
        soonest, rest = (min(int(part[node]) for node in mine) for part in (sets.head, sets.tail))
        if v.first:
            v.model += v.value >= pulp.lpSum(v.ticks(node) for node in mine)
        else:
            v.model += v.value >= soonest + rest + pulp.lpSum(v.ticks(node) for node in mine)
        for node in mine:
            others = [other for other in mine if other != node and sets.least[other]]
            before = pulp.lpSum(int(sets.least[other]) * v.before(other, node) for other in others)
            after = pulp.lpSum(int(sets.least[other]) * v.before(node, other) for other in others)
            if v.first:
                v.model += v.start[node] >= v.first[rank] + before
                v.model += v.value >= v.end(node) + after - v.first[rank]
            else:
                v.model += v.start[node] >= soonest + before
                v.model += v.value >= v.end(node) + after + rest


def moments(v: Variables) -> None:
    """Ops that take no time have an order, too, along which they can be run.

    Times alone do not say so: at one moment, each of several such ops might come before the next, in a circle over
    the ranks. A number for each, that grows along the data flow and along every rank's order, excludes it.
    """
    count = len(v.moment)
    edges = [(one, other) for one, other, lag in v.sets.flow if lag == 0] + list(v.sets.queue)
    for one, other in edges:
        if one in v.moment and other in v.moment:
            v.model += v.moment[other] >= v.moment[one] + 1
    for (one, other), order in v.order.items():
        if one in v.moment and other in v.moment:
            v.model += v.moment[other] >= v.moment[one] + 1 - count * (1 - order)
            v.model += v.moment[one] >= v.moment[other] + 1 - count * order


def within_memory(v: Variables) -> None:
    """No rank holds more than its limit while any F, or any I that swells, runs: only these take memory.

    An F holds `activation`; with its I the difference to `retained` comes on top, with its W `retained` goes. While an
    I with `retained` above `activation` runs, both its old and its new bytes are there, the larger counts; fused, it
    holds none but the old.
    """
    instance = v.sets.prices.instance
    held, kept = instance.activation.reshape(-1).tolist(), instance.retained.reshape(-1).tolist()
    triples = v.triples()
    for rank, room in enumerate(v.sets.prices.room.tolist()):
        if room >= UNLIMITED:
            continue
        mine = [n for n in range(len(triples)) if v.sets.rank[n] == rank]
        for n in mine:
            points: list[tuple[int, list[tuple[int, Linear]]]] = []
            if held[n] > 0:
                points.append((triples[n][FORWARD], [(held[n], 1)]))
            if kept[n] > held[n]:
                split: Linear = 1 - v.fused.get(v.sets.parts(n)[1:], 0)
                points.append((triples[n][BACKWARD], [(held[n], 1), (kept[n] - held[n], split)]))
            for node, terms in points:
                for other in mine:
                    if other != n:
                        forward, backward, weight = (v.before(op, node) for op in triples[other])
                        freed = kept[other] - held[other]
                        terms += [(held[other], forward), (freed, backward), (-kept[other], weight)]
                _limit(v, terms, room)


def _limit(v: Variables, terms: list[tuple[int, Linear]], room: int) -> None:
    """Bytes, in the largest unit that all of them are multiples of, within the room."""
    left = room - sum(count * term for count, term in terms if isinstance(term, int))
    chosen = [(count, term) for count, term in terms if not isinstance(term, int) and count]
    if not chosen:
        if left < 0:
            # No order helps: a statement that cannot be true, in words the solvers understand.
            v.model += v.value <= v.value.lowBound - 1
        return
    # Bytes are whole numbers of the unit, so that the room may be rounded down to it.
    unit = gcd(*(count for count, _ in chosen))
    v.model += pulp.lpSum((count // unit) * term for count, term in chosen) <= left // unit
