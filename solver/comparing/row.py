"""One line of a comparison: a method on one placement, and what its schedule takes and needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..bounds import lower_bound
from ..core.errors import InputError
from ..core.method import Method
from ..core.problem import Problem
from ..core.result import NOT_THERE, Objective, Result
from ..core.schedule import Schedule
from ..core.stream import weight_copies
from ..evaluate.simulate import simulate
from ..evaluate.timeline import Timeline
from ..solving import solve
from .variants import Variant, where_text


@dataclass(frozen=True, slots=True)
class Row:
    """A method on one placement.

    Parameters
    ----------
    label
        The method's name, with what tells its variants apart.
    method
        The method.
    result
        Its answer within the memory limits.
    timeline
        Its schedule, also where that breaks a limit; None where there is none.
    bound
        Lower bound, in ticks, of every schedule on the same placement that keeps the limits; for a schedule that
        breaks one, of every schedule there is.
    """

    label: str
    method: Method
    result: Result
    timeline: Timeline | None
    bound: int

    @property
    def fits(self) -> bool:
        """Whether it has a schedule within the limits."""
        return self.result.timeline is not None

    @property
    def placement(self) -> str:
        """The placement for people; "" where the method has none here."""
        return "" if self.timeline is None else where_text(self.timeline.problem)

    @property
    def stages_per_rank(self) -> int | None:
        """The most stages of one direction that a rank holds."""
        if self.timeline is None:
            return None
        placement = self.timeline.schedule.placement
        return max(len(held) for held in placement.held) // placement.directions

    @property
    def value(self) -> int | None:
        """Objective value, in ticks."""
        return None if self.timeline is None else self.timeline.value(self.result.objective)

    @property
    def memory(self) -> int:
        """Bytes that its fullest rank holds at some time; 0 without a schedule."""
        return 0 if self.timeline is None else max(self.timeline.peak_memory)

    @property
    def copies(self) -> int | None:
        """How many times a stage's parameters are held, over all ranks."""
        if self.timeline is None:
            return None
        return max(len(set(ranks)) for ranks in zip(*self.timeline.schedule.placement.stages, strict=True))

    @property
    def versions(self) -> int | None:
        """The most versions of its weights that a stage holds at a time."""
        return None if self.timeline is None else max(weight_copies(self.timeline.schedule), default=1)

    @property
    def sliced(self) -> bool:
        """Whether its micro-batches are cut into slices."""
        return self.timeline is not None and self.timeline.schedule.slices > 1

    @property
    def synchronous(self) -> bool:
        """Whether all of a batch is computed with the same weights."""
        return self.method.updates == "step"

    @property
    def gap(self) -> float | None:
        """`value / bound - 1`."""
        return gap(self.value, self.bound)

    def data(self) -> dict[str, object]:
        """The row as plain data, with the names of the command line's JSON; figures also where it breaks a limit."""
        timeline = self.timeline
        row = self.result.row() | {"label": self.label, "fits": self.fits, "bound": self.bound, "gap": self.gap}
        if timeline is None:
            return row | dict.fromkeys(
                ("placement", "stages_per_rank", "slices", "parameter_copies", "weight_versions")
            )
        return (
            row
            | timeline.row()
            | {
                "placement": timeline.schedule.placement.name,
                "stages_per_rank": self.stages_per_rank,
                "slices": timeline.schedule.slices,
                "parameter_copies": self.copies,
                "weight_versions": self.versions,
            }
        )


def gap(value: int | None, bound: int) -> float | None:
    """How far a value lies above a bound, as a share of it; None where there is none, or the bound is 0 and it not."""
    if value is None or (value and not bound):
        return None
    return value / bound - 1 if bound else 0.0


def handmade(variant: Variant, objective: Objective) -> Row:
    """The row of a schedule of the literature, in milliseconds: with its best division of the batch.

    Parameters
    ----------
    variant
        The method and the problem on its placement.
    objective
        What counts.

    Raises
    ------
    KeyboardInterrupt
        When Ctrl-C came before there was one.
    """
    problem, name = variant.problem, variant.method.name
    if problem is None:
        return missing(variant.label, variant.method, objective, variant.reason)
    try:
        result = solve(problem, name, objective=objective)
        if result.interrupted:
            raise KeyboardInterrupt
        if result.timeline is not None:
            return Row(variant.label, variant.method, result, result.timeline, result.bound)
        timeline = simulate(problem, _least(variant.method, problem, objective))
    except InputError as error:
        return missing(variant.label, variant.method, objective, str(error))
    return Row(variant.label, variant.method, result, timeline, lower_bound(without_limits(problem), objective))


def _least(method: Method, problem: Problem, objective: Objective) -> Schedule:
    """A schedule that breaks a limit: with the most micro-batches, where it exists for them, as they are the smallest.

    Raises
    ------
    InputError
        When it exists for no division of the batch.
    """
    try:
        return method.schedule(problem)
    except InputError:
        return solve(without_limits(problem), method.name, objective=objective).schedule


def without_limits(problem: Problem) -> Problem:
    """The problem with as much memory as a schedule may want."""
    return with_limits(problem, (None,) * problem.ranks)


def with_limits(problem: Problem, limits: tuple[int | None, ...]) -> Problem:
    """The problem with other memory limits, in bytes for each rank."""
    return replace(problem, memory=replace(problem.memory, limit=limits))


def missing(label: str, method: Method, objective: Objective, reason: str) -> Row:
    """The row of a method that does not exist here."""
    return Row(label, method, Result(method.name, objective, None, 0, 0.0, reason=reason, lack=NOT_THERE), None, 0)
