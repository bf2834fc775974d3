"""One micro-batch after the other."""

from __future__ import annotations

from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.schedule import Schedule


def one_by_one(problem: Problem, sizes: tuple[int, ...]) -> Schedule:
    """One micro-batch after the other, with fused backwards: it needs the least memory that any schedule needs.

    On each stage the slices of a micro-batch run forward one after the other, and later backward, the last one first.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 2}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in one_by_one(problem, (1, 1)).ops]
    ['0F0 0B0 0F1 0B1', '1F0 1B0 1F1 1B1']
    """
    count, placement, slices = len(sizes), problem.placement, problem.slice_count
    rows: list[list[Op]] = [[] for _ in range(placement.ranks)]
    for first in range(0, count, slices):
        for s in range(placement.stage_count):
            for j in range(first, first + slices):
                rows[placement.rank_of(s, j, count)].append(Op(s, Kind.F, j))
        for s in reversed(range(placement.stage_count)):
            for j in reversed(range(first, first + slices)):
                rows[placement.rank_of(s, j, count)].append(Op(s, Kind.B, j))
    return Schedule(placement, sizes, tuple(tuple(row) for row in rows), slices)
