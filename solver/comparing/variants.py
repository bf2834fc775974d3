"""Where a method is compared: the problem's layers on each placement that the method can have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..core.errors import InputError
from ..core.method import Method
from ..core.placement import Placement, place
from ..core.problem import Problem
from ..core.regroup import regroup
from ..core.slices import Slices

SLICES = (2, 4)
"""Numbers of slices with which schedules of slices are compared, where the problem does not say how many."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A method on one placement.

    Parameters
    ----------
    label
        The method's name, with what tells its variants apart: "Interleaved1F1B v=2".
    method
        The method.
    problem
        The problem on that placement; None where it cannot be had.
    reason
        Why not, and what to set.
    """

    label: str
    method: Method
    problem: Problem | None
    reason: str = ""


def variants(problem: Problem, method: Method) -> tuple[Variant, ...]:
    """A method on every placement of its family that the layers allow; a search on the problem's own.

    Loops and waves are had with every number of stages per rank, above one, that divides the layers of a rank. A
    schedule of slices is had with the problem's, or with each number of `SLICES`; others with whole micro-batches.

    Parameters
    ----------
    problem
        The problem; its `layers` say how many there are.
    method
        Any method.

    Examples
    --------
    >>> from adaptpipe.solver.methods import find_method
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2, "layers_per_stage": 4}, "batch": {"samples": 2},
    ...     "costs": {"forward": 10, "backward_input": 10, "backward_weight": 5}})
    >>> [each.label for each in variants(problem, find_method("interleaved"))]
    ['Interleaved1F1B v=2', 'Interleaved1F1B v=4']
    """
    if method.build is None:
        return (Variant(method.name, method, problem),)
    found = []
    for label, placement in _placements(problem, method):
        if placement is None:
            found.append(Variant(label, method, None, _too_few_layers(problem, method)))
            continue
        for more, slices in _slices(problem, method):
            found.append(_placed(problem, method, label + more, placement, slices))
    return tuple(found)


def _placed(problem: Problem, method: Method, label: str, placement: Placement, slices: Slices | None) -> Variant:
    try:
        cut = replace(problem, slices=slices)
    except InputError as error:
        return Variant(label, method, None, f"{label}: {error}")
    try:
        return Variant(label, method, regroup(cut, placement))
    except InputError as error:
        return Variant(label, method, None, f"{label}: needs placement {placement_text(placement)}: {error}")


def placement_text(placement: Placement) -> str:
    """A placement for people: its family, with the stages per rank where the family leaves them open.

    Examples
    --------
    >>> placement_text(place("loop", 2, 3)), placement_text(place("v", 2, 2))
    ('loop v=3', 'v')
    """
    per_rank = placement.stage_count // placement.ranks
    return f"{placement.name} v={per_rank}" if placement.name in ("loop", "wave") else placement.name


def where_text(problem: Problem) -> str:
    """The same of a problem, with the number of slices where it has some: "linear k=4"."""
    slices = "" if problem.slices is None else f" k={problem.slice_count}"
    return placement_text(problem.placement) + slices


def _slices(problem: Problem, method: Method) -> Iterator[tuple[str, Slices | None]]:
    """Slices of the micro-batches for a method, and what they add to its label."""
    if not method.sliced:
        yield "", problem.slices if method.sliced is None else None
    elif problem.slices is not None:
        yield f" k={problem.slice_count}", problem.slices
    else:
        for count in SLICES:
            yield f" k={count}", Slices.equal(count)


def _placements(problem: Problem, method: Method) -> Iterator[tuple[str, Placement | None]]:
    """Labels and placements; None where a family has none."""
    name, family, ranks = method.name, method.placement, problem.ranks
    if family in ("loop", "wave"):
        counts = _counts(problem, 2 if family == "wave" else 1)
        for count in counts:
            yield f"{name} w={count // 2}" if family == "wave" else f"{name} v={count}", place(family, ranks, count)
        if not counts:
            yield name, None
    elif family == "any":
        # As its paper has it; where the layers do not make one stage for each rank, as they are.
        even = _layers(problem) % ranks == 0 or problem.stages == ranks
        own = problem.placement.directions == 1 and not even
        yield name, problem.placement if own else place("linear", ranks)
    else:
        yield name, place(family, ranks, 2 if family == "v" else 1)


def _layers(problem: Problem) -> int:
    return sum(problem.layers) or problem.stages


def _counts(problem: Problem, step: int) -> list[int]:
    """Stages per rank, above one and multiples of a step, that divide the layers of a rank."""
    per_rank, rest = divmod(_layers(problem), problem.ranks)
    return [] if rest else [v for v in range(2, per_rank + 1) if per_rank % v == 0 and v % step == 0]


def _too_few_layers(problem: Problem, method: Method) -> str:
    count = _layers(problem)
    step = 2 * problem.ranks if method.placement == "wave" else problem.ranks
    wanted = max(2 * problem.ranks, -(-count // step) * step)
    return (
        f"{method.name}: needs several stages on each rank, and the {count} layers on {problem.ranks} ranks cannot be "
        f"divided so; set pipeline.layers_per_stage so that there are {wanted}"
    )
