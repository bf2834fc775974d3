"""Search for how the batch is divided: number and sizes of the micro-batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import cycle, islice
from random import Random

from ..anneal import anneal
from ..anneal.annealing import Budget
from ..bounds import infeasible
from ..core.division import Sizes
from ..core.errors import InputError
from ..core.granularity import ALL, Granularity
from ..core.instance import Instance
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Schedule
from ..evaluate.limits import over_limit
from ..evaluate.simulate import simulate
from ..greedy.policy import fusing_helps
from .resize import resize
from .screen import Screen
from .trial import Trial
from .walk import Found, walk

SCREEN_SHARE, WALK_SHARE = 0.15, 0.4
"""Shares of the time for looking at many divisions, and for changing the best of them together with policies."""

CYCLE_RUNS, MOST_CYCLES = 60_000, 8
"""Runs of the greedy that walks get before what they found is annealed, and how often this is done at most: each time
from other random choices, as it is much a matter of luck where a walk leads."""

SHORT_SHARE, SHORT_RUNS = 0.6, 2_000
"""Share of the walks' time for short ones, and runs of the greedy in each; fewer where that would leave less than
`LONG` walks."""

STARTS, STARTS_EVEN = 12, 4
"""Divisions that short walks start from, best ones first; fewer where only near-uniform ones are allowed, as these
differ more."""

LONG = 8
"""The best short walks, which go on in what is left of the walks' time."""

ROUNDS, LAST = ((8, 0.02), (3, 0.03)), ((2, 0.04), (1, 0.06), (1, 0.06))
"""Rounds of annealing and resizing in turns: how many of the best divisions, and the share of the whole time for each.
The greedy's value says little of what annealing makes of a schedule, so the first round has many. The last rounds are
for the best of all cycles."""

RESIZE_SHARE = 0.1
"""Share of a round's time in which sizes change and not the order."""

RUN_MOVES = 25
"""Moves of the annealer that a run of the greedy counts as, where work is counted and not time."""

KEPT = 3
"""Schedules returned at most, of as many divisions."""


def search_sizes(
    problem: Problem,
    objective: Objective = "makespan",
    *,
    start: Schedule | None = None,
    iterations: int | None = None,
    deadline: float | None = None,
    seed: int = 0,
    workers: int = 1,
    granularity: Granularity = ALL,
    target: int | None = None,
    on_schedule: Callable[[Schedule, int], None] | None = None,
) -> tuple[Schedule, ...]:
    """Good schedules of the most promising divisions of the batch, best first.

    First many divisions are tried with the greedy under a few policies: near-uniform ones, and ramps, which grow to a
    size, keep it and shrink. The best are changed step by step together with the policy, by annealing. What comes of
    it is annealed op by op, in turns with resizing under a fixed order.

    Parameters
    ----------
    problem, objective
        The problem; "makespan" or "span". What `granularity` does not leave free is not in the problem's prices: see
        `Granularity.restricted`.
    start
        A valid schedule to be no worse than.
    iterations
        Work of each worker, in moves of the annealer. The answer then depends on the arguments alone (unless the
        deadline comes first).
    deadline
        Value of `time.monotonic()` at which to stop. At least one of `iterations` and `deadline` is needed.
    seed, workers
        Of the random choices; processes of the annealer.
    granularity
        Without `sizes`, near-uniform divisions only (all that there are, where none is). Without `fused`, no B.
    target
        Stop at a value of at most this; a lower bound.
    on_schedule
        Told of each better schedule and its value.

    Returns
    -------
    tuple of Schedule
        At most `KEPT`, each with another division; empty where none fits in memory and there is no start.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 8, "microbatch_sizes": [1, 2, 3]},
    ...     "costs": dict.fromkeys(("forward", "backward_input", "backward_weight"), {"fixed": 2, "per_sample": 4})})
    >>> search_sizes(problem, iterations=20_000)[0].sizes
    (2, 3, 3)
    """
    assert iterations is not None or deadline is not None, "a search needs an end"
    search = _Search(problem, objective, granularity, seed, workers, -1 if target is None else target, on_schedule)
    if start is not None:
        search.take(start)
    fitting = _fitting(problem)
    if fitting is not None and not search.met:
        search.run(fitting, Budget(iterations, deadline))
    return search.best()


def _fitting(problem: Problem) -> Problem | None:
    """The problem with those sizes only that fit in memory; None where they do not add up to the batch."""
    both = problem.placement.directions
    sizes = tuple(size for size in problem.sizes if size <= problem.samples and not infeasible(problem, (size,) * both))
    try:
        return replace(problem, sizes=sizes) if sizes else None
    except InputError:
        return None


