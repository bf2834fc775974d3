"""The search for a plan: many starts, few of which stay; then the order of the best, and their neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from threading import Event

from ...core.errors import NoAnswerError
from ...evaluate.check import check
from ...greedy.kernel import FAR
from ...portfolio.request import require_effort
from ...solving import solve
from ..bounds.bound import division_bound
from ..plan import Plan
from ..splits.need import why_not
from ..splits.stage_table import StageTable
from ..workload import Prices, Workload
from . import turns
from .climber import Climber
from .floated import floated
from .kept import Found, Kept, OnProgress
from .neighbours import neighbours
from .order import Ordering
from .starts import FAMILIES, WARM, boundaries, start_at, starts
from .table import table_of
from .warming import warm_up

BEGIN = 0.2
"""Share of the time in which starts are made; one at least."""

FIRST = 0.25
"""Share of the time after which a start is tried with one policy only."""

REPAIR = 0.5
"""Share of the time until which splits are sought that fit, where none does."""

CLIMBS = ((24, 3, 0.28), (10, 2, 0.38), (5, 1, 0.5))
"""Rounds of changes of splits and policies: how many searches take part, how many of them at most with one placement
and division, and the share of the time that is over when they end."""

ORDERS = ((4, 0.6, 2.5), (5, 0.73, 1.0), (2, 0.85, 1.0), (1, 0.98, 1.0))
"""Rounds of annealing of the order: how many plans take part, the share of the time that is over when they end, and the
warmth. In all but the first and the last, neighbours of the best take part."""

VARIED, VARIANTS, NEAR = 3, 2, 0.015
"""In all but the first of them, placements beside those of the best take part: beside how many, and how many of each;
and how much longer than the best their plans may take, as a share."""

NEIGHBOURS = 2
"""Neighbours of each of the best plans that take part."""

SOLVED, SMALL = 3, 600
"""How many of the best plans are solved as problems before the last round, where they have no more ops than this: about
as many as CP-SAT can deal with."""

WARMER = (1.0, 8.0, 2.5, 20.0)
"""Temperatures at which threads anneal one plan side by side, as in `anneal.team`."""

LEVEL_MOVES = 2000
"""Moves that balance a start."""

FLOATED, FLOATING = 3, 0.1
"""Plans that are made without a search, whose order is annealed where they are among the best, and the share of the
time in which they are made."""

FIRST_POLICIES = 40
"""Policies that every start is tried with; those that stay are tried with all."""


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

    Splits that load the ranks evenly, under several families of placements and for each division of the batch, are the
    starts. They are annealed: a move takes a layer from one stage to another, lets two unequal ranks change places, or
    changes the policy of a greedy list scheduler, which judges them all. Few stay on, beside the best plans that are
    made without a search, of `floated`. Of those, the order itself is
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
        Families of placements to look at, with stages for each rank; None: all that there are layers for, and
        placements beside them, in which a stage more or less is on some ranks, or stages are on others.
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
    KeyboardInterrupt
        On Ctrl-C before there was any.
    """
    require_effort(time_limit, workers)
    warm_up()
    return _Run(Kept(workload, time_limit, on_progress), workers, seed, families).run(start)


