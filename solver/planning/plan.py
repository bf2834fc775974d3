"""What planning answers: which layers form which stage, where the stages live, and in which order their ops run."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.placement import Placement
from ..evaluate.timeline import Timeline
from .workload import Split, Workload


@dataclass(frozen=True, slots=True)
class Plan:
    """A split of a workload and a schedule for it, within every rank's memory.

    Parameters
    ----------
    workload
        What was planned.
    split
        Layers of each stage.
    timeline
        The schedule, simulated, on the problem of that split.
    bound
        Ticks below which no plan of the workload can be: whatever split, placement, division of the batch and order.
    method
        How it was found, for people.
    time_s
        Seconds that it took.
    reason
        What the search left open; "" where it ran to its end.
    """

    workload: Workload
    split: Split
    timeline: Timeline
    bound: int
    method: str
    time_s: float
    reason: str = ""

    @property
    def makespan(self) -> int:
        """Ticks of one step, before the optimizer."""
        return self.timeline.makespan

    @property
    def gap(self) -> float:
        """Makespan over bound, minus 1."""
        return self.makespan / self.bound - 1 if self.bound else 0.0

    @property
    def placement(self) -> Placement:
        """Stage to rank."""
        return self.timeline.schedule.placement

    @property
    def division(self) -> tuple[int, ...]:
        """Samples of each micro-batch."""
        return self.timeline.schedule.sizes


def saved(makespan: float, base: float) -> float:
    """How much shorter a step is than another, as a share of that; 0 where the other takes no time.

    Examples
    --------
    >>> saved(3, 4), saved(0, 0)
    (0.25, 0.0)
    """
    return 1 - makespan / base if base else 0.0
