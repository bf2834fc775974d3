"""A bound that holds for every legal choice of micro-batch sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..core.placement import Placement
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array
from .paths import PASS, REST, F, Paths
from .span import first_rank, led

LARGEST_TABLE = 1 << 15
"""Entries of the table of sums, beyond which the cheapest price per sample stands in for it."""


def any_sizes(problem: Problem, objective: Objective) -> int:
    """Chain, and head + work + tail, for whatever sizes the schedule uses.

    Durations and messages grow with the size, so no micro-batch passes the pipeline faster than one of the smallest
    size, and the first starts of ranks are bounded by its heads. What follows once a gradient is passed on need not
    grow, where larger micro-batches are fused: the least tail of any size holds. A rank's work is a sum of
    prices over sizes that add up to the batch; the least such sum is found by dynamic programming over the number of
    samples (or, for very large batches, by the cheapest price per sample). With two directions, each price is the
    cheaper direction's.

    The span is at least any rank's work. With one direction the rank of the first stage starts at 0, so that what leads
    to its end counts as for the makespan.
    """
    rows = problem.placement.stages
    each = [[_alone(problem, row, size) for row in rows] for size in problem.sizes]
    alone = each[0]
    always = alone if -(-problem.samples // problem.sizes[-1]) > 1 else alone[:1]
    passed, whole = _least_work(problem, each)
    best, anchor = int(whole.max()), first_rank(alone[0]) if len(rows) == 1 else None
    if objective == "span" and anchor is None:
        return best
    # Of the span, the chain that ends where it began.
    chains = [(paths.head[PASS] + paths.whole)[: 1 if objective == "span" else None] for paths in always]
    best = max(best, *(int(chain.max()) for chain in chains))
    tails = [[_tail(paths, None if objective == "makespan" else anchor) for paths in of_size] for of_size in each]
    for rank in range(problem.ranks):
        ends = [[stage for stage, owner in enumerate(row) if owner == rank] for row in rows]
        head = min(int(paths.head[F, stages[0], 0]) for paths, stages in zip(alone, ends, strict=True) if stages)
        tail = min(
            int(passed_on[stages].min())
            for of_size in tails
            for passed_on, stages in zip(of_size, ends, strict=True)
            if stages
        )
        best = max(best, head + int(passed[rank]) + tail)
        if objective == "makespan":
            best = max(best, head + int(whole[rank]))
    return best


def _tail(paths: Paths, anchor: int | None) -> Array:
    """Least time from the end of I of every stage to the end of everything, or to that of a rank; shape (S,)."""
    zero = np.zeros_like(paths.ticks_of_kind)
    tail: Array = paths.tail_of_kind(zero if anchor is None else led(paths, {anchor: 0}))[PASS, :, 0]
    return tail


def _alone(problem: Problem, row: tuple[int, ...], size: int) -> Paths:
    """Paths of one micro-batch of a size, in a direction."""
    placement = Placement(problem.ranks, (row,))
    return Paths(replace(problem, placement=placement, samples=size, sizes=(size,)).instance((size,)))


def _least_work(problem: Problem, each: list[list[Paths]]) -> tuple[Array, Array]:
    """Least total of F and passing the gradient on, and of F and whole backwards, of each rank; shapes (p,)."""
    prices = []
    for of_size in each:
        options = []
        for row, paths in zip(problem.placement.stages, of_size, strict=True):
            ticks, table = paths.ticks[:, :, 0], np.zeros((2, problem.ranks), dtype=np.int64)
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
