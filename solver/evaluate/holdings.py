"""What a rank's memory is filled with when it is fullest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.ops import Kind
from .simulate import op_bytes
from .timeline import Timeline


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes of a rank at the moment when it holds most.

    Parameters
    ----------
    static
        Weights, gradients and optimizer state, and the reserve.
    activations
        What F's took and no backward has freed yet.
    retained
        What W's still wait for.
    """

    static: int
    activations: int
    retained: int

    @property
    def total(self) -> int:
        """Bytes held, the rank's peak."""
        return self.static + self.activations + self.retained


def holdings(timeline: Timeline) -> tuple[Holding, ...]:
    """What each rank holds when it holds most, the first time that it does.

    Examples
    --------
    >>> from adaptpipe.solver import Problem, simulate
    >>> from adaptpipe.solver.heuristics import one_f_one_b_split
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 1}, "batch": {"samples": 1}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}, "memory": {"activation": 3, "retained": 4}})
    >>> holdings(simulate(problem, one_f_one_b_split(problem, None)))
    (Holding(static=0, activations=3, retained=1),)
    """
    schedule = timeline.schedule
    instance = timeline.problem.instance(schedule.sizes)
    take, swell, free = op_bytes(instance, schedule)
    kind, offsets = schedule.table.kind, schedule.table.offsets
    # I turns its activation into what is retained; the difference, which may be below 0, is what it frees.
    passed = np.where(kind == Kind.I, instance.activation[schedule.table.stage, schedule.table.microbatch], 0)
    activations = take - np.where(kind == Kind.B, free, 0) - passed
    retained = passed - np.where(kind == Kind.B, 0, free)
    found = []
    for rank, (a, b) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        static = int(timeline.static[rank])
        if a == b or int(timeline.during[a:b].max()) <= static:
            found.append(Holding(static, 0, 0))
            continue
        fullest = a + int(timeline.during[a:b].argmax())
        held = int(activations[a:fullest].sum()) + int(take[fullest])
        waiting = int(retained[a:fullest].sum()) + int(swell[fullest])
        found.append(Holding(static, held, waiting))
    return tuple(found)
