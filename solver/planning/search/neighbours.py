"""Splits next to one whose order is good: under the same order, with a layer elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from ...evaluate.limits import over_limit
from ...evaluate.simulate import simulate
from ...evaluate.timeline import Timeline
from ..splits.stage_table import StageTable
from ..workload import Split, Workload, split_of

TIMED = 60
"""Splits that are put on the clock at most, those with the least largest load."""


def neighbours(workload: Workload, split: Split, timeline: Timeline) -> Iterator[tuple[Split, Timeline]]:
    """Splits of the same placement with one layer moved from a stage to another, by way of those between them, each
    within every rank's memory.

    Parameters
    ----------
    split, timeline
        What to change, and its schedule, whose order is kept.
    """
    schedule, stages = timeline.schedule, StageTable(workload, timeline.schedule.sizes)
    placement, row = schedule.placement, schedule.placement.stages[0]
    bounds = [0, *(part.stop for part in split)]
    ways = []
    for source, target in permutations(range(len(split)), 2):
        if len(split[source]) < 2:
            continue
        low, high = min(source, target), max(source, target)
        step = -1 if source < target else 1
        moved = [bound + step * (low < k <= high) for k, bound in enumerate(bounds)]
        load = int(stages.rank_work(moved, row).max())
        if load < timeline.makespan:
            ways.append((load, moved))
    for _, moved in sorted(ways)[:TIMED]:
        other = split_of(moved)
        timed = simulate(workload.problem(other, placement, schedule.sizes), schedule)
        if not over_limit(timed):
            yield other, timed
