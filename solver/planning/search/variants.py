"""Points whose placement is next to that of another, and mostly in no family: stages cut, put together, exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from .point import Point


def variants(point: Point) -> Iterator[Point]:
    """Every way to put two neighbouring stages together, to cut a stage in two and give a part to another rank, and to
    let two stages change ranks; each rank keeps a stage. Policies stay as they are."""
    row, stages, ranks = point.row, len(point.row), len(point.rules)
    held = np.bincount(row, minlength=ranks)
    for s in range(stages - 1):
        for gone in (s, s + 1):
            if held[row[gone]] > 1:
                yield _with(point, np.delete(row, gone), np.delete(point.bounds, s + 1), np.delete(point.ahead, gone))
    for s in range(stages):
        low, high = point.bounds[s : s + 2].tolist()
        if high - low > 1:
            bounds, ahead = np.insert(point.bounds, s + 1, (low + high) // 2), np.insert(point.ahead, s, point.ahead[s])
            for rank in range(ranks):
                if rank != row[s]:
                    yield _with(point, np.insert(row, s, rank), bounds, ahead)
                    yield _with(point, np.insert(row, s + 1, rank), bounds, ahead)
    for s, t in combinations(range(stages), 2):
        if row[s] != row[t]:
            other = row.copy()
            other[s], other[t] = row[t], row[s]
            yield _with(point, other, point.bounds, point.ahead)


def _with(point: Point, row: object, bounds: object, ahead: object) -> Point:
    row, bounds, ahead = (np.array(each, dtype=np.int64) for each in (row, bounds, ahead))
    return Point(row, bounds, ahead, point.rules.copy(), point.pace.copy())
