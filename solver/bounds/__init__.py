"""Lower bounds of the objective, and proofs that there is no schedule."""

from __future__ import annotations

import numpy as np

from ..core.instance import Instance
from ..core.problem import Problem
from ..core.result import Objective
from .any_sizes import any_sizes
from .need import infeasible, needed
from .order_heads import OrderHeads, order_heads
from .paths import PASS, Paths, paths
from .ramps import Rank
from .span import rank_span

__all__ = ["infeasible", "instance_bound", "lower_bound", "needed"]


def lower_bound(problem: Problem, objective: Objective = "makespan", sizes: tuple[int, ...] | None = None) -> int:
    """Ticks that no schedule of the problem gets below.

    Parameters
    ----------
    problem
        The problem. Where no schedule respects its limits the bound means nothing; ask `infeasible`.
    objective
        What is minimised.
    sizes
        Samples of each micro-batch; None: the bound holds for every legal choice.

    Raises
    ------
    InputError
        When `sizes` are none of the problem's.

    Examples
    --------
    >>> problem = Problem.from_dict({
    ...     "pipeline": {"ranks": 2},
    ...     "batch": {"samples": 2},
    ...     "costs": {"forward": 2, "backward_input": 2, "backward_weight": 1},
    ... })
    >>> lower_bound(problem)
    13
    """
    if sizes is None and len(problem.sizes) > 1:
        return any_sizes(problem, objective)
    return instance_bound(problem.instance(problem.default_sizes() if sizes is None else sizes), objective)


def instance_bound(instance: Instance, objective: Objective = "makespan") -> int:
    """The best of the bounds for given sizes: chain, head + work + tail, warm-up and cool-down, memory-time, and
    earliest starts by order where those apply."""
    ways = paths(instance)
    ranks = [Rank(ways, rank) for rank in range(instance.ranks)]
    if objective == "span":
        return max(rank_span(rank) for rank in ranks)
    chain = int((ways.head_of_kind[PASS] + ways.whole_of_kind).max())
    best = max(chain, *(rank.makespan() for rank in ranks))
    best = max(best, *(rank.first_start + rank.area() for rank in ranks))
    heads = order_heads(ways)
    return best if heads is None else max(best, *(_by_order(ways, rank, heads) for rank in ranks))


def _by_order(ways: Paths, rank: Rank, heads: OrderHeads) -> int:
    """Earliest start by order + work that is left + cool-down, for the one stage of a rank.

    When F number j starts, m - j F's and, as no more than j backwards are done, m - j whole backwards are left. When
    backward number j starts, m - j of them are left, and m - j - k F's, as no more than j + k can be done. The idle
    cool-down after the last F comes on top if that F is still to come, that after the last backward always.
    """
    stage, count = int(rank.groups[0][1][0]), ways.instance.microbatches
    forward, whole = int(ways.ticks[0, stage, 0]), int(ways.whole[stage, 0])
    tail = ways.tail_of_kind(np.zeros_like(ways.ticks_of_kind))
    last = max(0, rank.way_out_of_last(tail) - rank.last)
    both = max(last, rank.way_out(tail) - rank.late)
    best = 0
    for j in range(count):
        left, ahead = count - j, max(0, count - j - int(heads.window[stage]))
        best = max(best, int(heads.forward[stage, j]) + left * (forward + whole) + both)
        cool = both if ahead else last
        best = max(best, int(heads.backward[stage, j]) + left * whole + ahead * forward + cool)
    return max(best, int(heads.backward[stage, -1] + ways.ticks[PASS, stage, 0] + ways.tail[PASS, stage, 0]))
