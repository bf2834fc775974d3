"""Which divisions of the batch are good: near-uniform ones and ramps, by the greedy under a few policies."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..core.division import Sizes
from ..core.granularity import Granularity
from ..core.instance import Instance
from ..greedy.policy import Policy, grid
from .ramp import Ramp, neighbours, ramps
from .trial import Trial
from .walk import Found

POLICIES = 6
"""Policies of the grid that every division is tried with: the best ones of a near-uniform division."""

COUNTS = 64
"""Numbers of micro-batches whose near-uniform divisions are tried at first, spread over all that are possible."""

CLIMBS = 3
"""Shapes whose neighbours are tried, and theirs, as long as that gains."""

LEARN_SHARE = 0.15
"""Share of the time until which, or of the runs, policies are tried at the first division; then as much again."""

REFINED = 8
"""Divisions that are tried with more policies."""


class Screen:
    """Divisions of the batch and what the greedy makes of them.

    Parameters
    ----------
    trial
        The greedy.
    free
        Whether divisions other than near-uniform ones are allowed, and whether policies may fuse.
    runs, deadline
        Runs of the greedy, and value of `time.monotonic()`, after which no more is tried, unless nothing is found yet.
    """

    def __init__(self, trial: Trial, free: Granularity, runs: int | None, deadline: float | None) -> None:
        self._trial, self._free, self._problem = trial, free, trial.problem
        self._runs, self._deadline, self._began = runs, deadline, time.monotonic()
        self._found: dict[Sizes, Found] = {}
        self._shapes: dict[Ramp, Sizes | None] = {}
        self._policies: tuple[Policy, ...] = ()

    def late(self, share: float = 1.0) -> bool:
        """Whether screening is over, or a share of it."""
        if self._deadline is not None and time.monotonic() >= self._began + share * (self._deadline - self._began):
            return True
        return self._runs is not None and self._trial.runs >= share * self._runs

    def best(self) -> list[Found]:
        """The best of each division, best first."""
        return sorted(self._found.values(), key=lambda each: each.value)

    def run(self, known: tuple[Sizes, ...]) -> None:
        """Try divisions, known ones first."""
        problem, counts = self._problem, self._problem.uniform_counts()
        step = max(1, -(-len(counts) // COUNTS))
        even = [problem.uniform_sizes(count) for count in counts[::step]]
        first = [sizes for sizes in known if self._free.sizes or max(sizes) - min(sizes) <= 1]
        plain = [*first, *even] or [problem.fewest_sizes()]
        for sizes in (*first, plain[len(plain) // 2], *plain):
            self._learn(sizes, LEARN_SHARE)
            if self._policies:
                break
        else:
            return  # without fused backwards, none may fit
        for share in (2 * LEARN_SHARE, 3 * LEARN_SHARE):
            for sizes in plain:
                self._try(sizes)
            # The policies of the best one may show others in a better light.
            self._learn(self.best()[0].sizes, share)
        while step > 1 and not self.late():
            step, best = (step + 1) // 2, len(self.best()[0].sizes)
            for index in (i for i, count in enumerate(counts) if i % step == 0 and abs(count - best) <= 2 * step):
                self._try(problem.uniform_sizes(counts[index]))
        if self._free.sizes:
            self._ramps()
        for found in self.best()[:REFINED]:
            self._learn(found.sizes)

    def _ramps(self) -> None:
        """The coarse grid of ramps, then what is near the best of them."""
        problem, likely = self._problem, max(self.best()[0].sizes)
        for shape in ramps(problem.samples, problem.sizes, problem.ranks, likely):
            self._shape(shape)
        for _ in range(CLIMBS):
            fresh = [shape for shape in self._ranked()[:CLIMBS] for shape in neighbours(shape, problem.sizes)]
            for shape in fresh:
                self._shape(shape)

    def _ranked(self) -> list[Ramp]:
        """Shapes tried, best first."""
        tried = [(shape, self._found[sizes].value) for shape, sizes in self._shapes.items() if sizes in self._found]
        return [shape for shape, _ in sorted(tried, key=lambda each: each[1])]

    def _shape(self, shape: Ramp) -> None:
        if shape in self._shapes or self.late():
            return
        sizes = self._shapes[shape] = shape.divide(self._problem.samples, self._problem.sizes)
        if sizes is not None and sizes not in self._found:
            self._try(sizes)

    def _try(self, sizes: Sizes) -> None:
        """A division under the policies that are good so far."""
        if self.late() and self._found:
            return
        for policy in self._policies:
            self._run(sizes, policy)

    def _run(self, sizes: Sizes, policy: Policy) -> int | None:
        known = self._found.get(sizes)
        self._trial.divide(sizes)
        value = self._trial.value(policy)
        if value is not None and (known is None or value < known.value):
            self._found[sizes] = Found(value, sizes, policy)
        return value

    def _learn(self, sizes: Sizes, share: float = 1.0) -> None:
        """Try policies of the grid at one division; the best, of different values, are the ones for all others."""
        if self.late() and self._found:
            return
        values: dict[int, Policy] = {}
        for policy in self._grid(sizes):
            value = self._run(sizes, policy)
            if value is not None:
                values.setdefault(value, policy)
            if self.late(share) and values:
                break
        self._policies = tuple(values[value] for value in sorted(values)[:POLICIES])

    def _grid(self, sizes: Sizes) -> Iterator[Policy]:
        instance = Instance(self._problem, sizes)
        return grid(instance, instance.stages - self._trial.stage, self._free.fused)
