"""A bound that holds for every legal choice of micro-batch sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..core.instance import UNLIMITED
from ..core.placement import Placement
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array
from .divided import Demands, least
from .division_kernel import Floats
from .memory_time import Ramp, emptying, filling_up
from .paths import NEVER, PASS, F, Paths
from .ramps import Rank
from .span import first_rank, led

CASES = 12
"""Groups of sizes at most, by the largest one that is used."""


def any_sizes(problem: Problem, objective: Objective) -> int:
    """Chains, head + work + tail, and memory-time, for whatever sizes the schedule uses.

    Some size is the largest that is used. For each size that it may be (or each group of sizes, if there are many) the
    least is found that a division of the batch can reach in all of these demands at once, see `divided.least`:

    - *Head + work + tail.* Durations and messages grow with the size, so no micro-batch of size z or more comes to a
      rank sooner than one of size z by itself. Then the rank works on all of these. What follows once a gradient is
      passed on need not grow, where larger micro-batches are fused: the least tail of any of these sizes holds.
    - *Memory-time.* A micro-batch of each size holds bytes for a time at least, of which the rank has so many in all,
      less what it cannot use while it fills its memory up and empties it.

    With two directions, each price is the cheaper direction's. The span is at least any rank's work or memory-time.
    With one direction the rank of the first stage starts at 0, so that what leads to its end counts as for the
    makespan.
    """
    return _Any(problem, objective).bound()


@dataclass(frozen=True)
class _Any:
    problem: Problem
    objective: Objective

    @cached_property
    def sizes(self) -> Array:
        return np.array([size for size in self.problem.sizes if size <= self.problem.samples], dtype=np.int64)

    @cached_property
    def alone(self) -> list[list[Paths]]:
        """Paths of one micro-batch, by direction and size."""
        placements = [Placement(self.problem.ranks, (row,)) for row in self.problem.placement.stages]
        return [
            [
                Paths(replace(self.problem, placement=placement, samples=size, sizes=(size,)).instance((size,)))
                for size in self.sizes.tolist()
            ]
            for placement in placements
        ]

    @cached_property
    def anchor(self) -> int | None:
        """The rank whose end is at most the span, if there is one."""
        return first_rank(self.alone[0][0]) if len(self.alone) == 1 else None

    @cached_property
    def tails(self) -> list[list[Array]]:
        """Least time from the end of I of every stage to the end of everything, or to that of the first rank; by
        direction and size, shape (S,); `NEVER` where nothing is known to follow."""
        if self.objective == "span" and self.anchor is None:
            return [[np.full(self.problem.stages, NEVER)] * len(self.sizes)] * len(self.alone)
        found = []
        for row in self.alone:
            bases = (
                np.zeros_like(each.ticks_of_kind) if self.objective == "makespan" else led(each, {self.anchor or 0: 0})
                for each in row
            )
            found.append([each.tail_of_kind(base)[PASS, :, 0] for each, base in zip(row, bases, strict=True)])
        return found

    def bound(self) -> int:
        """The least over all cases."""
        starts = np.unique(np.linspace(0, len(self.sizes), min(CASES, len(self.sizes)) + 1).astype(int))
        ranks = [_OneRank(self, rank) for rank in range(self.problem.ranks)]
        best = np.inf
        # Divisions into large sizes promise the least.
        for low, high in reversed(list(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))):
            parts = [demand for rank in ranks for demand in rank.demands(low, high)]
            demands = Demands(np.array([base for base, _ in parts]), np.array([prices for _, prices in parts]))
            sizes = self.sizes[:high]
            value = least(demands.best(sizes, self.problem.samples), sizes, self.problem.samples, low)
            best = min(best, max(value, self._chain(low)))
        # A little less, for the rounding of floating point: a lower bound must not be above.
        return int(np.ceil(best * (1 - 1e-11)))

    def _chain(self, low: int) -> int:
        """A micro-batch by itself: one of size number `low` or more, in either direction, and the least in each
        direction that is used. Of the span, what ends where it began."""
        if self.objective == "span" and self.anchor is None:
            return 0
        first = 1 if self.objective == "span" else None
        chains = [[int((row[z].head[PASS] + row[z].whole)[:first].max()) for z in (0, low)] for row in self.alone]
        # The batch may be a single micro-batch; then there is only the first direction.
        used = chains if self.problem.samples > self.sizes[-1] else chains[:1]
        return max(min(large for _, large in chains), max(small for small, _ in used))


@dataclass(frozen=True)
class _OneRank:
    """What one rank demands of the sizes."""

    of: _Any
    rank: int

    @cached_property
    def stages(self) -> list[list[int]]:
        """Its stages, by direction."""
        rows = self.of.problem.placement.stages
        return [[stage for stage, owner in enumerate(row) if owner == self.rank] for row in rows]

    @cached_property
    def first(self) -> Array:
        """Earliest start of an F, for each size, in the direction in which that is sooner; shape (Z,)."""
        heads = [
            [int(each.head[F, stages[0], 0]) for each in row]
            for row, stages in zip(self.of.alone, self.stages, strict=True)
            if stages
        ]
        first: Array = np.min(np.array(heads, dtype=np.int64), axis=0)
        return first

    @cached_property
    def last(self) -> Array:
        """Least tail of its backwards, for each size, shape (Z,)."""
        tails = [
            [int(each[stages].min()) for each in row]
            for row, stages in zip(self.of.tails, self.stages, strict=True)
            if stages
        ]
        last: Array = np.min(np.array(tails, dtype=np.int64), axis=0)
        return last

    @cached_property
    def work(self) -> Floats:
        """Least ticks of F and passing the gradient on, and of F and whole backwards, of each size; shape (2, Z)."""
        found = []
        for row, stages in zip(self.of.alone, self.stages, strict=True):
            forward = np.array([each.ticks[F, stages, 0].sum() for each in row])
            back = np.array([[each.ticks[PASS, stages, 0].sum(), each.whole[stages, 0].sum()] for each in row])
            found.append(forward + back.T)
        work: Floats = np.min(found, axis=0).astype(np.float64)
        return work

    @cached_property
    def room(self) -> int:
        problem = self.of.problem
        limit = problem.memory.limit[self.rank]
        return UNLIMITED if limit is None else limit - problem.static_bytes(self.rank)

    @cached_property
    def held(self) -> Floats:
        """Bytes x ticks of each size, over the rank's bytes; shape (Z,)."""
        rows = [[Rank(each, self.rank).memory_time / self.room for each in row] for row in self.of.alone]
        held: Floats = np.min(np.array(rows, dtype=np.float64), axis=0)
        return held

    @cached_property
    def ramps(self) -> list[tuple[Ramp, Ramp]]:
        """How fast memory is filled and emptied with each size, either direction's."""
        found = []
        for index in range(len(self.of.sizes)):
            pairs = [
                (row[index], np.array(stages)) for row, stages in zip(self.of.alone, self.stages, strict=True) if stages
            ]
            ways = [
                [make(each, stages, np.zeros_like(stages)) for each, stages in pairs] for make in (filling_up, emptying)
            ]
            found.append((_steeper(ways[0]), _steeper(ways[1])))
        return found

    def demands(self, low: int, high: int) -> list[tuple[float, Floats]]:
        """Constant and prices of each demand, if the largest size used is one of low..high-1."""
        makespan, found = self.of.objective == "makespan", []
        sizes = np.arange(high)
        for z in range(low + 1):
            counted = self.work[:, :high] * (sizes >= z)
            tail = int(self.last[z:high].min())
            if tail > NEVER // 2:
                found.append((float(int(self.first[z]) + tail), counted[0]))
            if makespan:
                found.append((float(self.first[z]), counted[1]))
        begin = float(self.first[0]) if makespan else 0.0
        if not makespan:
            found.append((0.0, self.work[1, :high]))
        if 0 < self.room < UNLIMITED:
            found.append((begin + self._ramps(high), self.held[:high]))
        return found

    def _ramps(self, high: int) -> float:
        """Ticks of all memory that are lost to filling up and emptying; none where they might overlap."""
        up, down = (_steeper([pair[side] for pair in self.ramps[:high]]) for side in range(2))
        samples = self.of.problem.samples
        work = samples * float((self.work[1, :high] / self.of.sizes[:high]).min())
        if work < up.length(self.room) + down.length(self.room):
            return 0.0
        return (up.deficit(self.room) + down.deficit(self.room)) / self.room


def _steeper(ramps: list[Ramp]) -> Ramp:
    return Ramp(max(ramp.at_once for ramp in ramps), max(ramp.rate for ramp in ramps))
