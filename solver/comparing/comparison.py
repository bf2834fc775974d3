"""Every method on the same layers, batch, ranks and memory, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..bounds import lower_bound
from ..core.errors import InputError
from ..core.granularity import ALL, Granularity
from ..core.method import Method
from ..core.problem import Problem
from ..core.result import Objective, Result
from ..methods import METHODS, find_method
from ..portfolio.request import Progress, require_effort
from ..solving import solve
from .front import frontier
from .level import Level
from .notes import notes
from .row import Row, gap, handmade, missing
from .variants import variants, where_text


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found.

    Parameters
    ----------
    problem
        The problem as it was asked.
    objective
        What was minimised.
    rows
        Methods on their placements, in the order of `METHODS`.
    levels
        The solver at the memory of the heuristics, by ascending memory: with whole micro-batches, then with those that
        are cut into slices, which are other work for a device; empty where "auto" was not asked.
    notes
        Which rows are not comparable, and why, in sentences.
    interrupted
        Whether Ctrl-C ended it; what was found until then is here.
    """

    problem: Problem
    objective: Objective
    rows: tuple[Row, ...]
    levels: tuple[Level, ...]
    notes: tuple[str, ...]
    interrupted: bool = False

    def bound(self, sliced: bool = False) -> int:
        """Ticks below which no schedule within the limits is, on any placement compared: the least of their bounds.

        Parameters
        ----------
        sliced
            Whether of micro-batches that are cut into slices; they are not the same work for a device.
        """
        rows = [row for row in self.rows if row.sliced == sliced]
        within = {row.timeline.problem for row in rows if row.fits and row.timeline is not None}
        bounds = []
        for row in rows:
            # Where only rows over the limits are known, what holds without limits holds within them, too.
            if row.timeline is not None and (row.fits or row.timeline.problem not in within):
                of_sizes = row.fits and row.result.proven_for == "sizes"
                bounds.append(lower_bound(row.timeline.problem, self.objective) if of_sizes else row.bound)
        return min(bounds, default=0)

    @property
    def work(self) -> int:
        """Ticks of every F, I and W of the batch: the same on every placement."""
        instance = self.problem.instance(self.problem.default_sizes())
        return int(instance.forward.sum() + instance.backward_input.sum() + instance.backward_weight.sum())

    def bubble(self, value: int) -> float:
        """Share of ranks x value in which none of that work is done.

        What a row's own bubble is where all ranks have the same work and fusing saves none; and where not, still in the
        order of the values.
        """
        return 1 - self.work / (self.problem.ranks * value) if value else 0.0

    def gap(self, row: Row) -> float | None:
        """How far a row within the limits lies above the bound over all placements of its kind."""
        return gap(row.value, self.bound(row.sliced)) if row.fits else None

    def data(self) -> dict[str, Any]:
        """All of it as plain data, with the names of the command line's JSON."""
        return {
            "problem": self.problem.name,
            "rows": [row.data() | {"gap_over_placements": self.gap(row)} for row in self.rows],
            "front": [_level_data(level) for level in self.levels],
            "notes": list(self.notes),
        }


