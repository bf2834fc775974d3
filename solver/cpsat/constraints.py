"""The model's constraints, one function each. The docstring is the sentence."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..bounds.order_heads import order_heads
from ..bounds.paths import F, paths
from ..bounds.ramps import Rank
from ..core.instance import UNLIMITED
from .memory import counting
from .sizes import work_of_those_there
from .threshold import threshold, threshold_applies
from .variables import End, Variables
from .work import chosen_work_left

LOOK_AHEAD = 16
"""To how many later ones the order of W's that are whole is told: all pairs would be too many where m is large."""


def data_flow(v: Variables) -> None:
    """An op starts no sooner than each of its predecessors has ended and its message has arrived."""
    instance = v.prices.instance
    stages, count = instance.stages, instance.microbatches
    ends: list[list[list[End]]] = [
        [[v.forward_finish(s, j)[0] for j in range(count)] for s in range(stages)],
        v.backward_end,
    ]
    starts = (v.forward, v.backward, v.weight)
    for node, (sources, lags) in enumerate(zip(instance.before.tolist(), v.prices.lag.tolist(), strict=True)):
        row, rest = divmod(node, stages * count)
        s, j = divmod(rest, count)
        for source, lag in zip(sources, lags, strict=True):
            if source < 0:
                continue
            source_row, source_rest = divmod(source, stages * count)
            source_stage, source_batch = divmod(source_rest, count)
            fused = v.fused[s][j] if row == 2 else None
            needs = v.model.add(starts[row][s][j] >= ends[source_row][source_stage][source_batch] + lag)
            needs.only_enforce_if(*v.here(j), *([] if fused is None else [~fused]))


def slices_in_turn(v: Variables) -> None:
    """On each stage, the slices of a micro-batch run forward first to last, and backward last to first."""
    instance = v.prices.instance
    stages, count = instance.stages, instance.microbatches
    for node, earlier in enumerate(instance.earlier.tolist()):
        if earlier >= 0:
            row, s, j = node // (stages * count), node // count % stages, node % count
            i = earlier % count
            if row == F:
                v.model.add(v.forward[s][j] >= v.forward_finish(s, i)[0])
            else:
                v.model.add(v.backward[s][j] >= v.backward_end[s][i])


def one_op_at_a_time(v: Variables) -> None:
    """A rank runs one op at a time; an op of no duration, too, is run between others, as in the simulator."""
    for intervals in v.intervals:
        v.model.add_no_overlap(intervals)


def first_in_first_out(v: Variables) -> None:
    """Micro-batches of equal size and direction pass each stage in order.

    Without loss: they are alike at every stage, so that the n-th F of a stage needs only that n micro-batches of the
    class have arrived, and memory depends on how many ops are done, not whose. Exchanging labels puts the F's in order,
    likewise the backwards. W's keep to their own I at first. Then those that are whole, neither fused nor cut, are
    exchanged among each other: the n-th of them comes after n of their I's, so after the n-th.
    Micro-batches of different sizes, or directions, are not exchanged.
    """
    if not v.fifo:
        return
    for members in v.classes():
        for s in range(v.prices.instance.stages):
            for i, j in pairwise(members):
                v.model.add(v.forward[s][j] >= v.forward_finish(s, i)[0]).only_enforce_if(*v.here(j))
                v.model.add(v.backward[s][j] >= v.backward_end[s][i]).only_enforce_if(*v.here(j))
                if v.whole(s, i) is True:
                    v.model.add(v.weight[s][j] >= v.done[s][i])
            for i, j in ((i, j) for n, i in enumerate(members) for j in members[n + 1 : n + 1 + LOOK_AHEAD]):
                one, other = v.whole(s, i), v.whole(s, j)
                if not isinstance(one, bool) and not isinstance(other, bool):
                    ticks = int(v.prices.backward_weight[s, i])
                    v.model.add(v.weight[s][j] >= v.weight[s][i] + ticks).only_enforce_if(one, other)


