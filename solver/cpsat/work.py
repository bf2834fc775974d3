"""The work that is left, as it is chosen: the solver sees intervals that may be absent as if they were."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from .variables import Variables


def chosen_backward(v: Variables, s: int, j: int) -> cp_model.LinearExpr | int:
    """Steps that a whole backward takes: fused, split, or cut, each range of which costs something; 0 if not there."""
    prices, here = v.prices, v.here(j)
    split = int(prices.backward_input[s, j] + prices.backward_weight[s, j])
    steps: cp_model.LinearExpr | int = split * here[0] if here else split
    fused, ranges = v.fused[s][j], v.ranges[s][j]
    if fused is not None:
        steps += (int(prices.backward[s, j]) - split) * fused
    if ranges is not None:
        cost = int(prices.instance.overhead[s]) // prices.step
        steps += sum(cost * literal for (first, _), literal in ranges.chosen.items() if first)
    return steps


def chosen_work_left(v: Variables) -> None:
    """From the start of an F on, the makespan has room for what the rank still has to do.

    Where micro-batches are alike and pass in order: when F number n of a stage starts, the F's and backwards from
    number n on are left, those of the rank's later stages, and the backwards of its earlier ones.
    """
    instance, prices = v.prices.instance, v.prices
    if not v.fifo or not prices.exact or len(v.classes()) > 1:
        return
    (members,) = v.classes()
    owners = instance.rank[:, members[0]]
    for s in range(instance.stages):
        stages = np.flatnonzero(owners == owners[s]).tolist()
        left: cp_model.LinearExpr | int = 0
        for j in reversed(members):
            left += sum(int(prices.forward[t, j]) for t in stages if t >= s)
            left += sum(chosen_backward(v, t, j) for t in stages)
            v.model.add(v.objective >= v.forward[s][j] + left)
