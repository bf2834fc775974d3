"""Where searches begin: families of placements, shares of the layers for each stage, and policies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from ...core.placement import Placement, explicit, place
from ...core.schedule import Array
from ...heuristics.greedy_kernel import DEEP, FUSE, KEEP, PRIORITY, RULES, WAIT
from ...heuristics.policy import NEVER, SIXTEENTHS
from ..partition import balanced
from ..plan import Plan
from ..stage_table import StageTable
from ..workload import Workload
from .climber import Start
from .point import Point, point

FAMILIES = (("v", 2), ("linear", 1), ("loop", 2), ("loop", 3), ("loop", 4), ("wave", 4))
"""Families of placements, with stages for each rank."""

FIRST_SHARES = (0.25, 0.35, 0.5, 0.65)
"""Of a rank's layers under V, the share in the earlier of its two stages. A small one shortens the way to the last
rank; an even one suits ranks that hold few layers."""


def shares(workload: Workload, placement: Placement, division: tuple[int, ...]) -> Array:
    """Boundaries of a split whose stages have equal parts of their rank's part of all work, shape (S + 1,)."""
    prices = workload.prices(max(division))
    work = prices.forward + np.minimum(prices.backward, prices.backward_input + prices.backward_weight)
    weight = np.array([workload.cluster.speed[rank] for rank in placement.stages[0]])
    goals = np.cumsum(weight)[:-1] / weight.sum() * work.sum()
    return spread(np.searchsorted(np.cumsum(work) - work / 2, goals).tolist(), workload.layers)


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


def starts(
    workload: Workload, stages: StageTable, families: Sequence[tuple[str, int]] = FAMILIES, period: float | None = None
) -> list[Start]:
    """Splits of every family that there are layers for, no two alike, for one division of the batch.

    `period` is the time from one micro-batch to the next, as in `partition.balanced`.
    """
    found: dict[tuple[bytes, bytes], Start] = {}
    for (family, per_rank), order in product(families, orders(workload)):
        if workload.ranks * per_rank > workload.layers or (workload.ranks == 1 and per_rank > 1):
            continue
        named = place(family, workload.ranks, per_rank)
        placement = explicit(workload.ranks, [order[rank] for rank in named.stages[0]])
        row = np.array(placement.stages[0], dtype=np.int64)
        policy = policies(placement, len(stages.division))[0]
        name = family if per_rank < 3 else f"{family} {per_rank}"

        def add(
            bounds: Array | None,
            level: bool = True,
            name: str = name,
            row: Array = row,
            policy: Point = policy,
        ) -> None:
            if bounds is not None:
                start = Start(name, stages.division, policy._replace(row=row, bounds=bounds), level)
                found.setdefault((row.tobytes(), bounds.tobytes()), start)

        def even(share: float | None, period: float | None = None, placement: Placement = placement) -> Array | None:
            split = balanced(workload, placement, stages.division, first_share=share, period=period, table=stages)
            return None if split is None else np.array([0, *(part.stop for part in split)], dtype=np.int64)

        for share in (None, *FIRST_SHARES) if family == "v" and order == orders(workload)[0] else (None,):
            add(even(share))
        if period is not None:
            add(even(None, period))
        add(shares(workload, placement, stages.division), level=False)
    return list(found.values())


def starts_of(plans: Sequence[Plan], division: tuple[int, ...]) -> list[Start]:
    """The splits and placements of plans that divide the batch so."""
    found = []
    for plan in plans:
        if plan.division == division:
            policy = policies(plan.placement, len(division))[0]
            bounds = np.array([0, *(part.stop for part in plan.split)], dtype=np.int64)
            found.append(Start(plan.method, division, policy._replace(bounds=bounds), True))
    return found


def orders(workload: Workload) -> list[tuple[int, ...]]:
    """Orders of the ranks along the pipeline to begin with: as they are, and some by their speeds."""
    ranks = tuple(range(workload.ranks))
    if len(set(workload.cluster.speed)) == 1:
        return [ranks]
    slow = sorted(ranks, key=lambda rank: workload.cluster.speed[rank])
    found = [ranks, tuple(slow), tuple(reversed(slow)), (*slow[::2], *reversed(slow[1::2]))]
    found.append((*reversed(slow[::2]), *slow[1::2]))
    return list(dict.fromkeys(found))
