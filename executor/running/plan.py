"""What ranks agree on before the first message: instructions, and how weight units may float."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from adaptpipe.solver import InputError, NoAnswerError, Problem, Schedule, simulate
from adaptpipe.solver.core.updates import MEANING, Updates
from adaptpipe.solver.evaluate.limits import in_unit, over_limit
from adaptpipe.solver.floating import FloatingPlan

from ..programs.lowering import lower
from ..programs.program import Program
from ..programs.reserve import widened
from ..programs.units import finer
from .memory import MemoryRule

ExecutionMode = Literal["adaptive", "static"]
"""Whether weight units float, or every op runs in the schedule's order."""


_RUN_BY: dict[Updates, str] = {
    "step": "train with Pipeline",
    "stash": "train with AsyncPipeline",
    "double": "that is simulated only, so train with a schedule of PipeDream, which updates by 'stash', or of 1F1B",
    "newest": "that is simulated only, so train with a schedule of PipeDream, which updates by 'stash', or of 1F1B",
}
"""What to do with a schedule instead."""


@dataclass(frozen=True)
class Plan:
    """A schedule that can be run. Made by `Plan.of`.

    Parameters
    ----------
    problem, schedule
        What is run: those given, or the same with finer weight units.
    program
        The schedule's instructions.
    floating
        How the units may float; None in static execution.
    """

    problem: Problem
    schedule: Schedule
    program: Program
    floating: FloatingPlan | None

    @classmethod
    def of(
        cls,
        problem: Problem,
        schedule: Schedule,
        execution: ExecutionMode,
        memory: MemoryRule = "enforce",
        unit_ticks: float | None = None,
        updates: Updates = "step",
    ) -> Plan:
        """Prepare a schedule.

        Parameters
        ----------
        problem, schedule
            What to run.
        execution, memory
            How.
        unit_ticks
            Ticks that a weight unit may take; None: the units stay as they are.
        updates
            Those that the caller runs.

        Raises
        ------
        InputError
            If an argument is out of range, or the schedule is for another shape, or updates weights otherwise.
        NoAnswerError
            If the schedule is invalid, cannot end, or can pass a memory limit that is enforced.
        """
        for name, value, known in (("execution", execution, ExecutionMode), ("memory", memory, MemoryRule)):
            if value not in get_args(known):
                raise InputError(f"{name} = {value!r}: is none of {', '.join(get_args(known))}")
        _require_updates(schedule, updates)
        if unit_ticks is not None:
            problem, schedule = finer(problem, schedule, unit_ticks)
        if memory == "report":
            problem = replace(problem, memory=replace(problem.memory, limit=(None,) * problem.ranks))
        program = lower(problem, schedule)
        wide = widened(problem, program)
        try:
            return cls(wide, schedule, program, _floating(wide, schedule, execution))
        except NoAnswerError as error:
            if wide != problem:
                _floating(problem, schedule, execution)  # refused without, too?
                raise NoAnswerError(f"{error}; {_grown(problem, wide)}") from None
            raise

    @property
    def fingerprint(self) -> str:
        """Hash of everything that ranks must agree on before the first message."""
        return self.program.fingerprint


def _require_updates(schedule: Schedule, updates: Updates) -> None:
    """Refuse a schedule that updates weights otherwise than its caller does."""
    if schedule.updates != updates:
        raise InputError(
            f"the schedule's updates are {schedule.updates!r}: {MEANING[schedule.updates]}; {_RUN_BY[schedule.updates]}"
        )


def _floating(problem: Problem, schedule: Schedule, execution: ExecutionMode) -> FloatingPlan | None:
    """How units may float; refuses what could pass a limit."""
    if execution == "adaptive":
        return FloatingPlan.of(problem, schedule)
    if problem.limited and (over := over_limit(simulate(problem, schedule))):
        raise NoAnswerError(over[0].message)
    return None


def _grown(problem: Problem, wide: Problem) -> str:
    """Where a schedule's messages need more than was set aside for them."""
    unit = problem.memory.unit
    rank, usual, needed = next(
        (rank, usual, needed)
        for rank, (usual, needed) in enumerate(zip(problem.memory.reserve, wide.memory.reserve, strict=True))
        if needed > usual
    )
    return (
        f"messages of rank {rank} count {in_unit(needed, unit)} of it, because this order has more of them on their "
        f"way at once than memory.reserve = {in_unit(usual, unit)} holds"
    )