class _Run:
    def __init__(self, kept: Kept, workers: int, seed: int, families: Sequence[tuple[str, int]] | None) -> None:
        self.kept, self.workload, self.workers, self.seed = kept, kept.workload, workers, seed
        self.families, self.varied = families or FAMILIES, 0 if families else VARIED
        self.stop = Event()
        self.climbers: list[Climber] = []

    def run(self, plans: Sequence[Plan]) -> tuple[Plan, ...]:
        reason = ""
        try:
            self._begin(plans)
            self._climb()
            self._order()
        except KeyboardInterrupt:
            reason = "interrupted"
            for each in _leading(self.climbers, 1, 1):
                self._take(each)
        answers = self.kept.answers(reason)
        if not answers:
            if reason:
                raise KeyboardInterrupt
            why = why_not(self.workload) or "no plan found that fits; allow more memory, or more time"
            raise NoAnswerError(f"{self.workload.name}: {why}")
        return answers

    def _begin(self, plans: Sequence[Plan]) -> None:
        """Make starts: those of plans and the first of each division, then the second of each, and so on; as many as
        there is time for."""
        kept = self.kept
        for plan in plans:
            problem = self.workload.problem(plan.split, plan.placement, plan.division)
            if not check(problem, plan.timeline.schedule):
                kept.keep(plan.method, plan.split, plan.timeline.schedule)
        if ("v", 2) in self.families:
            at_once = sorted(kept.until(FLOATING, floated(self.workload)), key=lambda plan: plan.makespan)[:FLOATED]
            for plan in at_once:  # for the rounds of annealing of the order, where they are among the best
                kept.keep(plan.method, plan.split, plan.timeline.schedule)
        rows = [
            self._row(division, [plan for plan in plans if plan.division == division])
            for division in dict.fromkeys([*(plan.division for plan in plans), *self.workload.divisions])
        ]

        def begin(each: Climber) -> None:
            if each.start.heat:
                each.level(LEVEL_MOVES, each.start.heat)
            each.choose(kept.until(FIRST, each.policies()[:FIRST_POLICIES]))
            kept.tell(each.best, each.start.name)

        for made in zip_longest(*rows):
            fresh = [each for each in made if each is not None and each.bound < kept.best]
            if not fresh or (kept.best < FAR and kept.left(BEGIN) <= 0):
                break
            self.climbers += fresh
            turns.each(fresh, begin, self.workers, self.stop)

        def repair(each: Climber) -> None:
            each.level(10 * LEVEL_MOVES, WARM)
            begin(each)

        if kept.best == FAR and why_not(self.workload) is not None:
            return
        while kept.best == FAR and self.climbers and kept.left(REPAIR) > 0:
            turns.each(self.climbers, repair, self.workers, self.stop)

    def _row(self, division: tuple[int, ...], plans: Sequence[Plan]) -> Iterator[Climber]:
        """Searches for one division of the batch, as they are wanted."""
        bound = division_bound(self.workload, division)
        if bound is None:
            return
        stages = StageTable(self.workload, division)
        table, fusing = table_of(stages), any(_fusing_helps(self.workload.prices(size)) for size in stages.sizes)
        found = (start_at(plan.placement.name, plan.placement, division, boundaries(plan.split), 0.0) for plan in plans)
        for start in chain(found, starts(self.workload, stages, self.families, bound / len(division))):
            yield Climber(self.workload, table, start, fusing, bound, self.seed + len(self.climbers))

    def _climb(self) -> None:
        """Anneal splits and policies; fewer stay on each time."""
        kept, climbers = self.kept, self.climbers
        for number, (count, alike, end) in enumerate(CLIMBS):
            climbers = [each for each in _leading(climbers, count, alike) if each.bound < kept.best]
            if number > 0:
                fresh = self._variants(climbers[: self.varied], kept.halfway(end))
                self.climbers += fresh
                climbers += fresh
            seconds = kept.left(end) * self.workers / max(self.workers, len(climbers))

            def climb(each: Climber, seconds: float = seconds, number: int = number, end: float = end) -> None:
                if number == 0:
                    each.choose(kept.until(end, each.policies()[FIRST_POLICIES:]))
                turns.cool(each, seconds, self.stop, kept.goal)
                kept.tell(each.best, each.start.name)

            turns.each(climbers, climb, self.workers, self.stop)

    def _variants(self, climbers: Sequence[Climber], end: float) -> list[Climber]:
        """The best searches that start beside the placements of some."""
        best: list[list[Climber]] = [[] for _ in climbers]

        def vary(index: int) -> None:
            found = list(self.kept.until(end, climbers[index].variants()))
            best[index] = _leading(found, VARIANTS, 1)
            for each in best[index]:
                self.kept.tell(each.best, each.start.name)

        turns.each(range(len(climbers)), vary, self.workers, self.stop)
        return [each for row in best for each in row if each.best <= self.kept.best * (1 + NEAR)]

    def _order(self) -> None:
        """Anneal the order of the best plans, and of their neighbours."""
        for climber in _leading(self.climbers, ORDERS[0][0], 2):
            self._take(climber)
        for number, (count, end, warmth) in enumerate(ORDERS):
            best = self.kept.leading(count)
            if 0 < number < len(ORDERS) - 1:
                best += self._neighbours(best[:2], self.kept.halfway(end))
            # With more threads than plans, several anneal one plan, warmer and colder.
            orders = [
                (Ordering(*found, self.seed + 100 * number + copy), warmth * WARMER[copy % len(WARMER)])
                for copy in range(max(1, self.workers // max(1, len(best))))
                for found in best
            ]
            seconds = self.kept.left(end) * self.workers / max(self.workers, len(orders))

            def anneal(pair: tuple[Ordering, float], seconds: float = seconds) -> None:
                each, warm = pair
                turns.cool(each, seconds, self.stop, self.kept.goal, warm)
                name = each.name if "annealed" in each.name else f"{each.name}, annealed"
                self.kept.keep(name, each.split, each.schedule())

            turns.each(orders, anneal, self.workers, self.stop)
            if number == len(ORDERS) - 2:
                self._solve()

    def _solve(self) -> None:
        """Solve the problems of the best plans, each in half of the time that is left, where they are small."""
        for name, split, timeline in self.kept.leading(SOLVED):
            if len(timeline.start) > SMALL or self.kept.best <= self.kept.goal:
                return
            sizes, limit = timeline.schedule.sizes, max(0.1, self.kept.left(1.0) / 2)
            result = solve(timeline.problem, time_limit=limit, workers=self.workers, seed=self.seed, sizes=sizes)
            if result.timeline is not None and result.timeline.makespan < timeline.makespan:
                self.kept.keep(f"{name}, {result.found_by}", split, result.timeline.schedule)
            if result.interrupted:
                raise KeyboardInterrupt

    def _neighbours(self, plans: Sequence[Found], end: float) -> list[Found]:
        """The best new neighbours of some plans; large schedules take long to simulate, so there is an end to it."""
        best = []
        for name, split, timeline in plans:
            beside = (Found(name, *each) for each in neighbours(self.workload, split, timeline))
            new = [each for each in self.kept.until(end, beside) if each not in self.kept]
            best += sorted(new, key=lambda each: each.timeline.makespan)[:NEIGHBOURS]
        return best

    def _take(self, climber: Climber) -> None:
        self.kept.keep(climber.start.name, climber.split(), climber.schedule())


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
