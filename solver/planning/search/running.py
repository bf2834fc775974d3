"""The search for a plan: many starts, few of which stay; then the order of the best, and their neighbours."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from threading import Event, Lock
from typing import TypeVar

from ...core.errors import InputError, NoAnswerError
from ...core.schedule import Schedule
from ...evaluate.check import check
from ...evaluate.simulate import simulate
from ...evaluate.timeline import Timeline
from ...heuristics.greedy_kernel import FAR
from ...portfolio.request import Progress
from ..bound import division_bound, lower_bound
from ..plan import Plan
from ..stage_table import StageTable
from ..workload import Prices, Split, Workload
from . import turns
from .climber import Climber
from .neighbours import neighbours
from .order import Ordering
from .starts import FAMILIES, boundaries, start_at, starts
from .table import table_of
from .warming import warm_up

T = TypeVar("T")

OnProgress = Callable[[Progress], None]

BEGIN = 0.15
"""Share of the time in which starts are made; one at least."""

FIRST = 0.3
"""Share of the time after which a start is tried with one policy only."""

REPAIR = 0.5
"""Share of the time until which splits are sought that fit, where none does."""

CLIMBS = ((24, 4, 0.25), (10, 3, 0.35), (5, 2, 0.48))
"""Rounds of changes of splits and policies: how many searches take part, how many of them at most with one placement
and division, and the share of the time that is over when they end."""

ORDERS = ((4, 0.6, 2.5), (5, 0.73, 1.0), (2, 0.85, 1.0), (1, 0.98, 1.0))
"""Rounds of annealing of the order: how many plans take part, the share of the time that is over when they end, and the
warmth. In all but the first and the last, neighbours of the best take part."""

NEIGHBOURS = 2
"""Neighbours of each of the best plans that take part."""

WARMER = (1.0, 8.0, 2.5, 20.0)
"""Temperatures at which threads anneal one plan side by side, as in `anneal.team`."""

HAIR = 2e-4
"""A plan this close to the bound, as a share of it, ends the search."""

ANSWERS, ALIKE, WORSE = 4, 2, 0.03
"""Plans that are returned at most; how many of them with one placement and division; and how much longer than the best
they may take, as a share."""

LEVEL_MOVES = 2000
"""Moves that balance a start that is not exactly balanced."""

FIRST_POLICIES = 40
"""Policies that every start is tried with; those that stay are tried with all."""


def search(
    workload: Workload,
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    on_progress: OnProgress | None = None,
    families: Sequence[tuple[str, int]] = FAMILIES,
    start: Sequence[Plan] = (),
) -> tuple[Plan, ...]:
    """Plans of a workload: layers to stages, stages to ranks, division of the batch and order of ops, all together.

    Splits that load the ranks evenly, under several families of placements and for each division of the batch, are the
    starts. They are annealed: a move takes a layer from one stage to another, lets two unequal ranks change places, or
    changes the policy of a greedy list scheduler, which judges them all. Few stay on. Of those, the order itself is
    annealed, and that of splits next to the best.

    Parameters
    ----------
    workload
        What is planned.
    time_limit
        Seconds.
    workers
        Threads.
    seed
        Of all moves.
    on_progress
        Told of each better plan, from any of the threads.
    families
        Families of placements to look at, with stages for each rank.
    start
        Plans of the same layers on as many ranks to go on from, whether they fit or not. Those that fit are never lost.

    Returns
    -------
    tuple of Plan
        Best first, each within every rank's memory; a few that differ in their splits, placements or divisions. Ctrl-C
        ends the search and keeps what was found by then.

    Raises
    ------
    InputError
        When an option is out of range.
    NoAnswerError
        When no plan was found that fits.
    """
    if not (time_limit > 0 and math.isfinite(time_limit)):
        raise InputError(f"time limit: {time_limit} is not a positive number of seconds")
    if workers < 1:
        raise InputError(f"workers: {workers} is below 1")
    warm_up()
    return _Run(workload, time_limit, workers, seed, on_progress).run(families, start)


class _Run:
    def __init__(
        self, workload: Workload, time_limit: float, workers: int, seed: int, on_progress: OnProgress | None
    ) -> None:
        self.workload, self.limit, self.workers, self.seed = workload, time_limit, workers, seed
        self.on_progress = on_progress
        self.began, self.stop, self.lock = time.monotonic(), Event(), Lock()
        self.bound = lower_bound(workload)
        self.goal = int(self.bound * (1 + HAIR))
        self.told = FAR
        self.climbers: list[Climber] = []
        self.kept: dict[object, tuple[Timeline, Split, str]] = {}

    def run(self, families: Sequence[tuple[str, int]], plans: Sequence[Plan]) -> tuple[Plan, ...]:
        reason = ""
        try:
            self._begin(families, plans)
            self._climb()
            self._order()
        except KeyboardInterrupt:
            reason = "interrupted"
            for each in _leading(self.climbers, 1, 1):
                self._take(each)
        if not self.kept:
            raise NoAnswerError(f"{self.workload.name}: no plan found that fits; allow more memory, or more time")
        took = time.monotonic() - self.began
        best = sorted(self.kept.values(), key=lambda each: each[0].makespan)
        alike: Counter[object] = Counter()
        answers = []
        for timeline, split, name in best:
            kind = (timeline.schedule.placement.stages, timeline.schedule.sizes)
            alike[kind] += 1
            if alike[kind] <= ALIKE and timeline.makespan <= best[0][0].makespan * (1 + WORSE):
                answers.append(Plan(self.workload, split, timeline, self.bound, name, took, reason))
        return tuple(answers[:ANSWERS])

    def _begin(self, families: Sequence[tuple[str, int]], plans: Sequence[Plan]) -> None:
        """Make starts: those of plans and the first of each division, then the second of each, and so on; as many as
        there is time for."""
        for plan in plans:
            problem = self.workload.problem(plan.split, plan.placement, plan.division)
            if not check(problem, plan.timeline.schedule):
                self._keep(plan.method, plan.split, plan.timeline.schedule)
        rows = [
            self._rows(division, families, [plan for plan in plans if plan.division == division])
            for division in dict.fromkeys([*(plan.division for plan in plans), *self.workload.divisions])
        ]

        def begin(each: Climber) -> None:
            if not each.start.level:
                each.level(LEVEL_MOVES)
            each.choose(self._while(FIRST, each.policies()[:FIRST_POLICIES]))
            self._tell(each.best, each.start.name)

        for made in zip_longest(*rows):
            fresh = [each for each in made if each is not None and each.bound < self.told]
            if not fresh or (self.told < FAR and self._left(BEGIN) <= 0):
                break
            self.climbers += fresh
            turns.each(fresh, begin, self.workers, self.stop)

        def repair(each: Climber) -> None:
            each.level(10 * LEVEL_MOVES)
            begin(each)

        while self.told == FAR and self.climbers and self._left(REPAIR) > 0:
            turns.each(self.climbers, repair, self.workers, self.stop)

    def _rows(
        self, division: tuple[int, ...], families: Sequence[tuple[str, int]], plans: Sequence[Plan]
    ) -> Iterator[Climber]:
        """Searches for one division of the batch, as they are wanted."""
        bound = division_bound(self.workload, division)
        if bound is None:
            return
        stages = StageTable(self.workload, division)
        table, fusing = table_of(stages), any(_fusing_helps(self.workload.prices(size)) for size in stages.sizes)
        found = (
            start_at(plan.placement.name, plan.placement, division, boundaries(plan.split), True) for plan in plans
        )
        for start in chain(found, starts(self.workload, stages, families, bound / len(division))):
            yield Climber(self.workload, table, start, fusing, bound, self.seed + len(self.climbers))

    def _climb(self) -> None:
        """Anneal splits and policies; fewer stay on each time."""
        climbers = self.climbers
        for number, (count, alike, end) in enumerate(CLIMBS):
            climbers = [each for each in _leading(climbers, count, alike) if each.bound < self.told]
            seconds = self._left(end) * self.workers / max(self.workers, len(climbers))

            def climb(each: Climber, seconds: float = seconds, number: int = number, end: float = end) -> None:
                if number == 0:
                    each.choose(self._while(end, each.policies()[FIRST_POLICIES:]))
                turns.cool(each, seconds, self.stop, self.goal)
                self._tell(each.best, each.start.name)

            turns.each(climbers, climb, self.workers, self.stop)

    def _order(self) -> None:
        """Anneal the order of the best plans, and of their neighbours."""
        for each in _leading(self.climbers, ORDERS[0][0], ORDERS[0][0]):
            self._take(each)
        for number, (count, end, warmth) in enumerate(ORDERS):
            best = sorted(self.kept.values(), key=lambda each: each[0].makespan)[:count]
            if 0 < number < len(ORDERS) - 1:
                # In half of the round's time: large schedules take long to simulate.
                half = (1 - self._left(1.0) / self.limit + end) / 2
                for timeline, split, name in best[:2]:
                    found = self._while(half, neighbours(self.workload, split, timeline))
                    best += [
                        (other, moved, name)
                        for moved, other in sorted(found, key=lambda each: each[1].makespan)[:NEIGHBOURS]
                        if self._key(moved, other.schedule) not in self.kept
                    ]
            copies = max(1, self.workers // max(1, len(best)))
            orders = [
                (
                    Ordering(name, split, timeline.problem, timeline.schedule, self.seed + number * 100 + k),
                    WARMER[k % 4],
                )
                for k in range(copies)
                for timeline, split, name in best
            ]
            seconds = self._left(end) * self.workers / max(self.workers, len(orders))

            def anneal(pair: tuple[Ordering, float], seconds: float = seconds, warmth: float = warmth) -> None:
                each, warmer = pair
                turns.cool(each, seconds, self.stop, self.goal, warmth * warmer)
                name = each.name if "annealed" in each.name else f"{each.name}, annealed"
                self._keep(name, each.split, each.schedule())

            turns.each(orders, anneal, self.workers, self.stop)

    def _left(self, share: float) -> float:
        """Seconds until a share of the time is over."""
        return max(0.0, self.began + share * self.limit - time.monotonic())

    def _while(self, share: float, items: Iterable[T]) -> Iterator[T]:
        """As many of some items as there is time for until a share of it is over, one at least."""
        for index, item in enumerate(items):
            if index and self._left(share) <= 0:
                return
            yield item

    def _tell(self, value: int, name: str) -> None:
        with self.lock:
            if value >= self.told:
                return
            self.told = value
            if self.on_progress is not None:
                took = time.monotonic() - self.began
                gap = value / self.bound - 1 if self.bound else None
                self.on_progress(Progress(name, value, self.bound, gap, took))

    def _take(self, climber: Climber) -> None:
        self._keep(climber.start.name, climber.split(), climber.schedule())

    def _keep(self, name: str, split: Split, schedule: Schedule) -> None:
        problem = self.workload.problem(split, schedule.placement, schedule.sizes)
        timeline = simulate(problem, schedule)
        assert not check(problem, schedule), "a plan keeps to the data flow and the memory"
        key = self._key(split, schedule)
        with self.lock:
            if key not in self.kept or timeline.makespan < self.kept[key][0].makespan:
                self.kept[key] = (timeline, split, name)
        self._tell(timeline.makespan, name)

    @staticmethod
    def _key(split: Split, schedule: Schedule) -> object:
        return split, schedule.placement.stages, schedule.sizes


def _leading(climbers: Sequence[Climber], count: int, alike: int) -> list[Climber]:
    """The best few, no two with the same split, placement and division, nor too many that differ in the split only."""
    found: dict[object, Climber] = {}
    kinds: Counter[object] = Counter()
    for each in sorted(climbers, key=lambda each: each.best):
        _, *kind = each.key
        if each.best < FAR and each.key not in found and kinds[tuple(kind)] < alike:
            kinds[tuple(kind)] += 1
            found[each.key] = each
    return list(found.values())[:count]


def _fusing_helps(prices: Prices) -> bool:
    halves = prices.backward_input + prices.backward_weight
    return bool((prices.backward < halves).any() or (prices.retained > prices.activation).any())
