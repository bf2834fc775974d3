"""What the solver finds at the memory of each heuristic: the front of bubble against memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from ..core.granularity import ALL, Granularity
from ..core.problem import Problem
from ..core.result import Objective
from ..evaluate.timeline import Timeline
from ..portfolio.request import Progress
from .level import Level, Limits, Search, fits, search_level
from .row import Row

OWN_WEIGHT = 3
"""How many times the time of another level the problem's own limits get; and what the others leave."""

MOST_LEVELS = 12
"""Levels of memory beyond which close ones are left out, unless a row there is beaten by no other in memory and value.
"""


def pareto(points: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of (memory, value) pairs those that no other one beats in both, by ascending memory.

    Examples
    --------
    >>> pareto([(4, 10), (2, 12), (3, 12), (4, 11), (9, 10)])
    [(2, 12), (4, 10)]
    """
    front: list[tuple[int, int]] = []
    for memory, value in sorted(points):
        if not front or value < front[-1][1]:
            front.append((memory, value))
    return front


def frontier(
    problem: Problem,
    rows: Sequence[Row],
    *,
    objective: Objective = "makespan",
    time_limit: float = 30.0,
    workers: int = 2,
    seed: int = 0,
    granularity: Granularity = ALL,
    on_progress: Callable[[str, Progress], None] | None = None,
) -> tuple[Level, ...]:
    """Search at every memory that matters, from the best known schedules that fit.

    The levels are the problem's own limits, and, with an equal limit on every rank, the memory of each row that no
    other row of its placement beats in both memory and value; at most about `MOST_LEVELS`. They are searched by
    ascending memory, so what is found with less is known where there is more; the problem's own limits come last, with
    all the time that is left. At each level the greedy has a look at every placement that may be better, while there
    is time for it, and those with the best schedules are searched, each from its best one: no answer is worse than a
    row that fits, whatever the row's placement.

    Parameters
    ----------
    problem
        The problem as it is asked; rows may be on other placements.
    rows
        Schedules to start from; those that train with stale weights are left out.
    objective, workers, seed, granularity
        As for `solve`. What `granularity` leaves out, no search starts from.
    time_limit
        Seconds for all searches; the problem's own limits have `OWN_WEIGHT` times the share of another level.
    on_progress
        Told where it searches, and of each better schedule there.

    Returns
    -------
    tuple of Level
        By ascending memory; fewer when Ctrl-C came.
    """
    known = [row.timeline for row in rows if row.timeline is not None and row.synchronous]
    own = problem.memory.limit
    others = [(memory,) * problem.ranks for memory in _memories(problem, known, objective)]
    order = [*(each for each in others if each != own), own]
    search = Search(objective, workers, seed, granularity, on_progress)
    deadline = time.monotonic() + time_limit
    found: dict[Limits, Level] = {}
    for index, limits in enumerate(order):
        share = 1 / (len(order) - 1 - index + OWN_WEIGHT) if limits != own else 1
        until = time.monotonic() + share * (deadline - time.monotonic())
        level = Level(limits, limits == own, search_level(search, problem, known, limits, until))
        known += [each.timeline for each in level.results if each.timeline is not None]
        found[limits] = level
        if level.interrupted:
            break
    else:
        for limits, level in found.items():  # what was found later may fit here, too
            best = min((each.value(objective) for each in known if fits(each, limits)), default=None)
            if best is not None and (level.best.value is None or best < level.best.value):
                results = search_level(search, problem, known, limits, time.monotonic())
                found[limits] = Level(limits, level.own, results)
                if found[limits].interrupted:
                    break
    return tuple(sorted(found.values(), key=lambda each: _room(each.limits)))


def _memories(problem: Problem, known: Sequence[Timeline], objective: Objective) -> list[int]:
    """Bytes of the levels beside the problem's own, ascending."""
    by_place: dict[Problem | None, list[tuple[int, int]]] = {None: []}
    for timeline in known:
        pair = max(timeline.peak_memory), timeline.value(objective)
        for place in (None, timeline.problem):
            by_place.setdefault(place, []).append(pair)
    best = {memory for memory, _ in pareto(by_place[None])}
    chosen = sorted({memory for pairs in by_place.values() for memory, _ in pareto(pairs)})
    if not problem.limited:
        best -= set(chosen[-1:])
        chosen = chosen[:-1]  # what no limit gives
    while len(chosen) > max(MOST_LEVELS, len(best)):
        below = dict(zip(chosen[1:], chosen, strict=False))
        chosen.remove(min((each for each in chosen if each not in best), key=lambda each: each / below.get(each, each)))
    return chosen


def _room(limits: Limits) -> float:
    return sum(float("inf") if limit is None else limit for limit in limits)
