"""Micro-batch sizes as variables: how many micro-batches there are of each size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from ortools.sat.python import cp_model

from ..bounds.paths import PASS, F, paths
from ..core.division import fewest
from ..core.instance import Instance
from ..core.problem import Problem
from .prices import kinds
from .variables import Variables
from .work import chosen_backward

LARGEST = 200
"""Most backwards, of all micro-batches that may be there, for which sizes are chosen in the model.

It grows with the square of their number, and little with that of units: 200 of them on four ranks are 180 000
constraints, and 470 000 with eight units each, which takes 2 and 4 s."""


def candidates(problem: Problem) -> Instance:
    """An instance with as many micro-batches of each size, and in each direction, as a division of the batch may have.

    Which of them there are is to be chosen. Micro-batches of one size and direction are alike, so that their numbers
    say it all. In one direction the number of a micro-batch is a name only, so no order of sizes is left out; where
    there are two, `division` keeps to how micro-batches are shared out among them.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 1}, "batch": {"samples": 7, "microbatch_sizes": [2, 3]},
    ...     "costs": {"forward": 0, "backward_input": 0, "backward_weight": 0}})
    >>> candidates(problem).sizes
    (2, 2, 3)
    """
    sizes = tuple(_each_size(problem)) * problem.placement.directions
    return replace(problem, samples=sum(sizes)).instance(sizes)


def _each_size(problem: Problem) -> Iterator[int]:
    for size in problem.sizes:
        for count in range(problem.samples // size, 0, -1):
            rest = problem.samples - count * size
            if rest == 0 or fewest(rest, problem.sizes) is not None:
                yield from (size,) * count
                break


def division(v: Variables) -> None:
    """The micro-batches that are there make up the batch.

    Of alike ones, the first are there. With two directions, the first takes as many as the second, or one more. Each
    rank has the work of those that are there to do.
    """
    prices = v.prices
    if not prices.samples:
        return
    sizes, model = prices.instance.sizes, v.model
    present = [literal for literal in v.present if literal is not None]
    model.add(sum(size * literal for size, literal in zip(sizes, present, strict=True)) == prices.samples)
    for members in v.classes():
        for i, j in pairwise(members):
            model.add_implication(present[j], present[i])
    if prices.instance.problem.placement.directions > 1:
        ways = [direction for direction, _ in kinds(prices.instance)]
        more = sum(literal * (1 - 2 * way) for literal, way in zip(present, ways, strict=True))
        model.add_linear_constraint(more, 0, 1)


def work_of_those_there(v: Variables) -> None:
    """From a rank's first start on there is time for all of its work, and for what follows its last backward."""
    prices = v.prices
    if not prices.samples or not prices.exact:
        return
    instance, ways = prices.instance, paths(prices.instance)
    for rank in range(instance.ranks):
        here = instance.rank == rank
        if not here.any():
            continue
        head, tail = int(ways.head[F][here].min()), int(ways.tail[PASS][here].min())
        forward: list[cp_model.LinearExpr | int] = []
        passed: list[cp_model.LinearExpr | int] = []
        whole: list[cp_model.LinearExpr | int] = []
        for s, j in np.argwhere(here).tolist():
            (there,) = v.here(j)
            forward.append(int(prices.forward[s, j]) * there)
            passed.append(int(ways.ticks[PASS, s, j]) // prices.step * there)
            whole.append(chosen_backward(v, s, j))
        v.model.add(v.objective >= head // prices.step + sum(forward) + sum(whole))
        v.model.add(v.objective >= (head + tail) // prices.step + sum(forward) + sum(passed))
