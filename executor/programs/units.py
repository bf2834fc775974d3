"""Finer weight units, so that a wait is filled without being overrun by much."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from math import ceil

from adaptpipe.solver import Affine, InputError, Problem, Schedule
from adaptpipe.solver.core.problem import Cost, price

_MOST = 256
"""Parts that a unit is cut into at most: beyond that, calls cost more than what they compute."""


def finer(problem: Problem, schedule: Schedule, unit_ticks: float) -> tuple[Problem, Schedule]:
    """Cut every weight unit into equal parts that take a given time at most; the whole takes what it did.

    Parameters
    ----------
    problem, schedule
        The ranges of the schedule stay the same parts of the weight gradients.
    unit_ticks
        Ticks of a unit at most, for the schedule's largest micro-batch. A unit is cut into 256 parts at most.

    Raises
    ------
    InputError
        If the time is not above 0.

    Examples
    --------
    >>> from adaptpipe.solver.heuristics.one_f_one_b import one_f_one_b_split
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 1}, "batch": {"samples": 1}, "costs":
    ...     {"forward": 1, "backward_input": 1, "weight_units": [4, 7]}})
    >>> finer(problem, one_f_one_b_split(problem), 3)[0].weight_units
    ((2, 2, 2, 2, 3),)
    """
    if not unit_ticks > 0:
        raise InputError(f"the time of a weight unit: {unit_ticks:g} ticks are not above 0")
    largest = max(schedule.sizes)
    counts = [
        [min(_MOST, max(1, ceil(price(unit, largest) / unit_ticks))) for unit in units]
        for units in problem.weight_units
    ]
    starts = [[0, *accumulate(row)] for row in counts]
    rows = tuple(
        tuple(
            op
            if op.units is None
            else replace(op, units=(starts[op.stage][op.units[0]], starts[op.stage][op.units[1]]))
            for op in row
        )
        for row in schedule.ops
    )
    freed = problem.memory.retained_units
    return (
        replace(
            problem,
            weight_units=_cut(problem.weight_units, counts),
            memory=replace(problem.memory, retained_units=None if freed is None else _cut(freed, counts)),
        ),
        replace(schedule, ops=rows),
    )


def _cut(costs: tuple[tuple[Cost, ...], ...], counts: list[list[int]]) -> tuple[tuple[Cost, ...], ...]:
    return tuple(
        tuple(part for cost, count in zip(row, parts, strict=True) for part in _parts(cost, count))
        for row, parts in zip(costs, counts, strict=True)
    )


def _parts(cost: Cost, count: int) -> list[Cost]:
    """Integers that are as equal as can be, and sum up to the cost at every size."""
    if isinstance(cost, int):
        return list(_even(cost, count))
    return [Affine(*both) for both in zip(_even(cost.fixed, count), _even(cost.per_sample, count), strict=True)]


def _even(whole: int, count: int) -> tuple[int, ...]:
    return tuple(whole * (i + 1) // count - whole * i // count for i in range(count))
