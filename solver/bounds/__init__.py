"""Lower bounds of the objective, and proofs that there is no schedule."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..core.instance import Instance
from ..core.problem import Problem
from ..core.result import Objective

# Not by the names of their modules, which an import of those would put in their place.
from .any_sizes import any_sizes as bound_of_any_sizes
from .by_order import by_order as bound_by_order
from .need import infeasible, needed
from .paths import PASS
from .paths import paths as paths_of
from .ramps import Rank
from .span import first_rank, led, rank_span

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
        return bound_of_any_sizes(problem, objective)
    return instance_bound(problem.instance(problem.default_sizes() if sizes is None else sizes), objective)


@lru_cache(maxsize=64)  # every method of a comparison asks
def instance_bound(instance: Instance, objective: Objective = "makespan") -> int:
    """The best of the bounds for given sizes: chain, head + work + tail, warm-up and cool-down, memory-time, and
    earliest starts by order."""
    ways = paths_of(instance)
    ranks = [Rank(ways, rank) for rank in range(instance.ranks)]
    if objective == "span":
        best, anchor = max(rank_span(rank) for rank in ranks), first_rank(ways)
        if anchor is None:
            return best
        tail = ways.tail_of_kind(led(ways, {anchor: 0}))
    else:
        best = int((ways.head_of_kind[PASS] + ways.whole_of_kind).max())
        best = max(best, *(max(rank.makespan(), rank.first_start + rank.area()) for rank in ranks))
        tail = ways.tail_of_kind(np.zeros_like(ways.ticks_of_kind))
    return max(best, bound_by_order(ranks, tail))
