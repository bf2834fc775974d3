"""Where searches begin: families of placements, and shares of the layers for each stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from ...core.placement import Placement, explicit, place
from ...core.schedule import Array
from ..splits.partition import balanced
from ..splits.stage_table import StageTable
from ..workload import Split, Workload
from .climber import COLD, Start
from .policies import policies

FAMILIES = (("v", 2), ("linear", 1), ("loop", 2), ("loop", 3), ("loop", 4), ("wave", 4))
"""Families of placements, with stages for each rank."""

WARM = 0.03
"""Temperature at which a split is balanced that is not."""

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


def starts(
    workload: Workload, stages: StageTable, families: Sequence[tuple[str, int]] = FAMILIES, period: float | None = None
) -> Iterator[Start]:
    """Splits of every family that there are layers for, no two alike, for one division of the batch.

    `period` is the time from one micro-batch to the next, as in `partition.balanced`.
    """
    seen = set()
    for (family, per_rank), order in product(families, orders(workload)):
        if workload.ranks * per_rank > workload.layers or (workload.ranks == 1 and per_rank > 1):
            continue
        named = place(family, workload.ranks, per_rank)
        placement = explicit(workload.ranks, [order[rank] for rank in named.stages[0]])
        name = family if per_rank < 3 else f"{family} {per_rank}"
        for bounds, heat in _splits(workload, stages, placement, period):
            key = (placement.stages, bounds.tobytes(), heat)
            if key not in seen:
                seen.add(key)
                yield start_at(name, placement, stages.division, bounds, heat)


def _splits(
    workload: Workload, stages: StageTable, placement: Placement, period: float | None
) -> Iterator[tuple[Array, float]]:
    """Boundaries, and the temperature at which they are balanced further."""
    ways: list[tuple[float | None, float | None]] = [(None, None)]
    if placement.name == "v":
        ways += [(share, None) for share in FIRST_SHARES]
    if period is not None:
        ways.append((None, period))
    for share, each in ways:
        split = balanced(workload, placement, stages.division, first_share=share, period=each, table=stages)
        if split is not None:
            yield boundaries(split), 0.0
            if share is each is None:
                yield boundaries(split), COLD
    yield shares(workload, placement, stages.division), WARM


def start_at(name: str, placement: Placement, division: tuple[int, ...], bounds: Array, heat: float) -> Start:
    """A start with the first of the policies."""
    row = np.array(placement.stages[0], dtype=np.int64)
    policy = policies(placement, len(division))[0]
    return Start(name, division, policy._replace(row=row, bounds=bounds), heat)


def boundaries(split: Split) -> Array:
    """First layer of each stage, and last the number of layers, shape (S + 1,)."""
    return np.array([0, *(part.stop for part in split)], dtype=np.int64)


def orders(workload: Workload) -> list[tuple[int, ...]]:
    """Orders of the ranks along the pipeline to begin with: as they are, and some by their speeds."""
    ranks = tuple(range(workload.ranks))
    if len(set(workload.cluster.speed)) == 1:
        return [ranks]
    slow = sorted(ranks, key=lambda rank: workload.cluster.speed[rank])
    found = [ranks, tuple(slow), tuple(reversed(slow)), (*slow[::2], *reversed(slow[1::2]))]
    found.append((*reversed(slow[::2]), *slow[1::2]))
    return list(dict.fromkeys(found))