def earliest_starts(v: Variables) -> None:
    """The n-th F and the n-th backward of a stage start no sooner than the bounds by order say."""
    if not v.fifo or not v.prices.exact:
        return
    heads = order_heads(paths(v.prices.instance))
    if heads is None:
        return
    for s in range(v.prices.instance.stages):
        for j in range(v.prices.instance.microbatches):
            v.model.add(v.forward[s][j] >= int(heads.forward[s, j]) // v.prices.step)
            v.model.add(v.backward[s][j] >= int(heads.backward[s, j]) // v.prices.step)


def work_left(v: Variables) -> None:
    """From the start of an F or backward on, the makespan has room for the work that is left and the idle cool-down.

    Where a rank has one stage and micro-batches are alike: when F number j starts, m - j F's and whole backwards are
    left; when backward number j starts, m - j whole backwards, and m - j - window F's, as no more than j + window can
    be done. `bounds.Rank` says what of the cool-down is idle, whatever the order: that after the last F counts while
    one is still to come.
    """
    instance = v.prices.instance
    ways = paths(instance)
    heads = order_heads(ways) if v.fifo and v.prices.exact else None
    owners = instance.rank[:, 0].tolist()
    if heads is None or len(set(owners)) < len(owners):
        return
    tail = ways.tail_of_kind(np.zeros_like(ways.ticks_of_kind))
    (members,) = v.classes()
    for s, owner in enumerate(owners):
        rank = Rank(ways, owner)
        both, last = rank.cool_alike(tail)
        forward, whole = int(instance.forward[s, 0]), int(ways.whole[s, 0])
        for n, j in enumerate(members):
            left = len(members) - n
            ahead = max(0, left - int(heads.window[s]))
            after_forward = left * (forward + whole) + both
            after_backward = left * whole + ahead * forward + (both if ahead else last)
            v.model.add(v.objective >= v.forward[s][j] + after_forward // v.prices.step)
            v.model.add(v.objective >= v.backward[s][j] + after_backward // v.prices.step)


def makespan(v: Variables) -> None:
    """The objective is no less than the end of any backward, weight gradient included."""
    work_left(v)
    chosen_work_left(v)
    work_of_those_there(v)
    for row in v.done:
        for j, end in enumerate(row):
            v.model.add(v.objective >= end).only_enforce_if(*v.here(j))


def span(v: Variables) -> None:
    """The objective is no less than the time from a rank's first start to the end of any of its backwards.

    The first start is a variable below all of the rank's F's, so a rank may begin late: see `first_ops_at_once`.
    """
    instance = v.prices.instance
    for rank in range(instance.ranks):
        items = [(int(s), int(j)) for s, j in zip(*(instance.rank == rank).nonzero(), strict=True)]
        there = [(s, j) for s, j in items if v.hint is None or v.hint.present[j]]
        value = min((v.forward_start(s, j)[1] for s, j in there), default=0 if v.hint is not None else -1)
        first = v.moment(f"first{rank}", value)
        for s, j in items:
            v.model.add(first <= v.forward[s][j]).only_enforce_if(*v.here(j))
            v.model.add(v.objective >= v.done[s][j] - first).only_enforce_if(*v.here(j))


def first_ops_at_once(v: Variables) -> None:
    """Every rank starts its first op as soon as its input is there, as the simulator does.

    With one class in order, the first op of a rank is the first micro-batch's F at its first stage; where that holds at
    all stages before, too, it starts at its head. Without this, an optimum of the span may let a rank begin late, which
    no order of ops alone can say: its value is a bound, and a schedule's may be above.
    """
    heads = paths(v.prices.instance).head[0]
    (members,) = v.classes()
    seen: set[int] = set()
    for stage, rank in enumerate(v.prices.instance.rank[:, members[0]].tolist()):
        if rank in seen:
            return
        seen.add(rank)
        v.model.add(v.forward[stage][members[0]] == int(heads[stage, members[0]]) // v.prices.step)


def within_memory(v: Variables) -> None:
    """No rank holds more than its limit while any F, or any I that swells, runs: only these take memory."""
    for rank, room in enumerate(v.prices.room.tolist()):
        if room < UNLIMITED:
            (threshold if threshold_applies(v, rank) else counting)(v, rank, room)