def compare(
    problem: Problem,
    methods: Sequence[str] | None = None,
    *,
    objective: Objective = "makespan",
    time_limit: float = 30.0,
    workers: int = 2,
    seed: int = 0,
    granularity: Granularity = ALL,
    on_progress: Callable[[str, Progress], None] | None = None,
) -> Comparison:
    """Compare methods fairly: each on its own placement of the same layers, at equal memory.

    A schedule of the literature is generated on every placement that it can have (`variants`), in milliseconds; one
    that breaks a memory limit is shown with what it needs. "auto" is the solver at the problem's limits and at the
    memory of each heuristic (`frontier`), never worse than a row that fits; other searches are run on the problem's own
    placement.

    Parameters
    ----------
    problem
        The problem. Its `layers` say what other placements can be made of its stages.
    methods
        Names; None: auto, and all schedules of the literature.
    objective, workers, seed
        As for `solve`.
    time_limit
        Seconds of all searches together, the same for each that is asked.
    granularity
        What searches may choose. A schedule by name is what it is.
    on_progress
        Told where it searches, and of each better schedule.

    Raises
    ------
    InputError
        When a name is unknown, or an option is out of range.

    Examples
    --------
    >>> problem = Problem.from_dict({
    ...     "pipeline": {"ranks": 2, "layers_per_stage": 2},
    ...     "batch": {"samples": 2},
    ...     "costs": {"forward": 2, "backward_input": 2, "backward_weight": 2},
    ... })
    >>> [(row.label, row.value) for row in compare(problem, ["1f1b", "zbh1", "interleaved"]).rows]
    [('1F1B', 18), ('Interleaved1F1B v=2', 15), ('ZB-H1', 14)]
    """
    chosen = _chosen(methods)
    require_effort(time_limit, workers)
    searches = [method for method in chosen if method.build is None]
    fixed: dict[str, list[Row]] = {}
    stopped = False
    try:
        for method in chosen:
            if method.build is not None:
                made = fixed.setdefault(method.name, [])
                for variant in variants(problem, method):
                    made.append(handmade(variant, objective))
    except KeyboardInterrupt:
        stopped = True
    known = [row for rows in fixed.values() for row in rows]
    rows: list[Row] = []
    levels: list[Level] = []
    share = time_limit / max(1, len(searches))
    for method in chosen:
        if method.build is not None:
            rows += fixed.get(method.name, [])
        elif stopped:
            continue
        elif method.name == "auto":
            for base, those, weight in _groups(problem, known):
                levels += frontier(
                    base, those, objective=objective, time_limit=share * weight, workers=workers, seed=seed,
                    granularity=granularity, on_progress=on_progress,
                )  # fmt: skip
                if stopped := any(level.interrupted for level in levels):
                    break
            rows += [_searched(method, each) for level in levels if level.own for each in level.results]
        elif not method.suits(problem):
            rows.append(missing(method.name, method, objective, _unsuited(method, problem)))
        else:
            result = solve(
                problem, method.name, objective=objective, time_limit=share, workers=workers, seed=seed,
                granularity=granularity, on_progress=_telling(on_progress, method.name),
            )  # fmt: skip
            rows.append(_searched(method, result))
            stopped = result.interrupted
    shared = _sharing_bounds(rows)
    return Comparison(problem, objective, shared, tuple(levels), notes(problem, shared, objective), stopped)


def _level_data(level: Level) -> dict[str, object]:
    """The best answer at a level, and where it is."""
    timeline = level.best.timeline
    place = None if timeline is None else where_text(timeline.problem)
    slices = None if timeline is None else timeline.schedule.slices
    where = {"limit": list(level.limits), "own": level.own, "placement": place, "slices": slices}
    return where | level.best.row()


def _chosen(methods: Sequence[str] | None) -> list[Method]:
    if methods is None:
        return [method for method in METHODS if method.build is not None or method.name == "auto"]
    names = {find_method(name).name for name in methods}
    if not names:
        raise InputError("methods: the list is empty; name some, or leave it out for all")
    return [method for method in METHODS if method.name in names]


def _groups(problem: Problem, known: Sequence[Row]) -> list[tuple[Problem, list[Row], float]]:
    """Rows of whole micro-batches and rows of slices, each with a problem of that kind and a share of the time."""
    found = []
    for sliced in (False, True):
        rows = [row for row in known if row.timeline is not None and row.sliced == sliced]
        own = (problem.slices is not None) == sliced
        first = next((row.timeline.problem for row in rows if row.timeline is not None), None)
        base = problem if own else first
        if base is not None:
            found.append((base, rows, 2.0 if own else 1.0))
    whole = sum(weight for *_, weight in found)
    return [(base, rows, weight / whole) for base, rows, weight in found]


def _unsuited(method: Method, problem: Problem) -> str:
    try:
        method.require(problem)
    except InputError as error:
        return str(error)
    raise AssertionError(f"{method.name} suits the problem")


def _searched(method: Method, result: Result) -> Row:
    where = "" if result.timeline is None else f" on {where_text(result.timeline.problem)}"
    label = method.name + (where if method.name == "auto" else "")
    return Row(label, method, result, result.timeline, result.bound)


def _sharing_bounds(rows: Sequence[Row]) -> tuple[Row, ...]:
    """What one search proves for its problem holds for all schedules of the problem."""
    proven: dict[Problem, int] = {}
    for row in rows:
        result = row.result
        if result.timeline is not None and result.proven_for == "problem" and result.granularity == ALL:
            problem = result.timeline.problem
            proven[problem] = max(result.bound, proven.get(problem, 0))
    return tuple(_raised(row, proven) for row in rows)


def _raised(row: Row, proven: dict[Problem, int]) -> Row:
    result = row.result
    if result.timeline is None or result.granularity != ALL:
        return row
    bound = proven.get(result.timeline.problem, 0)
    if bound < row.bound:
        return row
    return replace(row, bound=bound, result=replace(result, bound=bound, proven_for="problem"))


def _telling(tell: Callable[[str, Progress], None] | None, where: str) -> Callable[[Progress], None] | None:
    return None if tell is None else lambda progress: tell(where, progress)
