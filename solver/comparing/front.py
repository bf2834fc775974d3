"""What the solver finds at the memory of each heuristic: the front of bubble against memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..bounds import infeasible, lower_bound
from ..core.granularity import ALL, Granularity
from ..core.problem import Problem
from ..core.result import Objective, Result
from ..evaluate.timeline import Timeline
from ..portfolio.request import Progress
from ..solving import solve
from .row import Row, with_limits
from .variants import where_text

PLACEMENTS = 2
"""Placements that are searched at each level of memory: those of the best schedules that fit, and one more, with the
least lower bound, where that is another."""

MOST_LEVELS = 12
"""Levels of memory beyond which close ones are left out, unless a row there is beaten by no other in memory and value.
"""

OWN_WEIGHT = 3
"""How many times the time of another level the problem's own limits get."""

LEAST_S = 0.1
"""Seconds of a search for which there is no time: it does little more than to take over the schedule it starts from."""

Limits = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """The solver at one memory.

    Parameters
    ----------
    limits
        Bytes that each rank may hold.
    own
        Whether these are the problem's own limits.
    results
        Its answers, on one placement each, the best first.
    """

    limits: Limits
    own: bool
    results: tuple[Result, ...]

    @property
    def best(self) -> Result:
        """The best answer, on any of the placements."""
        return self.results[0]


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
    time_limit: float = 45.0,
    workers: int = 2,
    seed: int = 0,
    granularity: Granularity = ALL,
    on_progress: Callable[[str, Progress], None] | None = None,
) -> tuple[Level, ...]:
    """Search at every memory that matters, from the best known schedules that fit.

    The levels are the problem's own limits, and, with an equal limit on every rank, the memory of each row that no
    other row of its placement beats in both memory and value; at most about `MOST_LEVELS`. They are searched by
    ascending memory, so what is found with less is known where there is more. At each level the placements of the best
    known schedules are searched, each from its best one, and the one whose bound leaves the most to be gained:
    no answer is worse than a row that fits, whatever the row's placement.

    Parameters
    ----------
    problem
        The problem as it is asked; rows may be on other placements.
    rows
        Schedules to start from.
    objective, workers, seed, granularity
        As for `solve`. What `granularity` leaves out, no search starts from.
    time_limit
        Seconds for all searches; the problem's own limits have `OWN_WEIGHT` times the share of another level.
    on_progress
        Told where it searches, and of each better schedule there.
    """
    known = [row.timeline for row in rows if row.timeline is not None]
    own = problem.memory.limit
    order = sorted({own, *((memory,) * problem.ranks for memory in _memories(problem, known, objective))}, key=_room)
    found: list[Level] = []
    deadline, weights = time.monotonic() + time_limit, [OWN_WEIGHT if each == own else 1 for each in order]
    for index, limits in enumerate(order):
        share = weights[index] / sum(weights[index:])
        until = time.monotonic() + share * (deadline - time.monotonic())
        results: list[Result] = []
        for rival, (place, start) in enumerate(chosen := _starts(problem, known, limits, objective)):
            best = min((each.value for each in results if each.value is not None), default=None)
            if best is not None and lower_bound(place, objective) >= best:
                continue
            left = (until - time.monotonic()) / (len(chosen) - rival)
            where = f"{where_text(place)}, {_text(limits, place)}"
            tell = None if on_progress is None else _telling(on_progress, where)
            result = solve(
                place,
                objective=objective,
                time_limit=max(LEAST_S, left),
                workers=workers,
                seed=seed,
                granularity=granularity,
                start=None if start is None else start.schedule,
                on_progress=tell,
            )
            results.append(result)
            if result.interrupted:
                break
        known += [each.timeline for each in results if each.timeline is not None]
        results.sort(key=lambda each: (each.value is None, each.value or 0))
        found.append(Level(limits, limits == own, tuple(results)))
        if any(each.interrupted for each in results):
            break
    return tuple(found)


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


def _starts(
    problem: Problem, known: Sequence[Timeline], limits: Limits, objective: Objective
) -> list[tuple[Problem, Timeline | None]]:
    """Problems to search with these limits, the most promising first, and the best known schedule of each."""
    best: dict[Problem, Timeline] = {}
    for timeline in sorted(known, key=lambda each: each.value(objective)):
        if all(limit is None or peak <= limit for peak, limit in zip(timeline.peak_memory, limits, strict=True)):
            best.setdefault(with_limits(timeline.problem, limits), timeline)
    places = dict.fromkeys(with_limits(each, limits) for each in (problem, *(t.problem for t in known)))
    possible = [each for each in places if each in best or not infeasible(each)] or list(places)
    chosen = [*best][:PLACEMENTS]
    if len(chosen) < len(possible):
        least = min(possible, key=lambda each: (lower_bound(each, objective), each not in best))
        chosen += [] if least in chosen else [least]
    return [(each, best.get(each)) for each in chosen]


def _room(limits: Limits) -> float:
    return sum(float("inf") if limit is None else limit for limit in limits)


def _text(limits: Limits, problem: Problem) -> str:
    from ..evaluate.limits import in_unit

    if any(limit is None for limit in limits):
        return "no limit"
    least = min(limit for limit in limits if limit is not None)
    return ("" if len(set(limits)) == 1 else "from ") + in_unit(least, problem.memory.unit)


def _telling(tell: Callable[[str, Progress], None], where: str) -> Callable[[Progress], None]:
    return lambda progress: tell(where, progress)
