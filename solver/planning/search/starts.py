"""Where searches begin: families of placements, shares of the layers for each stage, and policies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from ...core.placement import Placement, place
from ...core.schedule import Array
from ...heuristics.greedy_kernel import DEEP, FUSE, KEEP, PRIORITY, RULES, WAIT
from ...heuristics.policy import NEVER, SIXTEENTHS
from ..workload import Workload
from .climber import Start
from .point import Point, point

FAMILIES = (("v", 2), ("linear", 1), ("loop", 2), ("loop", 3), ("loop", 4), ("wave", 4))
"""Families of placements, with stages for each rank."""

FIRST_SHARES = (0.5, 0.25, 0.35, 0.65)
"""Of a rank's layers under V, the share in the earlier of its two stages. A small one shortens the way to the last
rank; an even one suits ranks that hold few layers."""


def shares(workload: Workload, placement: Placement, division: tuple[int, ...], first: float = 0.5) -> Array:
    """Boundaries of a split whose stages have their rank's part of all work, shape (S + 1,).

    `first` is the share of the earlier half of the stages in the work of their rank.
    """
    prices = workload.prices(max(division))
    work = prices.forward + np.minimum(prices.backward, prices.backward_input + prices.backward_weight)
    row = placement.stages[0]
    half = len(row) // 2
    weight = np.array([workload.cluster.speed[rank] for rank in row])
    if len(row) > placement.ranks:
        weight = weight * np.where(np.arange(len(row)) < half, first, 1 - first)
    goals = np.cumsum(weight)[:-1] / weight.sum() * work.sum()
    inner = np.searchsorted(np.cumsum(work) - work / 2, goals)
    return spread(inner.tolist(), workload.layers)


def spread(inner: Sequence[int], layers: int) -> Array:
    """Boundaries near those given, such that no stage is empty.

    Examples
    --------
    >>> spread([0, 0, 4], 5).tolist()
    [0, 1, 2, 4, 5]
    """
    bounds = [0, *inner, layers]
    for k in range(1, len(bounds) - 1):
        bounds[k] = max(bounds[k], bounds[k - 1] + 1)
    for k in range(len(bounds) - 2, 0, -1):
        bounds[k] = min(bounds[k], bounds[k + 1] - 1)
    return np.array(bounds, dtype=np.int64)


def policies(placement: Placement, count: int) -> list[Point]:
    """Policies to begin with, likely winners first; split and placement in them are to be overwritten."""
    stages, ranks = placement.stage_count, placement.ranks
    several = stages > ranks
    row, bounds = np.array(placement.stages[0], dtype=np.int64), np.arange(stages + 1)
    to_come = stages - np.arange(stages)
    found: dict[bytes, Point] = {}

    def add(priority: int, deep: int, keep: int, wait: int, reach: int, pace: int = 0, burst: int = 0) -> None:
        ahead = np.clip(-(-to_come * reach // SIXTEENTHS), 1, count)
        rules = np.zeros((ranks, RULES), dtype=np.int64)
        rules[:, [PRIORITY, DEEP, KEEP, FUSE, WAIT]] = priority, deep, keep, 0, wait
        each = point(row, bounds, ahead, rules, pace, burst)
        found.setdefault(b"".join(part.tobytes() for part in each), each)

    reaches = (14, 16, 12, 7, 20, 10, 28, 5, 1600) if several else (1600, 16, 32, 24, 12)
    for wait, deep, priority, reach in product((8, 0, 16), (1, 0) if several else (1,), (0, 2, 1), reaches):
        add(priority, deep, NEVER, wait, reach)
    if several:
        for (pace, burst), priority, reach in product(((13, 2), (14, 4), (15, 4), (18, 2)), (0, 2), (14, 20, 1600)):
            add(priority, 1, NEVER, 8, reach, pace, burst)
    for keep, reach in product((0, 1, 2), reaches[:5]):
        add(0, 1, keep, 0, reach)
    return list(found.values())


def starts(workload: Workload, families: Sequence[tuple[str, int]] = FAMILIES) -> list[Start]:
    """Every family that there are layers for, with each division of the batch; most promising first."""
    found = []
    for (family, per_rank), division in product(families, workload.divisions):
        if workload.ranks * per_rank > workload.layers or (workload.ranks == 1 and per_rank > 1):
            continue
        placement = place(family, workload.ranks, per_rank)
        for first in FIRST_SHARES if per_rank > 1 else (0.5,):
            bounds = shares(workload, placement, division, first)
            policy = policies(placement, len(division))[0]
            row = np.array(placement.stages[0], dtype=np.int64)
            name = f"{family} {per_rank} x{len(division)} first {first}"
            found.append(Start(name, division, policy._replace(row=row, bounds=bounds)))
    return found
