"""The variables: starts, order binaries, and the choice to fuse."""

from __future__ import annotations

from typing import Any, TypeAlias

import pulp

from ..core.result import Objective
from .sets import BACKWARD, FORWARD, WEIGHT, Sets

Linear: TypeAlias = Any
"""What may stand in a sum: an integer, a variable, or an expression; PuLP ships no types."""


class Variables:
    """Variables of the model.

    Parameters
    ----------
    sets
        The ops, and what is known of them.
    objective
        What is minimised.
    bound, latest
        Known lower bound of the objective, and a moment at which some best schedule has ended, in steps.

    Attributes
    ----------
    model
        The linear program.
    start
        Start of each op, in steps.
    fused
        Binary of each backward that may be fused, by stage and micro-batch.
    order
        Binary of each pair of `sets.pairs`: whether the first op comes before the second.
    value
        The objective.
    moment
        For each op that may take no time, its place among such ops.
    first
        For each rank, a moment no later than its first start; empty where the makespan is minimised.
    tight
        Binary of each (op, what it starts right after); see `constraints.forwards_at_once`.
    """

    def __init__(self, sets: Sets, objective: Objective, bound: int, latest: int) -> None:
        self.sets, self.objective, self.latest = sets, objective, latest
        self.model = pulp.LpProblem("schedule", pulp.LpMinimize)
        self.value = self.model.add_variable("value", min(bound, latest), latest, pulp.LpInteger)
        self.model += self.value
        # A window that is empty says that nothing is as good as `latest`; the constraints say so too.
        variable = self.model.add_variable
        self.start = [
            variable(f"start{self.name(node)}", int(sets.head[node]), max(self.last(node), int(sets.head[node])))
            for node in range(sets.count)
        ]
        self.fused = {
            (int(s), int(j)): variable(f"fused{s}_{j}", cat=pulp.LpBinary)
            for s, j in zip(*sets.prices.fusible.nonzero(), strict=True)
        }
        self.order = {(a, b): variable(f"order{self.name(a)}{self.name(b)}", cat=pulp.LpBinary) for a, b in sets.pairs}
        instant = [int(node) for node in sets.instant.nonzero()[0]]
        self.moment = {node: variable(f"moment{self.name(node)}", 0, len(instant) - 1) for node in instant}
        ranks = range(sets.prices.instance.ranks) if objective == "span" else ()
        self.first = [variable(f"first{rank}", 0, latest) for rank in ranks]
        self.tight: dict[tuple[int, int], pulp.LpVariable] = {}

    def name(self, node: int) -> str:
        """Name of an op in the program."""
        row, stage, microbatch = self.sets.parts(node)
        return f"_{stage}{'FIW'[row]}{microbatch}"

    def last(self, node: int) -> int:
        """Latest start of an op in a schedule that ends at `latest`, in steps."""
        return self.latest - int(self.sets.tail[node] + self.sets.least[node])

    def ticks(self, node: int) -> Linear:
        """Duration of an op, in steps."""
        split, fused = int(self.sets.split[node]), int(self.sets.fused[node])
        row, stage, microbatch = self.sets.parts(node)
        if row == FORWARD or split == fused:
            return split
        return split + (fused - split) * self.fused[stage, microbatch]

    def end(self, node: int) -> Linear:
        """End of an op, in steps."""
        return self.start[node] + self.ticks(node)

    def before(self, one: int, other: int) -> Linear:
        """1 where an op comes before another of its rank, else 0."""
        known = self.sets.known
        if known[one, other]:
            return 1
        if known[other, one]:
            return 0
        return self.order[one, other] if one < other else 1 - self.order[other, one]

    def slack(self, one: int, other: int) -> int:
        """The least constant that frees an op from starting after another's end, in steps."""
        sets = self.sets
        longest = max(int(sets.split[one]), int(sets.fused[one]))
        return max(0, self.last(one) + longest - int(sets.head[other]))

    def triples(self) -> list[tuple[int, int, int]]:
        """F, backward and W of each stage and micro-batch."""
        third = self.sets.count // 3
        return [(FORWARD * third + n, BACKWARD * third + n, WEIGHT * third + n) for n in range(third)]