class _Search:
    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        granularity: Granularity,
        seed: int,
        workers: int,
        target: int,
        on_schedule: Callable[[Schedule, int], None] | None,
    ) -> None:
        self._problem, self._objective, self._granularity = problem, objective, granularity
        self._seed, self._workers, self._target, self._report = seed, workers, target, on_schedule
        self._schedules: dict[Sizes, tuple[int, Schedule]] = {}
        self._least: int | None = None

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self._least is not None and self._least <= self._target

    def best(self, number: int = KEPT, among: Iterable[Sizes] | None = None) -> tuple[Schedule, ...]:
        """The best schedules, of all divisions or some."""
        some = self._schedules.values() if among is None else [self._schedules[sizes] for sizes in among]
        return tuple(schedule for _, schedule in sorted(some, key=lambda each: each[0])[:number])

    def take(self, schedule: Schedule) -> Sizes | None:
        """Keep a schedule if it is the best of its division and within the limits; its division if any is kept."""
        timeline = simulate(self._problem, schedule)
        value, sizes = timeline.value(self._objective), schedule.sizes
        known = sizes in self._schedules
        if over_limit(timeline) or (known and self._schedules[sizes][0] <= value):
            return sizes if known else None
        self._schedules[sizes] = value, timeline.schedule
        if self._least is None or value < self._least:
            self._least = value
            if self._report is not None:
                self._report(timeline.schedule, value)
        return sizes

    def run(self, problem: Problem, budget: Budget) -> None:
        """Screen, then walk, anneal and resize in cycles."""
        trial, began = Trial(problem, self._objective, self._granularity.fused), time.monotonic()
        allowed, part = set(problem.sizes), budget.part(SCREEN_SHARE, 1.0)
        known = tuple(sizes for sizes in self._schedules if allowed.issuperset(sizes))
        screen = Screen(trial, self._granularity, _runs(part), part.deadline)
        screen.run(known)
        found = screen.best()
        self._decode(trial, found[:KEPT])
        cycles, left = self._cycles(trial, time.monotonic() - began, budget), 1 - SCREEN_SHARE
        for number in range(cycles if found else 0):
            part = budget.part(WALK_SHARE / cycles, left)
            left -= WALK_SHARE / cycles
            fresh = self._decode(trial, self._walks(trial, found, part, Random(self._seed + number)))
            left = self._polish(ROUNDS, budget, left, cycles, fresh)
        self._polish(LAST, budget, left, 1, None)

    def _cycles(self, trial: Trial, took: float, budget: Budget) -> int:
        """How many cycles fit, by the time that the greedy's runs took so far."""
        runs = _runs(budget)
        if runs is None:
            assert budget.deadline is not None, "a search has an end"
            runs = int(trial.runs * (budget.deadline - time.monotonic()) / max(took, 1e-9))
        return max(1, min(MOST_CYCLES, int(WALK_SHARE * runs / CYCLE_RUNS)))

    def _decode(self, trial: Trial, found: list[Found]) -> set[Sizes]:
        """Take over what the greedy found; its divisions."""
        divisions = set()
        for each in found:
            trial.divide(each.sizes)
            if trial.value(each.policy) is not None:
                divisions.add(self.take(trial.schedule()))
        return {sizes for sizes in divisions if sizes is not None}

    def _walks(self, trial: Trial, found: list[Found], budget: Budget, random: Random) -> list[Found]:
        """Change the best divisions and their policies; the best that come of it, each of another division."""
        instance = Instance(self._problem, found[0].sizes)
        free = replace(
            self._granularity,
            fused=self._granularity.fused and fusing_helps(instance),
            sizes=self._granularity.sizes and len(trial.problem.sizes) > 1,
        )
        runs, began, end = _runs(budget), time.monotonic(), budget.deadline
        starts = STARTS if free.sizes else STARTS_EVEN
        short = max(LONG, int(SHORT_SHARE * (CYCLE_RUNS if runs is None else runs) / SHORT_RUNS))
        for number, share in ((short, SHORT_SHARE / short), (LONG, (1 - SHORT_SHARE) / LONG)):
            ahead = list(islice(cycle(found[:starts]), number))
            for index, each in enumerate(ahead):
                if self.met:
                    break
                tries = None if runs is None else int(runs * share)
                deadline = None if end is None else min(end, time.monotonic() + share * (end - began))
                for better in walk(trial, each, free, random, tries, deadline):
                    ahead[index] = better
            best: dict[Sizes, Found] = {}
            for each in sorted([*ahead, *found], key=lambda each: each.value):
                best.setdefault(each.sizes, each)
            found, starts = list(best.values()), LONG
        return found[:LONG]

    def _polish(
        self, rounds: tuple[tuple[int, float], ...], budget: Budget, left: float, cycles: int, among: set[Sizes] | None
    ) -> float:
        """Anneal and resize in turns; the share of the budget that is left."""
        for index, (number, share) in enumerate(rounds):
            after = left - number * share / cycles
            for schedule in self.best(number, among):
                if self.met or (budget.deadline is not None and time.monotonic() >= budget.deadline):
                    return left
                part = budget.part(share / cycles, max(left, share / cycles))
                left -= share / cycles
                sizes = self._polish_one(schedule, part.iterations, part.deadline, self._seed + index)
                if among is not None:
                    among.update(sizes)
            left = min(left, after)
        return left

    def _polish_one(self, schedule: Schedule, iterations: int | None, deadline: float | None, seed: int) -> set[Sizes]:
        """Anneal, then resize; the divisions that come of it."""
        now, resizing = time.monotonic(), RESIZE_SHARE if self._granularity.sizes else 0.0
        better = anneal(
            self._problem,
            schedule,
            self._objective,
            iterations=None if iterations is None else int(iterations * (1 - resizing)),
            deadline=None if deadline is None else now + (deadline - now) * (1 - resizing),
            seed=seed,
            workers=self._workers,
            target=self._target,
            granularity=self._granularity,
        )
        divisions = {self.take(better)}
        if self._granularity.sizes:
            moves = None if iterations is None else int(iterations * resizing)
            better = resize(self._problem, better, self._objective, iterations=moves, deadline=deadline, seed=seed)
            divisions.add(self.take(better))
        return {sizes for sizes in divisions if sizes is not None}


def _runs(budget: Budget) -> int | None:
    """Runs of the greedy that a budget of moves is worth."""
    return None if budget.iterations is None else max(1, budget.iterations // RUN_MOVES)
