"""A known schedule as start times of the model's variables."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..core.instance import Instance
from ..core.ops import Kind
from ..core.problem import Problem
from ..core.schedule import Array, Schedule
from ..evaluate import kernel
from ..evaluate.simulate import op_inputs, op_ticks
from .prices import Mask, Prices, kinds


@dataclass(frozen=True, slots=True)
class HintTimes:
    """A schedule in steps.

    Parameters
    ----------
    present
        Which micro-batches of the model there are, shape (m,). What follows means nothing for the others.
    forward, backward, weight
        Start of every F, of every I or B, and of every W (of its range from unit 0 on); shapes (S, m).
    done
        End of the whole backward.
    fused
        Which backwards are fused.
    first, start
        For each piece, the first of its range, and that range's start; shape (S, m, U). Where fused, there is none: -1.
    """

    present: Mask
    forward: Array
    backward: Array
    weight: Array
    done: Array
    fused: Mask
    first: Array
    start: Array


def hint_times(problem: Problem, prices: Prices, schedule: Schedule, fifo: bool) -> HintTimes | None:
    """Start times of a schedule; None where it deadlocks on the model's clock, or has what the model has not.

    With `fifo`, the ops of each stage and class are relabelled so that micro-batches pass in order, and W's that are
    whole, too. That changes no start time: the micro-batches of a class are alike.
    """
    table, instance, own = schedule.table, prices.instance, problem.instance(schedule.sizes)
    place = places(prices, own)
    # The op's own ticks on the model's clock, which may round down.
    before, lag = op_inputs(own, schedule)
    ticks, lag = op_ticks(own, schedule) // prices.step, lag // prices.step
    begin, done = np.zeros(len(ticks), dtype=np.int64), np.zeros(problem.ranks, dtype=np.int64)
    if kernel.earliest(table.offsets, ticks, before, lag, begin, done) < len(ticks):
        return None
    shape, width = (instance.stages, instance.microbatches), max(prices.units)
    times = {kind: np.full(shape, -1, dtype=np.int64) for kind in (Kind.F, Kind.I, Kind.B)}
    first, start = np.full((*shape, width), -1, dtype=np.int64), np.full((*shape, width), -1, dtype=np.int64)
    order = np.zeros((2, *shape), dtype=np.int64)
    end = np.zeros(shape, dtype=np.int64)
    np.maximum.at(end, (table.stage, place[table.microbatch]), begin + ticks)
    columns = (table.kind, table.stage, place[table.microbatch], table.start, table.stop)
    for row, (kind, s, j, a, b) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        if kind == Kind.W:
            points = prices.points[s]
            if a >= 0 and not {a, b} <= {*points}:
                return None
            a, b = (0, prices.units[s]) if a < 0 else (points.index(a), points.index(b))
            first[s, j, a:b], start[s, j, a:b] = a, begin[row]
        else:
            times[kind][s, j], order[0 if kind == Kind.F else 1, s, j] = begin[row], row
    fused = times[Kind.B] >= 0
    backward = np.where(fused, times[Kind.B], times[Kind.I])
    # A fused op where the model has none is I and W in a row: B is no shorter there.
    for s, j in zip(*np.nonzero(fused & ~prices.fusible), strict=True):
        first[s, j, : prices.units[s]], start[s, j] = 0, backward[s, j] + prices.backward_input[s, j]
        end[s, j] = start[s, j, 0] + prices.backward_weight[s, j]
    for s, j in np.argwhere(first.max(axis=2) > 0).tolist():
        if prices.alike(s, j):
            _cuts_in_order(first[s, j], start[s, j])
    fused &= prices.fusible
    present = np.zeros(instance.microbatches, dtype=np.bool_)
    present[place] = True
    # What is not there takes place at 0: its times keep the few constraints that hold for it, too.
    absent = np.flatnonzero(~present)
    times[Kind.F][:, absent] = backward[:, absent] = start[:, absent] = 0
    end[:, absent] = np.maximum(prices.backward_input, prices.backward_weight)[:, absent]
    weight = np.where(fused, backward, start[:, :, 0])
    found = HintTimes(present, times[Kind.F], backward, weight, end, fused, first, start)
    if fifo:
        _in_order(prices, found, order)
    return found


def _cuts_in_order(first: Array, start: Array) -> None:
    """Exchange the pieces of the ranges beyond the first one, in place, so that they run in order."""
    # The pieces that the stage does not have are behind all others, and stay there.
    order = np.lexsort((np.arange(len(first)), np.where(first > 0, start, 0), np.where(first > 0, 1, 2 * (first < 0))))
    first[:], start[:] = first[order], start[order]
    for k in range(1, len(first)):
        if first[k] > 0:
            first[k] = first[k - 1] if start[k] == start[k - 1] and first[k - 1] > 0 else k


def merged(schedule: Schedule, points: tuple[tuple[int, ...], ...]) -> Schedule:
    """A schedule whose weight gradients are cut at these units of each stage only; others run whole, at their first
    range, and free no memory later for it."""
    foreign = {
        (op.stage, op.microbatch)
        for row in schedule.ops
        for op in row
        if op.units is not None and not {*op.units} <= {*points[op.stage]}
    }
    if not foreign:
        return schedule
    rows = []
    for row in schedule.ops:
        whole = [
            replace(op, units=None) if op.kind is Kind.W and (op.stage, op.microbatch) in foreign else op for op in row
        ]
        rows.append(tuple(dict.fromkeys(whole)))
    return replace(schedule, ops=tuple(rows))


def places(prices: Prices, own: Instance) -> Array:
    """For each micro-batch of a schedule's own instance, the model's that stands for it: of its size and direction."""
    free: dict[tuple[int, int], list[int]] = {}
    for j, key in reversed(list(enumerate(kinds(prices.instance)))):
        free.setdefault(key, []).append(j)
    return np.array([free[key].pop() for key in kinds(own)], dtype=np.int64)


def _in_order(prices: Prices, times: HintTimes, order: Array) -> None:
    """Relabel in place, so that micro-batches of a class pass in order."""
    for group in range(int(prices.group.max()) + 1):
        members = np.flatnonzero((prices.group == group) & times.present)
        members = members[np.argsort(prices.place[members])]
        for s in range(len(times.forward)):
            times.forward[s, members] = times.forward[s, members[np.argsort(order[0, s, members])]]
            passed = members[np.argsort(order[1, s, members])]
            for table in (times.backward, times.weight, times.done, times.fused, times.first, times.start):
                table[s, members] = table[s, passed]
            split = ~times.fused[s, members] & (times.first[s, members].max(axis=1) == 0)
            plain = members[split]
            sooner = plain[np.argsort(times.weight[s, plain], kind="stable")]
            for table in (times.weight, times.done, times.start):
                table[s, plain] = table[s, sooner]
