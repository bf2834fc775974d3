"""The model: variables, then constraints, then the objective."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ..core.result import Objective
from . import constraints, objectives
from .sets import Sets
from .variables import Variables

Constraint = Callable[[Variables], None]

CONSTRAINTS: tuple[Constraint, ...] = (
    constraints.data_flow,
    constraints.first_in_first_out,
    constraints.one_op_at_a_time,
    constraints.order_is_transitive,
    constraints.work_before_and_after,
    constraints.moments,
    constraints.within_memory,
)
"""What every schedule keeps, in the order in which it is added."""

OBJECTIVES: dict[Objective, tuple[Constraint, ...]] = {
    "makespan": (objectives.makespan,),
    "span": (objectives.span, objectives.first_ops_at_once, objectives.forwards_at_once),
}
"""What is minimised."""


def build(sets: Sets, objective: Objective, bound: int, latest: int, deadline: float = math.inf) -> Variables | None:
    """Model of an instance; None where the deadline comes first.

    Parameters
    ----------
    sets
        The ops, and what is known of them.
    objective
        What is minimised.
    bound, latest
        Known lower bound, and a moment at which some best schedule has ended, in steps.
    deadline
        Moment (`time.monotonic`) after which building stops.
    """
    v = Variables(sets, objective, bound, latest)
    for constraint in (*CONSTRAINTS, *OBJECTIVES[objective]):
        if time.monotonic() > deadline:
            return None
        constraint(v)
    return v


def binaries(sets: Sets, objective: Objective) -> int:
    """Number of binaries that the model would have, about."""
    count = len(sets.pairs) + int(sets.prices.fusible.sum())
    if objective == "span" and objectives.in_a_row(sets) is None:
        forwards = [int((sets.rank[: sets.count // 3] == rank).sum()) for rank in range(sets.prices.instance.ranks)]
        count += sum(n * (n + 1) for n in forwards)
    return count
