"""The search for a plan: many starts, few of which stay; then the order of the best."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event, Lock

from ...core.errors import NoAnswerError
from ...core.placement import explicit
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
from .order import Ordering
from .starts import FAMILIES, policies, starts
from .table import table_of
from .warming import warm_up

OnProgress = Callable[[Progress], None]

CLIMBS = ((24, 0.08), (12, 0.08), (6, 0.1))
"""Rounds of changes of splits and policies: how many starts take part, and the share of the time."""

ORDERS = ((4, 0.15, 2.5), (2, 0.15, 1.0), (1, 0.2, 1.0))
"""Rounds of annealing of the order: how many plans take part, the share of the time, and the warmth."""

HAIR = 2e-4
"""A plan this close to the bound, as a share of it, ends the search."""

ANSWERS = 4
"""Plans that are returned at most."""

LEVEL_MOVES = 3000
"""Moves that balance a start."""


def search(
    workload: Workload,
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    on_progress: OnProgress | None = None,
    families: Sequence[tuple[str, int]] | None = None,
    start: Sequence[Plan] = (),
) -> tuple[Plan, ...]:
    """Plans of a workload: layers to stages, stages to ranks, division of the batch and order of ops, all together.

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
        Told of each better plan.
    families
        Families of placements to look at, with stages for each rank; None: all that there are layers for.
    start
        Plans of the same layers to go on from, whether they fit or not.

    Returns
    -------
    tuple of Plan
        Best first, each within every rank's memory; a few that differ in their splits, placements or divisions. Ctrl-C
        ends the search and keeps what was found by then.

    Raises
    ------
    NoAnswerError
        When no plan was found that fits.
    """
    warm_up()
    return _Run(workload, time_limit, workers, seed, on_progress).run(families or FAMILIES, start)


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
            self._search(families, plans)
        except KeyboardInterrupt:
            reason = "interrupted"
            for each in _leading(self.climbers, 1):
                self._take(each)
        if not self.kept:
            raise NoAnswerError(f"{self.workload.name}: no plan found that fits; allow more memory, or more time")
        took = time.monotonic() - self.began
        best = sorted(self.kept.values(), key=lambda each: each[0].makespan)[:ANSWERS]
        return tuple(
            Plan(self.workload, split, timeline, self.bound, name, took, reason) for timeline, split, name in best
        )

    def _search(self, families: Sequence[tuple[str, int]], plans: Sequence[Plan]) -> None:
        self._begin(families, plans)
        climbers = self.climbers
        for count, share in CLIMBS:
            climbers = _leading(climbers, count)
            seconds = share * self.limit * self.workers / max(1, len(climbers))

            def climb(each: Climber, seconds: float = seconds) -> None:
                turns.cool(each, seconds, self.stop, self.goal)
                self._tell(each.best, each.start.name)

            turns.each(climbers, climb, self.workers, self.stop)
        orders: list[Ordering] = []
        for index, each in enumerate(_leading(climbers, ORDERS[0][0])):
            timeline = self._take(each)
            orders.append(
                Ordering(each.start.name, each.split(), timeline.problem, timeline.schedule, self.seed + index)
            )
        for count, share, warmth in ORDERS:
            orders = sorted(orders, key=lambda each: each.best)[:count]
            seconds = share * self.limit * self.workers / max(1, len(orders), self.workers)

            def anneal(each: Ordering, seconds: float = seconds, warmth: float = warmth) -> None:
                turns.cool(each, seconds, self.stop, self.goal, warmth)
                self._keep(f"{each.name}, annealed", each.split, each.schedule())

            turns.each(orders, anneal, self.workers, self.stop)

    def _begin(self, families: Sequence[tuple[str, int]], plans: Sequence[Plan]) -> None:
        self.climbers = []
        for division in self.workload.divisions:
            stages = StageTable(self.workload, division)
            bound = division_bound(self.workload, division)
            if bound is None:
                continue
            table, fusing = table_of(stages), any(_fusing_helps(self.workload.prices(size)) for size in stages.sizes)
            for start in starts(self.workload, stages, families, bound / len(division)):
                seed = self.seed + len(self.climbers)
                self.climbers.append(Climber(self.workload, table, start, fusing, seed))

        def begin(each: Climber) -> None:
            each.level(LEVEL_MOVES)
            row = explicit(self.workload.ranks, each.start.point.row.tolist())
            each.choose(policies(row, len(each.start.division)))
            self._tell(each.best, each.start.name)

        turns.each(self.climbers, begin, self.workers, self.stop)

    def _take(self, climber: Climber) -> Timeline:
        return self._keep(climber.start.name, climber.split(), climber.schedule())

    def _tell(self, value: int, name: str) -> None:
        with self.lock:
            if value >= self.told:
                return
            self.told = value
            if self.on_progress is not None:
                took = time.monotonic() - self.began
                self.on_progress(Progress(name, value, self.bound, value / self.bound - 1, took))

    def _keep(self, name: str, split: Split, schedule: Schedule) -> Timeline:
        problem = self.workload.problem(split, schedule.placement, schedule.sizes)
        timeline = simulate(problem, schedule)
        assert not check(problem, schedule), "a plan keeps to the data flow and the memory"
        key = (split, schedule.placement.stages, schedule.sizes)
        with self.lock:
            if key not in self.kept or timeline.makespan < self.kept[key][0].makespan:
                self.kept[key] = (timeline, split, name)
        self._tell(timeline.makespan, name)
        return timeline


def _leading(climbers: Sequence[Climber], count: int) -> list[Climber]:
    """The best few, no two at the same split, placement and division."""
    found: dict[object, Climber] = {}
    for each in sorted(climbers, key=lambda each: each.best):
        if each.best < FAR:
            found.setdefault(each.key, each)
    return list(found.values())[:count]


def _fusing_helps(prices: Prices) -> bool:
    halves = prices.backward_input + prices.backward_weight
    return bool((prices.backward < halves).any() or (prices.retained > prices.activation).any())
