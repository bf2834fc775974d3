"""A known schedule as start times of the model's variables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.ops import Kind
from ..core.problem import Problem
from ..core.schedule import Array, Schedule
from ..evaluate import kernel
from ..evaluate.simulate import op_inputs, op_ticks
from .prices import Mask, Prices


@dataclass(frozen=True, slots=True)
class HintTimes:
    """Start of every F, I or B, and W, in steps, and which backwards are fused; shapes (S, m)."""

    forward: Array
    backward: Array
    weight: Array
    fused: Mask


def hint_times(problem: Problem, prices: Prices, schedule: Schedule, fifo: bool) -> HintTimes | None:
    """Start times of a schedule; None where it cuts a weight gradient into ranges, which the model does not have.

    With `fifo`, the ops of each stage and class are relabelled so that micro-batches pass in order. That changes no
    start time: the micro-batches of a class are alike.
    """
    table, instance = schedule.table, prices.instance
    last = instance.unit_ticks.shape[2] - 1
    if ((table.start > 0) | ((table.stop >= 0) & (table.stop < last))).any():
        return None
    # The op's own ticks on the model's clock, which may round down.
    before, lag = op_inputs(instance, schedule)
    ticks, lag = op_ticks(instance, schedule) // prices.step, lag // prices.step
    start, done = np.zeros(len(ticks), dtype=np.int64), np.zeros(problem.ranks, dtype=np.int64)
    if kernel.earliest(table.offsets, ticks, before, lag, start, done) < len(ticks):
        return None
    shape = (instance.stages, instance.microbatches)
    times = {kind: np.full(shape, -1, dtype=np.int64) for kind in Kind}
    order = {kind: np.zeros(shape, dtype=np.int64) for kind in Kind}
    position = np.arange(len(ticks))
    for kind in Kind:
        rows = np.flatnonzero(table.kind == kind)
        times[kind][table.stage[rows], table.microbatch[rows]] = start[rows]
        order[kind][table.stage[rows], table.microbatch[rows]] = position[rows]
    whole = times[Kind.B] >= 0
    backward = np.where(whole, times[Kind.B], times[Kind.I])
    ranking = np.where(whole, order[Kind.B], order[Kind.I])
    # A fused op where the model has none is I and W in a row: B is no shorter there.
    unfused = whole & ~prices.fusible
    weight = np.where(unfused, backward + prices.backward_input, times[Kind.W])
    weight_order = np.where(unfused, ranking, order[Kind.W])
    fused: Mask = whole & prices.fusible
    weight = np.where(fused, backward, weight)
    forward = times[Kind.F]
    if fifo:
        for group in range(int(prices.group.max()) + 1):
            members = np.flatnonzero(prices.group == group)
            members = members[np.argsort(prices.place[members])]
            for s in range(shape[0]):
                forward[s, members] = forward[s, members[np.argsort(order[Kind.F][s, members])]]
                passed = members[np.argsort(ranking[s, members])]
                weights = passed
                if not prices.fusible[s, members].any():
                    weights = members[np.argsort(weight_order[s, members])]
                backward[s, members], fused[s, members] = backward[s, passed], fused[s, passed]
                weight[s, members] = weight[s, weights]
    return HintTimes(forward, backward, weight, fused)
