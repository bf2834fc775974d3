"""The best schedule so far, and what is proven about it."""

from __future__ import annotations

from typing import Literal

from ..bounds import instance_bound, lower_bound
from ..core.schedule import Schedule
from ..evaluate.limits import over_limit
from ..evaluate.simulate import simulate
from ..evaluate.timeline import Timeline
from .request import Clock, Progress, Request, Sizes


class Incumbent:
    """Best schedule, the best for each division of the batch, and lower bounds."""

    def __init__(self, request: Request, clock: Clock) -> None:
        self._request, self._clock = request, clock
        self.problem, self.objective = request.problem, request.objective
        self.best: Timeline | None = None
        self.found_by = ""
        self.told: int | None = None
        """Value of the latest progress that was told."""
        self.floor = lower_bound(self.problem, self.objective)
        """Bound for every division of the batch."""
        self._bounds: dict[Sizes, int] = {}
        self._values: dict[Sizes, int] = {}
        self._schedules: dict[Sizes, Schedule] = {}
        if len(self.problem.sizes) == 1:
            self._bounds[self.problem.default_sizes()] = self.floor  # the same bound

    @property
    def value(self) -> int | None:
        """Objective value of the best schedule."""
        return None if self.best is None else self.best.value(self.objective)

    @property
    def met(self) -> bool:
        """Whether no schedule can be better."""
        if self.best is None or self.value is None:
            return False
        fixed = self._request.sizes is not None or len(self.problem.sizes) == 1
        return self.value <= (self.bound_of(self.best.schedule.sizes) if fixed else self.floor)

    def bound_of(self, sizes: Sizes) -> int:
        """Bound of the problem with these sizes."""
        if sizes not in self._bounds:
            self._bounds[sizes] = instance_bound(self.problem.instance(sizes), self.objective)
        return max(self.floor, self._bounds[sizes])

    def raise_floor(self, bound: int) -> None:
        """Take over a bound that was proven for every division of the batch."""
        self.floor = max(self.floor, bound)

    def raise_bound(self, sizes: Sizes, bound: int) -> None:
        """Take over a bound that was proven for these sizes."""
        self._bounds[sizes] = max(self.bound_of(sizes), bound)
        if len(self.problem.sizes) == 1:
            self.floor = self._bounds[sizes]

    def hopeless(self, sizes: Sizes) -> bool:
        """Whether a schedule with these sizes cannot be better than the best."""
        return self.value is not None and self.bound_of(sizes) >= self.value

    def value_of(self, sizes: Sizes) -> int:
        """Value of the best schedule with these sizes, or else their bound."""
        return self._values.get(sizes, self.bound_of(sizes))

    def schedule_of(self, sizes: Sizes) -> Schedule | None:
        """Best schedule with these sizes."""
        return self._schedules.get(sizes)

    def allowed(self, schedule: Schedule) -> Schedule:
        """A schedule as the granularity asks for it: without fused backwards, where they are not to be chosen."""
        return schedule if self._request.granularity.fused else schedule.split()

    def take(self, schedule: Schedule, found_by: str) -> None:
        """Simulate a schedule, and keep it if it is better."""
        self.keep(simulate(self.problem, schedule), found_by)

    def keep(self, timeline: Timeline, found_by: str) -> None:
        """Keep a timeline that is better than the best so far, with its sizes or of all."""
        value, sizes = timeline.value(self.objective), timeline.schedule.sizes
        if sizes not in self._values or value < self._values[sizes]:
            self._values[sizes], self._schedules[sizes] = value, timeline.schedule
        if self.value is not None and value >= self.value:
            return
        assert not over_limit(timeline), "only schedules within the limits are kept; all else simulate has checked"
        self.best, self.found_by = timeline, found_by
        if self._request.on_progress is not None and (self.told is None or value < self.told):
            self.told = value
            bound, proven_for = self.proven()
            gap = value / bound - 1 if bound else (None if value else 0.0)
            self._request.on_progress(Progress(found_by, value, bound, gap, self._clock.elapsed, proven_for))

    def proven(self) -> tuple[int, Literal["problem", "sizes"]]:
        """The bound, and what it holds for."""
        if self.best is None or self.value is None or self.value <= self.floor:
            return self.floor, "problem"
        bound = self.bound_of(self.best.schedule.sizes)
        if len(self.problem.sizes) == 1 or bound == self.floor:
            return bound, "problem"
        return bound, "sizes"
