"""The solver at one memory: the placements that promise most, each from the best schedule known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..bounds import infeasible, lower_bound
from ..core.granularity import ALL, Granularity
from ..core.problem import Problem
from ..core.result import Objective, Result
from ..evaluate.limits import in_unit
from ..evaluate.simulate import simulate
from ..evaluate.timeline import Timeline
from ..methods import find_method
from ..portfolio.request import Progress
from ..solving import solve
from .row import with_limits
from .variants import where_text

PLACEMENTS = 2
"""Placements that are searched at each level of memory."""

LOOK_SHARE = 0.3
"""Share of a level's time in which the greedy has a look at every placement, to choose those."""

LOOK_LEAST_S = 0.03
"""Seconds below which there is no such look."""

LEAST_S = 0.1
"""Seconds below which a search is not worth its start: the schedule that it would start from is the answer."""

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

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended one of its searches."""
        return any(each.interrupted for each in self.results)


@dataclass(frozen=True, slots=True)
class Search:
    """What every level is searched with; its parameters are those of `solve`."""

    objective: Objective
    workers: int
    seed: int
    granularity: Granularity
    on_progress: Callable[[str, Progress], None] | None

    def solve(self, problem: Problem, start: Timeline | None, time_limit: float, method: str = "auto") -> Result:
        """One search, from a known schedule; without time for one, that schedule."""
        if start is not None and time_limit < LEAST_S and method == "auto" and self.granularity == ALL:
            timeline, bound = simulate(problem, start.schedule), lower_bound(problem, self.objective)
            return Result(method, self.objective, timeline, bound, 0.0, found_by="start")
        tell, where = self.on_progress, f"{where_text(problem)}, {_text(problem)}"
        return solve(
            problem,
            method,
            objective=self.objective,
            time_limit=max(LOOK_LEAST_S, time_limit),
            workers=self.workers,
            seed=self.seed,
            granularity=self.granularity,
            start=None if start is None else start.schedule,
            on_progress=None if tell is None or method != "auto" else lambda progress: tell(where, progress),
        )


def search_level(
    search: Search, problem: Problem, known: Sequence[Timeline], limits: Limits, until: float
) -> tuple[Result, ...]:
    """Answers within some limits, on up to `PLACEMENTS` placements, the best first.

    Parameters
    ----------
    search
        What to search with.
    problem
        The problem as it is asked: one of the placements.
    known
        Schedules to start from, of any placement and memory; their problems are the other placements.
    limits
        Bytes that each rank may hold.
    until
        Value of `time.monotonic()` at which the time is over.
    """
    best: dict[Problem, Timeline] = {}
    for timeline in sorted(known, key=lambda each: each.value(search.objective)):
        if fits(timeline, limits):
            best.setdefault(with_limits(timeline.problem, limits), timeline)
    places = list(dict.fromkeys(with_limits(each, limits) for each in (problem, *(t.problem for t in known))))
    results: list[Result] = []
    try:
        _answer(search, places, best, until, results)
    except KeyboardInterrupt:  # between two searches: what is known by then is the answer
        results.append(_interrupted(search, best))
    return tuple(sorted(results, key=lambda each: (each.value is None, each.value or 0)))


def _answer(
    search: Search, places: list[Problem], best: dict[Problem, Timeline], until: float, results: list[Result]
) -> None:
    """Append the answers, as they come, to `results`."""
    objective = search.objective
    fair = [each for each in places if _counted(each)] or places
    if len(fair) > PLACEMENTS:
        _look(search, fair, best, until)
    # Without a schedule, a placement is only searched where no other has one.
    chosen = [each for each in fair if each in best] or [each for each in places if not infeasible(each)] or places
    chosen = sorted(chosen, key=lambda each: start.value(objective) if (start := best.get(each)) else 0)[:PLACEMENTS]
    for index, place in enumerate(chosen):
        value = min((each.value for each in results if each.value is not None), default=None)
        if value is not None and lower_bound(place, objective) >= value:
            continue
        left = (until - time.monotonic()) / (len(chosen) - index)
        results.append(search.solve(place, best.get(place), left))
        if results[-1].interrupted:
            break
    for place, start in best.items():
        value = min((each.value for each in results if each.value is not None), default=None)
        if place not in fair and (value is None or start.value(objective) < value):
            results.append(search.solve(place, start, 0.0))


def _interrupted(search: Search, best: dict[Problem, Timeline]) -> Result:
    """The best schedule known when Ctrl-C came."""
    objective = search.objective
    place = min(best, key=lambda each: best[each].value(objective), default=None)
    timeline = None if place is None else simulate(place, best[place].schedule)
    bound = 0 if place is None else lower_bound(place, objective)
    return Result("auto", objective, timeline, bound, 0.0, found_by="start", reason="interrupted", interrupted=True)


def _look(search: Search, places: Sequence[Problem], best: dict[Problem, Timeline], until: float) -> None:
    """Let the greedy try every placement that may be better than the best, where there is time for it."""
    objective = search.objective
    value = min((start.value(objective) for start in best.values()), default=None)
    for index, place in enumerate(places):
        look = (until - time.monotonic()) * LOOK_SHARE / (len(places) - index)
        if look < LOOK_LEAST_S:
            return
        hopeless = value is not None and lower_bound(place, objective) >= value
        if hopeless or not find_method("greedy").suits(place) or (place not in best and infeasible(place)):
            continue
        found = search.solve(place, best.get(place), look, "greedy")
        if found.timeline is not None:
            best[place] = found.timeline
        if found.interrupted:
            raise KeyboardInterrupt


def _counted(problem: Problem) -> bool:
    """Whether all copies of the parameters count in memory: a second one does where the problem says how large it is.

    Where it does not, such a placement has more memory than others, and is left to the schedules that are known.
    """
    return problem.placement.directions == 1 or any(problem.memory.static)


def fits(timeline: Timeline, limits: Limits) -> bool:
    """Whether a schedule keeps other limits than its problem's."""
    return all(limit is None or peak <= limit for peak, limit in zip(timeline.peak_memory, limits, strict=True))


def _text(problem: Problem) -> str:
    """The limits for people."""
    known = [limit for limit in problem.memory.limit if limit is not None]
    if not known:
        return "no limit"
    return ("" if len(set(problem.memory.limit)) == 1 else "from ") + in_unit(min(known), problem.memory.unit)
