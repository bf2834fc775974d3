"""Divisions of the batch into micro-batches that are worth a try."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from ..bounds import infeasible
from ..core.division import divisions
from ..core.errors import InputError
from ..core.granularity import ALL, Granularity
from ..core.problem import Problem

MOST_COUNTS = 16
"""Numbers of micro-batches whose near-uniform divisions are tried at first, spread over all that are possible."""

MOST_DIVISIONS = 200
"""Divisions of any kind that are looked at."""

LARGEST_DIVIDED = 64
"""Micro-batches beyond which only near-uniform divisions and that into fewest are looked at."""

LARGEST_SUMS = 1 << 20
"""Samples x sizes beyond which that holds, too: which of them can be reached is known for each number of sizes."""

Sizes = tuple[int, ...]


class Choices:
    """Divisions to try: near-uniform ones, the one into fewest micro-batches, and, for small batches, uneven ones.

    Micro-batches are in ascending order. A division in which some micro-batch does not fit in memory is left out.

    Parameters
    ----------
    problem
        The problem.
    sizes
        The only choice, where sizes are given.
    bound
        Lower bound of the objective with given sizes; the least comes first.
    until
        Value of `time.monotonic()` after which no further uneven division is looked at.
    granularity
        Without sizes, only near-uniform divisions are allowed, where there is one that fits in memory. Without fused
        backwards, more memory is needed.
    """

    def __init__(
        self,
        problem: Problem,
        sizes: Sizes | None,
        bound: Callable[[Sizes], int],
        until: float,
        granularity: Granularity = ALL,
    ) -> None:
        self._problem, self._counts = problem, problem.uniform_counts()
        uneven = granularity.sizes
        self.complete, self.uneven, self._fused = True, uneven, granularity.fused
        self._seen: set[int] = set()
        if sizes is not None or len(problem.sizes) == 1:
            self.looked_at, self.first = 1, [sizes or problem.default_sizes()]
            return
        known = dict.fromkeys(self._even())
        self.complete = len(self._seen) == len(self._counts)
        fitting = [each for each in known if not self._infeasible(each)]
        if uneven or not fitting:
            self.complete = uneven
            more = dict.fromkeys([problem.fewest_sizes(), self._smallest()])
            fitting += [each for each in more if each not in known and not self._infeasible(each)]
            known |= more
        for each in self._uneven() if uneven else ():
            if len(known) >= MOST_DIVISIONS or time.monotonic() > until:
                self.complete = False
                break
            if each not in known:
                known[each] = None
                if not self._infeasible(each):
                    bound(each)
                    fitting.append(each)
        self.looked_at, self.first = len(known), sorted(fitting, key=bound)

    def _infeasible(self, sizes: Sizes) -> bool:
        return bool(infeasible(self._problem, sizes, fused=self._fused))

    def _even(self) -> Iterator[Sizes]:
        last, first = len(self._counts) - 1, min(MOST_COUNTS, len(self._counts))
        self._seen |= {round(index * last / max(first - 1, 1)) for index in range(first)}
        for index in sorted(self._seen):
            yield self._problem.uniform_sizes(self._counts[index])

    def _uneven(self) -> Iterator[Sizes]:
        samples, sizes = self._problem.samples, self._problem.sizes
        if samples // sizes[0] <= LARGEST_DIVIDED and samples * len(sizes) <= LARGEST_SUMS:
            yield from divisions(samples, sizes)
        else:
            self.complete = False

    def _smallest(self) -> Sizes:
        """A division whose largest micro-batch is as small as can be."""
        for count in range(1, len(self._problem.sizes) + 1):
            try:
                return replace(self._problem, sizes=self._problem.sizes[:count]).default_sizes()
            except InputError:
                continue
        raise AssertionError("a problem's sizes add up to its batch")

    def near(self, best: Callable[[], Sizes | None]) -> Iterator[Sizes]:
        """Near-uniform divisions whose number is ever closer to that of the best."""
        last = len(self._counts) - 1
        step = max(1, last // (MOST_COUNTS - 1))
        while step > 1 and (sizes := best()) is not None and len(sizes) in self._counts:
            step = (step + 1) // 2
            centre = self._counts.index(len(sizes))
            for index in (centre - step, centre + step):
                if 0 <= index <= last and index not in self._seen:
                    self._seen.add(index)
                    division = self._problem.uniform_sizes(self._counts[index])
                    if division not in self.first and not self._infeasible(division):
                        self.looked_at += 1
                        self.first.append(division)
                        yield division

    def __str__(self) -> str:
        """How many divisions were looked at."""
        if not self.uneven:
            return f"{self.looked_at} near-uniform divisions of the batch into micro-batches were looked at"
        some = f"{self.looked_at} of the" if not self.complete else f"all {self.looked_at}"
        return f"{some} divisions of the batch into micro-batches were looked at, the smaller micro-batches first"
