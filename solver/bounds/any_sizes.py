"""A bound that holds for every legal choice of micro-batch sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..core.placement import Placement
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array
from .paths import PASS, REST, F, Paths

LARGEST_TABLE = 1 << 15
"""Entries of the table of sums, beyond which the cheapest price per sample stands in for it."""


def any_sizes(problem: Problem, objective: Objective) -> int:
    """Chain, and head + work + tail, for whatever sizes the schedule uses.

    Durations and messages grow with the size, so no micro-batch passes the pipeline faster than one of the smallest
    size, and the first starts and last ends of ranks are bounded by its heads and tails. A rank's work is a sum of
    prices over sizes that add up to the batch; the least such sum is found by dynamic programming over the number of
    samples (or, for very large batches, by the cheapest price per sample). With two directions, each price is the
    cheaper direction's.

    The span of a rank is at least its work.
    """
    rows = problem.placement.stages
    alone = [_alone(problem, row, problem.sizes[0]) for row in rows]
    always = alone if -(-problem.samples // problem.sizes[-1]) > 1 else alone[:1]
    passed, whole = _least_work(problem, rows)
    if objective == "span":
        return int(whole.max())
    best = max(int((paths.head[PASS] + paths.whole).max()) for paths in always)
    for rank in range(problem.ranks):
        ends = [[stage for stage, owner in enumerate(row) if owner == rank] for row in rows]
        cases = [(paths, stages) for paths, stages in zip(alone, ends, strict=True) if stages]
        head = min(int(paths.head[F, stages[0], 0]) for paths, stages in cases)
        tail = min(int(paths.tail[PASS, stages, 0].min()) for paths, stages in cases)
        best = max(best, head + int(whole[rank]), head + int(passed[rank]) + tail)
    return best


def _alone(problem: Problem, row: tuple[int, ...], size: int) -> Paths:
    """Paths of one micro-batch of a size, in a direction."""
    placement = Placement(problem.ranks, (row,))
    return Paths(replace(problem, placement=placement, samples=size, sizes=(size,)).instance((size,)))


def _least_work(problem: Problem, rows: tuple[tuple[int, ...], ...]) -> tuple[Array, Array]:
    """Least total of F and passing the gradient on, and of F and whole backwards, of each rank; shapes (p,)."""
    prices = []
    for size in problem.sizes:
        options = []
        for row in rows:
            ticks, table = _alone(problem, row, size).ticks[:, :, 0], np.zeros((2, problem.ranks), dtype=np.int64)
            for stage, rank in enumerate(row):
                table[0, rank] += ticks[F, stage] + ticks[PASS, stage]
                table[1, rank] += ticks[F, stage] + ticks[PASS, stage] + ticks[REST, stage]
            options.append(table)
        prices.append(np.min(options, axis=0))
    if problem.samples * len(prices) > LARGEST_TABLE:
        floors = [problem.samples * price // size for price, size in zip(prices, problem.sizes, strict=True)]
        least = np.min(floors, axis=0)
        return least[0], least[1]
    sums: list[Array | None] = [np.zeros((2, problem.ranks), dtype=np.int64)]
    for total in range(1, problem.samples + 1):
        choices = []
        for size, price in zip(problem.sizes, prices, strict=True):
            before = sums[total - size] if size <= total else None
            if before is not None:
                choices.append(before + price)
        sums.append(np.min(choices, axis=0) if choices else None)
    found = sums[problem.samples]
    assert found is not None, "a problem's sizes add up to its batch"
    return found[0], found[1]
