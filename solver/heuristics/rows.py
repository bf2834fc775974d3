"""What the heuristics share: one rank's ops in the making, and the refusal of a placement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from ..core.errors import InputError
from ..core.ops import Kind, Op
from ..core.placement import place
from ..core.problem import Problem
from ..core.schedule import Schedule


class Row:
    """Ops of one rank, appended in order; micro-batches of each stage and kind count up by themselves.

    Parameters
    ----------
    slices
        Slices of each micro-batch, whose numbers count down in its backward.
    """

    def __init__(self, slices: int = 1) -> None:
        self.ops: list[Op] = []
        self._slices = slices
        self._next: dict[tuple[int, Kind], int] = {}

    def count(self, stage: int, kind: Kind) -> int:
        """How many ops of a kind the stage has so far."""
        return self._next.get((stage, kind), 0)

    def add(self, stage: int, *kinds: Kind) -> None:
        """Append one op of each kind, each for the stage's next micro-batch."""
        for kind in kinds:
            microbatch = self.count(stage, kind)
            self._next[stage, kind] = microbatch + 1
            if kind is not Kind.F:
                microbatch += self._slices - 1 - 2 * (microbatch % self._slices)
            self.ops.append(Op(stage, kind, microbatch))


def assemble(problem: Problem, sizes: tuple[int, ...] | None, row: Callable[[int, int], Iterable[Op]]) -> Schedule:
    """Schedule whose rank r runs `row(r, m)`, m being the number of micro-batches (or of all their slices)."""
    used = problem.default_sizes() if sizes is None else sizes
    ranks = range(problem.ranks)
    rows = tuple(tuple(row(rank, len(used))) for rank in ranks)
    return Schedule(problem.placement, used, rows, problem.slice_count)


def paced(problem: Problem, sizes: tuple[int, ...] | None, together: int) -> Schedule:
    """Schedule that runs a direction's micro-batches in groups, each in the order of a clock on which every op takes 1.

    With S stages, micro-batch i of the direction, the k-th of group g, has its F of stage s at 2(Sg + k) + s and its B
    at 2(Sg + k) + 2S - 1 - s, so that groups follow each other without a pause.
    """
    used = problem.default_sizes() if sizes is None else sizes
    placement, count, stages = problem.placement, len(used), problem.stages
    rows: list[list[tuple[int, Op]]] = [[] for _ in range(placement.ranks)]
    begun = [0] * placement.directions
    for j in range(count):
        direction = placement.direction_of(j, count)
        group, place_in_it = divmod(begun[direction], together)
        begun[direction] += 1
        start = 2 * (stages * group + place_in_it)
        for s, rank in enumerate(placement.stages[direction]):
            rows[rank].append((start + s, Op(s, Kind.F, j)))
            rows[rank].append((start + 2 * stages - 1 - s, Op(s, Kind.B, j)))
    ops = tuple(tuple(op for _, op in sorted(row, key=lambda timed: timed[0])) for row in rows)
    return Schedule(placement, used, ops, problem.slice_count)


def require_family(problem: Problem, method: str, family: str, stages_per_rank: int = 1) -> None:
    """Refuse a problem whose stages do not lie as the method needs them.

    Raises
    ------
    InputError
        Naming the placement found and the one to set.
    """
    if problem.placement.stages != place(family, problem.ranks, stages_per_rank).stages:
        raise InputError(
            f"pipeline.placement: {method} needs placement {family!r}, and this problem's is "
            f"{problem.placement.name!r} ({problem.stages} stages on {problem.ranks} ranks); set "
            f'pipeline.placement = "{family}" or choose another method'
        )


def refuse(place: str, method: str, rule: str, found: str, nearest: str) -> NoReturn:
    """Refuse a shape that a schedule cannot have.

    Parameters
    ----------
    place
        Key of the problem file.
    method
        Name of the method.
    rule
        What it needs.
    found
        What there is.
    nearest
        The nearest legal shape, as what to set.

    Raises
    ------
    InputError
        With all of that in one sentence.
    """
    raise InputError(f"{place}: {method} needs {rule}, and {found}; nearest: {nearest}")
