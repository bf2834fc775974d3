"""The plans that a search has found so far."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import NamedTuple, TypeVar

from ...core.schedule import Schedule
from ...evaluate.check import check
from ...evaluate.simulate import simulate
from ...evaluate.timeline import Timeline
from ...greedy.kernel import FAR
from ...portfolio.request import Progress
from ..bounds.bound import SHARE, lower_bound
from ..plan import Plan
from ..workload import Split, Workload

HAIR = 2e-4
"""A plan this close to the bound, as a share of it, ends the search."""

ANSWERS, ALIKE, WORSE = 4, 2, 0.03
"""Plans that are returned at most; how many of them with one placement and division; and how much longer than the best
they may take, as a share."""

OnProgress = Callable[[Progress], None]

T = TypeVar("T")


class Found(NamedTuple):
    """A schedule of a split, and how it was found."""

    name: str
    split: Split
    timeline: Timeline

    @property
    def key(self) -> object:
        """What it is, but for the order."""
        schedule = self.timeline.schedule
        return self.split, schedule.placement.stages, schedule.sizes


class Kept:
    """The best schedule of each split, placement and division; the clock; and who is told of better ones.

    Parameters
    ----------
    workload
        What is planned.
    time_limit
        Seconds.
    on_progress
        Told of each better plan.
    """

    def __init__(self, workload: Workload, time_limit: float, on_progress: OnProgress | None) -> None:
        self.workload, self._limit, self._on_progress = workload, time_limit, on_progress
        self._began, self._lock = time.monotonic(), Lock()
        self.bound = lower_bound(workload, seconds=SHARE * time_limit)
        self.goal = int(self.bound * (1 + HAIR))
        self.best = FAR
        """Ticks of the best plan, of those whose schedules were not asked for, too."""
        self._found: dict[object, Found] = {}

    def left(self, share: float) -> float:
        """Seconds until a share of the time is over."""
        return max(0.0, self._began + share * self._limit - time.monotonic())

    def halfway(self, share: float) -> float:
        """The share of the time that is over in the middle between now and when a share is."""
        return (1 - self.left(1.0) / self._limit + share) / 2

    def until(self, share: float, items: Iterable[T]) -> Iterator[T]:
        """As many of some items as there is time for until a share of it is over, one at least."""
        for index, item in enumerate(items):
            if index and self.left(share) <= 0:
                return
            yield item

    def tell(self, value: int, name: str) -> None:
        """A plan of this value was found."""
        with self._lock:
            if value >= self.best:
                return
            self.best = value
            if self._on_progress is not None:
                gap = value / self.bound - 1 if self.bound else None
                self._on_progress(Progress(name, value, self.bound, gap, time.monotonic() - self._began))

    def keep(self, name: str, split: Split, schedule: Schedule) -> None:
        """Take over a valid schedule."""
        problem = self.workload.problem(split, schedule.placement, schedule.sizes)
        assert not check(problem, schedule), "a plan keeps to the data flow and the memory"
        found = Found(name, split, simulate(problem, schedule))
        with self._lock:
            known = self._found.get(found.key)
            if known is None or found.timeline.makespan < known.timeline.makespan:
                self._found[found.key] = found
        self.tell(found.timeline.makespan, name)

    def leading(self, count: int) -> list[Found]:
        """The best few."""
        return sorted(self._found.values(), key=lambda each: each.timeline.makespan)[:count]

    def __contains__(self, found: Found) -> bool:
        return found.key in self._found

    def answers(self, reason: str) -> tuple[Plan, ...]:
        """The best, and some that are nearly as good and differ."""
        took = time.monotonic() - self._began
        alike: Counter[object] = Counter()
        plans: list[Plan] = []
        for name, split, timeline in self.leading(len(self._found)):
            kind = (timeline.schedule.placement.stages, timeline.schedule.sizes)
            alike[kind] += 1
            if alike[kind] <= ALIKE and (not plans or timeline.makespan <= plans[0].makespan * (1 + WORSE)):
                plans.append(Plan(self.workload, split, timeline, self.bound, name, took, reason))
        return tuple(plans[:ANSWERS])
