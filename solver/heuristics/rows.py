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


def alternating(
    problem: Problem,
    sizes: tuple[int, ...] | None,
    ahead: int,
    least: int = 1,
    backward: tuple[Kind, ...] = (Kind.B,),
) -> Schedule:
    """Schedule of a rank's stages, r, r + p, …: forwards in advance, then a forward and a backward in turn.

    Micro-batches go through a rank's stages in near-equal groups, the larger ones first. With the largest of n
    micro-batches of k slices, rank r starts with (v - 1) n k + ahead (p - 1 - r) + k - 1 forwards.

    Parameters
    ----------
    problem, sizes
        As for a heuristic; a linear placement or a loop.
    ahead
        Forwards that a rank runs in advance for each rank behind it.
    least
        Micro-batches of a group, where there are as many.
    backward
        Kinds of a backward.
    """
    ranks, slices = problem.ranks, problem.slice_count

    def row(rank: int, count: int) -> list[Op]:
        groups = _groups(count // slices, least)
        stages = range(rank, problem.stages, ranks)
        forward = [stage for size in groups for stage in stages for _ in range(size * slices)]
        returning = [stage for size in groups for stage in reversed(stages) for _ in range(size * slices)]
        early = min((len(stages) - 1) * groups[0] * slices + ahead * (ranks - 1 - rank) + slices - 1, len(forward))
        made = Row(slices)
        for stage in forward[:early]:
            made.add(stage, Kind.F)
        for position, stage in enumerate(returning):
            if early + position < len(forward):
                made.add(forward[early + position], Kind.F)
            made.add(stage, *backward)
        return made.ops

    return assemble(problem, sizes, row)


def _groups(microbatches: int, least: int) -> list[int]:
    """Near-equal groups of at least so many micro-batches, where there are as many; the larger ones first."""
    count = max(1, microbatches // least)
    base, larger = divmod(microbatches, count)
    return [base + (g < larger) for g in range(count)]


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


def require_family(problem: Problem, method: str, family: str, stages_per_rank: int | None = 1) -> None:
    """Refuse a problem whose stages do not lie as the method needs them.

    Parameters
    ----------
    problem
        The problem.
    method
        Name of the method.
    family
        The family of placements (`place`) that it needs.
    stages_per_rank
        How many stages it needs on each rank; None: any number that the family has.

    Raises
    ------
    InputError
        Naming the placement found and the one to set.
    """
    if stages_per_rank is None:
        step = 2 if family == "wave" else 1
        rounds, rest = divmod(problem.stages, step * problem.ranks)
        stages_per_rank = step * (1 if rest else rounds)
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
