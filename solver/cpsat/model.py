"""The model: variables, then constraints, then bounds of the objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ortools.sat.python import cp_model

from ..core.result import Objective
from . import constraints, sizes
from .hint import HintTimes
from .prices import Prices
from .variables import Variables

Constraint = Callable[[Variables], None]

CONSTRAINTS: tuple[Constraint, ...] = (
    sizes.division,
    constraints.data_flow,
    constraints.slices_in_turn,
    constraints.one_op_at_a_time,
    constraints.first_in_first_out,
    constraints.earliest_starts,
    constraints.within_memory,
)
"""What every schedule keeps, in the order in which it is added."""

OBJECTIVES: dict[Objective, Constraint] = {"makespan": constraints.makespan, "span": constraints.span}


def build(
    prices: Prices,
    objective: Objective,
    hint: HintTimes | None,
    bound: int,
    above: int | None,
    deadline: float,
    *,
    fifo: bool = True,
    minimise: bool = True,
    extra: Sequence[Constraint] = (),
) -> tuple[cp_model.CpModel, Variables]:
    """Model of an instance.

    Parameters
    ----------
    prices
        The instance on the model's clock.
    objective
        What is minimised.
    hint
        Start times of a known schedule, or None.
    bound, above
        Known lower bound, and value of the known schedule (None: none), in steps.
    deadline
        Moment (`time.monotonic`) by which the model must be built.
    fifo
        Whether micro-batches of a class pass each stage in order.
    minimise
        Whether there is an objective to minimise, or any solution will do.
    extra
        Constraints beyond `CONSTRAINTS`.

    Raises
    ------
    OutOfTime
        When the deadline comes first.
    """
    model = cp_model.CpModel()
    horizon = above if above is not None and objective == "makespan" else prices.horizon
    v = Variables(model, prices, horizon, hint, fifo, deadline)
    for constraint in (*CONSTRAINTS, OBJECTIVES[objective], *extra):
        constraint(v)
    model.add(v.objective >= min(bound, horizon))
    if above is not None:
        model.add(v.objective <= above)
        if hint is not None:
            model.add_hint(v.objective, above)
    if minimise:
        model.minimize(v.objective)
    return model, v
