"""A lower bound of the span: how the first starts and last ends of the ranks hang together."""

from __future__ import annotations

import numpy as np

from ..core.schedule import Array
from .paths import NEVER, PASS, F, Paths
from .ramps import Rank


def rank_span(rank: Rank) -> int:
    """What the span cannot get below because of one rank.

    Let T be the rank's first start and S the span. The rank's own last end is at most T + S. Let its first op be an F
    of a stage s. A rank q that holds an earlier stage of that micro-batch started no later than T minus the path from
    there to s; so q's last end comes no later than T + S minus that path. Hence S is at least the time from T to any
    end of an op on q, plus that path. On a clock that starts at T this is a makespan with other tails, and every bound
    of the makespan becomes one of the span: heads count from the rank's own first op, tails lead to an end on the rank
    itself or on an earlier one, and have that rank's lead added. A rank with stages in two directions may begin in
    either: the lesser value holds.

    In a schedule on its clock the rank of the first stage starts at 0, if there is one direction. Its end is at most S.
    Tails that lead there, only, go with heads that count from the start of the schedule: they bound the span through
    every rank, without what that rank does after it has passed its gradients on.
    """
    best = max(rank.work, rank.area(), min(_from_first_op(rank, direction) for direction, _, _ in rank.groups))
    anchor = first_rank(rank.paths)
    if anchor is None:
        return best
    paths = rank.paths
    tail = paths.tail_of_kind(led(paths, {anchor: 0}))
    return max(best, rank.until(paths.head_of_kind, tail, rank.first_start, rank.first_backward))


def first_rank(paths: Paths) -> int | None:
    """The rank that starts at 0 whatever the order; None where there are two directions."""
    stages = paths.instance.problem.placement.stages
    return stages[0][0] if len(stages) == 1 or not (paths.direction > 0).any() else None


def _from_first_op(rank: Rank, direction: int) -> int:
    """The bound on the clock of the rank's first op, an F of a direction."""
    paths = rank.paths
    row = paths.instance.problem.placement.stages[direction]
    first = row.index(rank.rank)
    kinds = np.flatnonzero(paths.direction == direction)
    head = paths.head_of_kind[F][:, kinds]
    leads = {}
    for stage in range(first, -1, -1):
        leads[row[stage]] = int((head[first] - head[stage]).min())
    tail = paths.tail_of_kind(led(paths, leads))
    own = np.zeros_like(paths.ticks_of_kind)
    backward = []
    for _, stages, group in rank.groups:
        own[:, :, group] = np.maximum(rank.after(int(stages[0])), 0)[:, :, group]
        backward.append(int(own[PASS, stages[-1], group].min()))
    return rank.until(own, tail, 0, min(backward))


def led(paths: Paths, leads: dict[int, int]) -> Array:
    """A rank's lead at each of its nodes, shape (3, S, K); `NEVER` at those of other ranks."""
    base = np.full_like(paths.ticks_of_kind, NEVER)
    owner = paths.instance.rank[:, paths.one_of]
    for rank, lead in leads.items():
        base[:, owner == rank] = lead
    return base
