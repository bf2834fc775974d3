"""Adaptive execution on a clock: as planned, or in random runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..core.ops import Op
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array, Schedule
from ..evaluate.kernel import memory
from ..evaluate.noise import Noise
from ..evaluate.scenario import Planned, Scenario
from ..evaluate.simulate import op_bytes, static_bytes
from ..evaluate.timeline import Timeline
from . import kernel
from .arrays import beginning
from .plan import FloatingPlan, Order

SILENT = Noise(sigma=0, link=0)
"""Every run takes the planned times."""


def simulate_adaptive(
    problem: Problem, schedule: Schedule, scenario: Scenario | None = None, *, order: Order = "planned"
) -> Timeline:
    """Run a schedule adaptively: its F, I and B in their order, weight units where they fill waits.

    Parameters
    ----------
    problem, schedule
        A schedule of the problem; its order of W is what the policy compares with.
    scenario
        A random run, in whole ticks (`parts=1`); None: without noise.
    order
        Which units come first.

    Returns
    -------
    Timeline
        Of the order that came out: units of one W that ran directly one after the other are one range.

    Raises
    ------
    InputError, NoAnswerError
        As `FloatingPlan.of`.

    Examples
    --------
    >>> from adaptpipe.solver.evaluate.simulate import simulate
    >>> from adaptpipe.solver.heuristics.one_f_one_b import one_f_one_b_split
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 3}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> schedule = one_f_one_b_split(problem)
    >>> simulate(problem, schedule).makespan, simulate_adaptive(problem, schedule).makespan
    (11, 10)
    """
    plan = FloatingPlan.of(problem, schedule, order=order, parts=1)
    if scenario is None:
        scenario = SILENT.scenario(problem.instance(schedule.sizes), 0, parts=1)
    return Runs(plan).timeline(scenario)


class Runs:
    """Runs of one plan; what they share is worked out once."""

    def __init__(self, plan: FloatingPlan) -> None:
        self.plan = plan
        instance = plan.problem.instance(plan.schedule.sizes)
        fixed, units = (replace(plan.schedule, ops=ops) for ops in (plan.fixed, plan.units))
        self._fixed, self._ranges = Planned.of(instance, fixed), Planned.of(instance, units)
        joined = self._ranges.ticks - plan.pieces.overhead // plan.parts
        self._units = replace(self._ranges, ticks=joined)
        self._first = plan.pieces.fixed_at + plan.pieces.unit_at

    def value(self, scenario: Scenario, objective: Objective = "makespan") -> float:
        """Makespan or span of a run, in ticks."""
        _, start, end = self._run(scenario)
        if objective == "makespan":
            ticks = end.max() - start.min()
        else:
            ticks = max(end[b - 1] - start[a] for a, b in pairwise(self._first.tolist()) if b > a)
        return float(ticks) / self.plan.parts

    def timeline(self, scenario: Scenario) -> Timeline:
        """A run in whole ticks, op by op."""
        assert self.plan.parts == 1, "a timeline is in whole ticks"
        pieces, start, end = self._run(scenario)
        problem, schedule = self.plan.problem, self.plan.schedule
        flat = [op for rows in (self.plan.fixed, self.plan.units) for row in rows for op in row]
        rows: list[tuple[Op, ...]] = []
        starts: list[int] = []
        ends: list[int] = []
        for a, b in pairwise(self._first.tolist()):
            row: list[Op] = []
            for piece, began, ended in zip(pieces[a:b].tolist(), start[a:b].tolist(), end[a:b].tolist(), strict=True):
                op = flat[piece]
                joined = _joined(problem, row[-1], op) if row and ends[-1] == began else None
                if joined is None:
                    row.append(op)
                    starts.append(began)
                    ends.append(ended)
                else:
                    row[-1], ends[-1] = joined, ended
            rows.append(tuple(row))
        found = replace(schedule, ops=tuple(rows))
        instance = problem.instance(schedule.sizes)
        during, after = np.zeros(len(starts), dtype=np.int64), np.zeros(len(starts), dtype=np.int64)
        static = static_bytes(problem, found)
        memory(found.table.offsets, static, *op_bytes(instance, found), during, after)
        at, until = np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)
        return Timeline(problem, found, at, until, during, after, static)

    def _run(self, scenario: Scenario) -> tuple[Array, Array, Array]:
        """Pieces of each rank in the order in which they ran, with their starts and ends."""
        x = self.plan.pieces
        assert scenario.parts == self.plan.parts, "a plan and its runs are in the same parts of a tick"
        ticks, lags = scenario.times(self._fixed)
        units, ranges = scenario.times(self._units)[0], scenario.times(self._ranges)[0]
        pieces, start, end = (np.zeros(len(ticks) + len(units), dtype=np.int64) for _ in range(3))
        kernel.run(x, beginning(x), ticks, units, ranges - units, lags, pieces, start, end)
        return pieces, start, end


def _joined(problem: Problem, one: Op, other: Op) -> Op | None:
    """Two ops as one, where the second is the next unit of the same W."""
    if one.units is None or other.units is None or one.units[1] != other.units[0]:
        return None
    if (one.stage, one.microbatch) != (other.stage, other.microbatch):
        return None
    units = one.units[0], other.units[1]
    return replace(one, units=None if units == (0, len(problem.weight_units[one.stage])) else units)
