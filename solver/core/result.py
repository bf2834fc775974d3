"""What a solver answers: a timeline, how good it is proven to be, and who found it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from .granularity import ALL, Granularity

if TYPE_CHECKING:
    from ..evaluate.noise import Noise
    from ..evaluate.timeline import Timeline
    from .schedule import Schedule

Objective = Literal["makespan", "span"]
"""What is minimised; see `Timeline.makespan` and `Timeline.span`."""


class Status(StrEnum):
    """How an answer stands."""

    OPTIMAL = "OPTIMAL"
    """A schedule whose objective value equals the lower bound."""
    FEASIBLE = "FEASIBLE"
    """A schedule; no proof that none is better."""
    INFEASIBLE = "INFEASIBLE"
    """Proven: no schedule respects the limits."""
    UNKNOWN = "UNKNOWN"
    """No schedule found, and no proof that there is none."""


NOT_THERE, OVER_LIMIT = "n/a", "over limit"
"""Why a named schedule is missing: it does not exist for the placement or the batch; it breaks the memory limit."""

FIGURES = (
    "makespan", "span", "bubble", "span_bubble", "utilisation", "peak_memory", "messages", "message_bytes",
    "microbatch_sizes", "fused", "cut", "updates", "weight_copies", "steady_microbatch", "steady_bubble", "unit",
)  # fmt: skip
"""Keys of `Timeline.row`; None in the row of a result without a timeline."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a schedule takes as planned, and in random runs, in ticks.

    Parameters
    ----------
    value
        Objective value as planned.
    mean, error, p95
        Mean over the runs, the standard error of it, and the 95th percentile.
    """

    value: int
    mean: float
    error: float
    p95: float


@dataclass(frozen=True, slots=True)
class Robustness:
    """What was gained under noise, and given up without.

    Parameters
    ----------
    noise
        Model of the random runs.
    runs
        How many there were; none of them was seen by the search.
    plain, robust
        Of the best schedule for the planned times, and of the one that was chosen.
    """

    noise: Noise
    runs: int
    plain: Figures
    robust: Figures

    @property
    def gain(self) -> float:
        """1 - robust mean / plain mean."""
        return 1 - self.robust.mean / self.plain.mean if self.plain.mean else 0.0

    @property
    def price(self) -> float:
        """How much longer the robust schedule is as planned: its value / the plain one's - 1."""
        return self.robust.value / self.plain.value - 1 if self.plain.value else 0.0


@dataclass(frozen=True, slots=True)
class Result:
    """Answer of a solver.

    Parameters
    ----------
    method
        Name of the method that was asked.
    objective
        What was minimised.
    timeline
        The schedule found, simulated; None where there is none.
    bound
        Lower bound of the objective, in ticks.
    time_s
        Wall time of the search, in seconds.
    found_by
        Name of the part that found the schedule, where `method` is a portfolio.
    proven_for
        What `bound` holds for: "problem", or "sizes" when the micro-batch sizes were fixed by search.
    reason
        Why there is no schedule, or what the search left open.
    infeasible
        Whether it is proven that there is no schedule.
    lack
        `NOT_THERE` or `OVER_LIMIT`, where a named schedule is missing for that.
    interrupted
        Whether Ctrl-C ended the search; the best so far is the answer then.
    granularity
        What was to be chosen beside the order; `bound` holds for schedules that keep to it.
    robustness
        Where a robust schedule was asked for: figures under noise of it, and of the best schedule as planned.
    """

    method: str
    objective: Objective
    timeline: Timeline | None
    bound: int
    time_s: float
    found_by: str = ""
    proven_for: Literal["problem", "sizes"] = "problem"
    reason: str = ""
    infeasible: bool = False
    lack: str = ""
    interrupted: bool = False
    granularity: Granularity = ALL
    robustness: Robustness | None = None

    @property
    def value(self) -> int | None:
        """Objective value of the schedule found, in ticks."""
        return None if self.timeline is None else self.timeline.value(self.objective)

    @property
    def gap(self) -> float | None:
        """`value / bound - 1`."""
        value = self.value
        if value is None or (self.bound == 0 and value > 0):
            return None
        return value / self.bound - 1 if self.bound else 0.0

    @property
    def status(self) -> Status:
        """OPTIMAL only when the gap is 0."""
        if self.timeline is None:
            return Status.INFEASIBLE if self.infeasible else Status.UNKNOWN
        return Status.OPTIMAL if self.value == self.bound else Status.FEASIBLE

    @property
    def standing(self) -> str:
        """The status for people: with what an optimum is proven for, and why a named schedule is missing."""
        if self.timeline is None:
            return self.lack or str(self.status)
        scope = " for these micro-batch sizes"
        return str(self.status) + (scope if self.status is Status.OPTIMAL and self.proven_for == "sizes" else "")

    @property
    def schedule(self) -> Schedule:
        """The schedule found.

        Raises
        ------
        NoAnswerError
            When there is none.
        """
        from .errors import NoAnswerError

        if self.timeline is None:
            raise NoAnswerError(self.reason or "no schedule was found")
        return self.timeline.schedule

    def row(self) -> dict[str, object]:
        """The result as plain data, with the names of the command line's JSON."""
        timeline = self.timeline
        row: dict[str, object] = {
            "status": str(self.status),
            "method": self.method,
            "found_by": self.found_by or self.method,
            "objective": self.objective,
            "granularity": str(self.granularity),
            "bound": self.bound,
            "gap": self.gap,
            "proven_for": self.proven_for,
            "time_s": round(self.time_s, 4),
            "reason": self.reason,
        }
        if self.robustness is not None:
            row["robustness"] = asdict(self.robustness)
        return row | (dict.fromkeys(FIGURES) if timeline is None else timeline.row())

    def __str__(self) -> str:
        if self.timeline is None:
            return f"{self.status} by {self.method}: {self.reason}"
        gap = "unknown" if self.gap is None else f"{self.gap:.2%}"
        timeline = self.timeline
        unit = timeline.problem.unit
        of = " for these micro-batch sizes" if self.proven_for == "sizes" else ""
        peak = ", ".join(str(value) for value in timeline.peak_memory)
        return (
            f"{self.standing} by {self.found_by or self.method}: {self.objective} {self.value} {unit}, "
            f"bound {self.bound}{of}, gap {gap}, "
            f"makespan bubble {timeline.bubble:.2%}, span bubble {timeline.span_bubble:.2%}, "
            f"peak memory [{peak}] B, {self.time_s:.2f} s" + (f"; {self.reason}" if self.reason else "")
        )
