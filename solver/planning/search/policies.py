"""Policies to begin with; see `policy.Policy`."""

from __future__ import annotations

from itertools import product

import numpy as np

from ...core.placement import Placement
from ...greedy.kernel import DEEP, FUSE, KEEP, PRIORITY, RULES, WAIT
from ...greedy.policy import NEVER, SIXTEENTHS
from .point import Point, point


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
