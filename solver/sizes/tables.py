"""Prices of a problem's ops for each micro-batch size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..core.instance import Instance
from ..core.ops import Op
from ..core.problem import Problem
from ..core.schedule import Array, Schedule
from ..evaluate.simulate import op_bytes, op_inputs, op_ticks


def single_sizes(problem: Problem) -> tuple[Instance, ...]:
    """For each allowed size an instance with one micro-batch of that size in each direction."""
    directions = problem.placement.directions
    return tuple(
        replace(problem, samples=directions * size, sizes=(size,)).instance((size,) * directions)
        for size in problem.sizes
    )


class OpPrices:
    """What each op of a schedule would take, were its micro-batch of another size.

    Attributes
    ----------
    ticks, take, swell, free
        Durations, and bytes as in `evaluate.kernel.memory`, shape (n, Z).
    lag
        Message times from the two inputs, shape (n, 2, Z).
    """

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        count = schedule.microbatches
        way = [schedule.placement.direction_of(j, count) for j in range(count)]
        rows = tuple(tuple(Op(op.stage, op.kind, way[op.microbatch], op.units) for op in row) for row in schedule.ops)
        # The same ops, of one micro-batch in each direction: no more is needed to look prices up.
        folded = Schedule(schedule.placement, (1,) * schedule.placement.directions, rows)
        instances = single_sizes(problem)
        prices = [(op_ticks(each, folded), *op_bytes(each, folded)) for each in instances]
        self.ticks, self.take, self.swell, self.free = (
            np.ascontiguousarray(np.stack(column, axis=-1)) for column in zip(*prices, strict=True)
        )
        self.lag: Array = np.ascontiguousarray(np.stack([op_inputs(each, folded)[1] for each in instances], axis=-1))
