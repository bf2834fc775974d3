"""What a back end answers, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pulp

Values = Mapping[str, float]
"""Value of each variable, by name."""

TOLERANCE = 1e-9
"""How far a solver may pass a constraint, or a binary be from 0 and 1: times the largest constant, still no step."""

GAP = 0.9
"""Steps by which the best may be above the solver's bound when it stops: values are whole numbers of steps."""

GRACE_S = 0.3
"""Seconds that a solver gets to stop after its limit, before it is left behind."""


NEVER_S = 1e6
"""Seconds that stand for "no limit" where infinity is not understood."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Where a solver stands when it stops.

    PuLP's status is not enough: after a time limit it is "Optimal" for an incumbent (coin-or/pulp#649, #383), with
    values also where there is no solution (#517). So a back end says what it can stand for, nothing else.

    Parameters
    ----------
    values
        The best solution; None: there is none.
    bound
        Lower bound of the objective, in steps; None: not known.
    infeasible
        Whether it is proven that there is no solution.
    """

    values: Values | None = None
    bound: float | None = None
    infeasible: bool = False

    def __post_init__(self) -> None:
        assert self.values is None or not self.infeasible


@dataclass(frozen=True, slots=True)
class Task:
    """What a back end is given.

    Parameters
    ----------
    model
        The program.
    warm
        Whether the variables have values to start from.
    deadline
        Moment (`time.monotonic`) by which the answer is there.
    workers, seed
        Of the solver.
    on_values
        Told of each better solution, where the solver tells.
    """

    model: pulp.LpProblem
    warm: bool
    deadline: float
    workers: int = 1
    seed: int = 0
    on_values: Callable[[Values], None] = field(default=lambda _: None)


class Backend(Protocol):
    """A solver of integer linear programs."""

    def __call__(self, task: Task) -> Answer:
        """Solve."""
