"""Search for how the batch is divided: number and sizes of the micro-batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from random import Random

from ..anneal import anneal
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
from ..heuristics.policy import fusing_helps
from .resize import resize
from .screen import Screen
from .trial import Trial
from .walk import Found, walk

SCREEN_SHARE, WALK_SHARE = 0.15, 0.4
"""Shares of the time for looking at many divisions, and for changing the best of them together with policies."""

SHORT_SHARE, SHORT_RUNS, MOST_WALKS = 0.6, 2_000, 48
"""Share of the walks' time for short ones, runs of the greedy in each (fewer where that would leave less than `LONG`
walks), and their number at most. Where a walk leads is much a matter of luck, so that many short ones are better than a
few long ones."""

STARTS, STARTS_EVEN = 12, 4
"""Divisions that short walks start from, best ones first; fewer where only near-uniform ones are allowed, as
these differ more."""

LONG = 8
"""The best short walks, which go on in what is left of the walks' time."""

ROUNDS = ((8, 0.05), (3, 0.1), (1, 0.15), (1, 0.15))
"""Rounds of annealing and resizing in turns: how many of the best divisions, each with which share of the time left.
The greedy's value says little of what annealing makes of a schedule, so the first round has many."""

RESIZE_SHARE = 0.15
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
        search.run(fitting, iterations, deadline)
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

    def best(self, number: int = KEPT) -> tuple[Schedule, ...]:
        """The best schedules."""
        return tuple(schedule for _, schedule in sorted(self._schedules.values(), key=lambda each: each[0])[:number])

    def take(self, schedule: Schedule) -> None:
        """Keep a schedule if it is the best of its division and within the limits."""
        timeline = simulate(self._problem, schedule)
        value, sizes = timeline.value(self._objective), schedule.sizes
        if over_limit(timeline) or (sizes in self._schedules and self._schedules[sizes][0] <= value):
            return
        self._schedules[sizes] = value, timeline.schedule
        if self._least is None or value < self._least:
            self._least = value
            if self._report is not None:
                self._report(timeline.schedule, value)

    def run(self, problem: Problem, iterations: int | None, deadline: float | None) -> None:
        """Screen, walk, anneal and resize."""
        trial, began = Trial(problem, self._objective, self._granularity.fused), time.monotonic()
        runs = None if iterations is None else max(1, iterations // RUN_MOVES)

        def point(share: float) -> float | None:
            return None if deadline is None else began + share * (deadline - began)

        def part(share: float) -> int | None:
            return None if runs is None else int(share * runs)

        allowed = set(problem.sizes)
        known = tuple(sizes for sizes in self._schedules if allowed.issuperset(sizes))
        screen = Screen(trial, self._granularity, part(SCREEN_SHARE), point(SCREEN_SHARE))
        screen.run(known)
        found = screen.best()
        self._decode(trial, found[:KEPT])
        if found:
            took, tries = time.monotonic() - began, trial.runs
            left = part(WALK_SHARE)
            if deadline is not None and runs is None:
                left = int(tries * max(0.0, WALK_SHARE * (deadline - began)) / max(took, 1e-9))
            assert left is not None, "a search has an end"
            short = max(LONG, min(MOST_WALKS, int(SHORT_SHARE * left / SHORT_RUNS)))
            self._decode(trial, self._walks(trial, found, short, part(WALK_SHARE), point(SCREEN_SHARE + WALK_SHARE)))
        rest = 1 - SCREEN_SHARE - WALK_SHARE
        self._polish(None if iterations is None else int(rest * iterations), deadline)

    def _decode(self, trial: Trial, found: list[Found]) -> None:
        for each in found:
            trial.divide(each.sizes)
            if trial.value(each.policy) is not None:
                self.take(trial.schedule())

    def _walks(self, trial: Trial, found: list[Found], short: int, runs: int | None, end: float | None) -> list[Found]:
        """Change the best divisions and their policies; the best that come of it, each of another division."""
        instance = Instance(self._problem, found[0].sizes)
        free = replace(
            self._granularity,
            fused=self._granularity.fused and fusing_helps(instance),
            sizes=self._granularity.sizes and len(trial.problem.sizes) > 1,
        )
        random, began = Random(self._seed), time.monotonic()
        starts = STARTS if free.sizes else STARTS_EVEN
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

    def _polish(self, iterations: int | None, deadline: float | None) -> None:
        """Anneal and resize in turns."""
        left = 1.0
        for index, (number, share) in enumerate(ROUNDS):
            for schedule in self.best(number):
                if self.met or (deadline is not None and time.monotonic() >= deadline):
                    return
                moves = None if iterations is None else int(iterations * share)
                until = None
                if deadline is not None:
                    now = time.monotonic()
                    until = now + (deadline - now) * share / max(left, share)
                left -= share
                self._polish_one(schedule, moves, until, self._seed + index)

    def _polish_one(self, schedule: Schedule, iterations: int | None, deadline: float | None, seed: int) -> None:
        now = time.monotonic()
        better = anneal(
            self._problem,
            schedule,
            self._objective,
            iterations=None if iterations is None else int(iterations * (1 - RESIZE_SHARE)),
            deadline=None if deadline is None else now + (deadline - now) * (1 - RESIZE_SHARE),
            seed=seed,
            workers=self._workers,
            target=self._target,
            granularity=self._granularity,
        )
        self.take(better)
        if self._granularity.sizes:
            moves = None if iterations is None else int(iterations * RESIZE_SHARE)
            self.take(resize(self._problem, better, self._objective, iterations=moves, deadline=deadline, seed=seed))
