"""The whole answer to a workload: plans, beside the best of today's schedules at full and at equal memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..core.errors import NoAnswerError
from ..portfolio.request import Progress
from .bounds.bound import SHARE, lower_bound
from .judging.jury import JUDGED, RIVALS, Jury
from .judging.robust import Gain, Robustness
from .plan import Plan, saved
from .rivals.today import Today, capped, rivals, todays
from .search import search
from .search.warming import warm_up
from .workload import Workload

OnProgress = Callable[[Progress], None]

FULL = 0.75
"""Share of the searches' time for that at full memory; the rest is for that at equal memory."""

JUDGING = 0.25
"""Share of the time that is kept, at most, for what the plans are worth where costs are wrong."""

LEAST_S = 0.1
"""Seconds that a search gets, at least."""

NEAR = 0.02
"""Where the best of today's schedules is this close to the bound, there is nothing to gain."""

INTERRUPTED = "interrupted"
"""`Plan.reason` of a search that Ctrl-C ended."""


@dataclass(frozen=True)
class Answer:
    """What was found for a workload.

    Parameters
    ----------
    workload
        What was planned.
    plans
        The plan proposed, then others; empty where there is none that fits.
    todays
        Today's schedules, best first; those that do not fit come last.
    equal
        The best plan in which no rank holds more than the largest use of the best of today's; None without one.
    robustness
        What the plan gains where costs are wrong, over the one of today's that does best then; None without one, or
        where Ctrl-C came before it was told.
    time_s
        Seconds that it took.
    interrupted
        Whether Ctrl-C ended the search.
    """

    workload: Workload
    plans: tuple[Plan, ...]
    todays: tuple[Today, ...]
    equal: Plan | None
    robustness: Robustness | None
    time_s: float
    interrupted: bool = False

    @property
    def plan(self) -> Plan:
        """The plan proposed."""
        return self.plans[0]

    @property
    def base(self) -> Today | None:
        """The best of today's schedules; None where none fits."""
        first = next(iter(self.todays), None)
        return first if first is not None and first.fits else None

    @property
    def judged(self) -> Gain | None:
        """The gain that the recommendation rests on; None where there is none."""
        return None if self.robustness is None else self.robustness.outcome(JUDGED)

    @property
    def instead(self) -> Today | None:
        """Of today's schedules the one that does best where costs are wrong: to be run where the gain does not last."""
        return self.base if self.judged is None else rivals(self.todays, RIVALS)[self.judged.rival]

    @property
    def gain(self) -> float | None:
        """Over the best of today's schedules, within the same limits."""
        return None if self.base is None else saved(self.plan.makespan, self.base.makespan)

    @property
    def gain_equal_memory(self) -> float | None:
        """The same, where no rank may hold more than the largest use of the best of today's."""
        if self.base is None or self.equal is None:
            return None
        return saved(self.equal.makespan, self.base.makespan)

    @property
    def nothing_to_gain(self) -> bool:
        """Whether the best of today's schedules is within `NEAR` of the bound."""
        return self.base is not None and self.base.makespan <= (1 + NEAR) * self.plan.bound

    @property
    def recommended(self) -> bool:
        """Whether the plan is to be preferred to the best of today's: it gains, also where costs are wrong."""
        if self.base is None:
            return True
        return self.robustness is not None and self.robustness.survives(JUDGED)


def answer(
    workload: Workload,
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Answer:
    """Plan a workload and say what that gains.

    Parameters
    ----------
    workload
        What is planned.
    time_limit
        Seconds for everything, but for compiling the search once after installation.
    workers
        Threads.
    seed
        Of everything.
    on_progress
        Told of each better plan.

    Raises
    ------
    NoAnswerError
        When no plan was found that fits.
    KeyboardInterrupt
        On Ctrl-C before there was any.
    """
    warm_up()
    return _Run(workload, time_limit, workers, seed, on_progress).run()


class _Run:
    """The steps of an answer, and the time that is left for them."""

    def __init__(
        self, workload: Workload, time_limit: float, workers: int, seed: int, on_progress: OnProgress | None
    ) -> None:
        self.workload, self.time_limit, self.workers, self.seed = workload, time_limit, workers, seed
        self.on_progress = on_progress
        self.began = time.monotonic()
        self.interrupted = False

    def run(self) -> Answer:
        known = todays(self.workload)
        base = known[0].plan(self.workload) if known and known[0].fits else None
        own = () if base is None else (base,)
        bound = lower_bound(self.workload, seconds=SHARE * self.time_limit)
        jury = None if base is None else Jury.within(base, JUDGING * self.time_limit)
        kept = 0.0 if jury is None else jury.takes_s
        left = max(0.0, self.time_limit - kept - (time.monotonic() - self.began))
        plans = (*self._search(self.workload, FULL * left, own), *own)
        if not plans:
            raise NoAnswerError(
                f"{self.workload.name}: no plan was found that fits in {self.time_limit:g} s; allow more time"
            )
        equal = None
        if base is not None:
            equal = self._at_equal_memory(base, plans, (1 - FULL) * left)
            plans = (*plans, equal)
        plans = _sorted([replace(plan, workload=self.workload, bound=bound) for plan in plans])
        robust = None
        try:
            if jury is not None:
                plans = jury.preferred(plans, self.seed)
                robust = jury.judged(plans[0], rivals(known, RIVALS), self.seed)
        except KeyboardInterrupt:  # the plans are there; what they are worth where costs are wrong remains untold
            self.interrupted = True
        if base is not None and max(plans[0].timeline.peak_memory) <= max(base.timeline.peak_memory):
            equal = plans[0]  # the proposed plan is one at equal memory, where a hair faster ones are less steady, too
        took = time.monotonic() - self.began
        return Answer(self.workload, plans, known, equal, robust, took, self.interrupted)

    def _search(self, workload: Workload, seconds: float, start: tuple[Plan, ...]) -> tuple[Plan, ...]:
        """Plans that fit, best first; none where none was found, or after Ctrl-C."""
        if self.interrupted:
            return ()
        try:
            found = search(
                workload,
                time_limit=max(seconds, LEAST_S),
                workers=self.workers,
                seed=self.seed,
                on_progress=self.on_progress if workload is self.workload else None,
                start=start,
            )
        except NoAnswerError:
            return ()
        self.interrupted = any(plan.reason == INTERRUPTED for plan in found)
        return found

    def _at_equal_memory(self, base: Plan, plans: tuple[Plan, ...], seconds: float) -> Plan:
        """The best plan in which no rank holds more than any does in the base, which is one."""
        most = max(base.timeline.peak_memory)
        best = min(plans, key=lambda plan: plan.makespan)
        if max(best.timeline.peak_memory) > most:
            plans = (*plans, *self._search(capped(self.workload, base), seconds, plans))
        within = (plan for plan in plans if max(plan.timeline.peak_memory) <= most)
        return min(within, key=lambda plan: plan.makespan)


def _sorted(plans: list[Plan]) -> tuple[Plan, ...]:
    """Fastest first, none twice."""
    found: dict[object, Plan] = {}
    for plan in sorted(plans, key=lambda plan: plan.makespan):
        found.setdefault((plan.split, plan.timeline.schedule), plan)
    return tuple(found.values())
