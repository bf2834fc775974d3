"""What every contiguous run of layers costs as a stage: the tables that splits and bounds are computed from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np

from ...core.fit import exact
from ...core.schedule import Array
from ..workload import PER_TICK, Workload

FAR = 2**60
"""Cost of a run that has no layer."""

_LARGEST = 2**62


@dataclass(frozen=True)
class StageTable:
    """Runs of layers [a, b) as stages, for one division of the batch.

    Parameters
    ----------
    workload
        Layers and cluster.
    division
        Samples of each micro-batch.
    """

    workload: Workload
    division: tuple[int, ...]

    @cached_property
    def sizes(self) -> dict[int, int]:
        """Micro-batches of each size."""
        return dict(Counter(self.division))

    @property
    def largest(self) -> int:
        """Samples of the largest micro-batch."""
        return max(self.division)

    @cached_property
    def speeds(self) -> tuple[float, ...]:
        """The speeds that occur, ascending."""
        return tuple(sorted(set(self.workload.cluster.speed)))

    @cached_property
    def of_rank(self) -> Array:
        """For each rank, which of `speeds` it has; shape (p,)."""
        return np.array([self.speeds.index(speed) for speed in self.workload.cluster.speed], dtype=np.int64)

    def ticks(self, field: str, size: int, speed: float) -> Array:
        """Ticks of one op (`forward`, `backward_input`, `backward_weight`, `backward`), shape (L + 1, L + 1).

        As `Workload.problem` prices a stage of layers a to b - 1, at [a, b]; `FAR` where b <= a.
        """
        prices = self.workload.prices(size)
        layers = getattr(prices, field)
        top, under = (exact(speed) * PER_TICK).as_integer_ratio()
        ends = np.concatenate(([0], np.cumsum(layers)))
        if (int(ends[-1]) + prices.op) * under > _LARGEST:
            ends = ends.astype(object)
        thousandths = ends[None, :] - ends[:, None] + prices.op
        return self._runs(-(-(thousandths * under) // top))

    @cached_property
    def work(self) -> Array:
        """Ticks of the whole batch at each of `speeds`, every backward in the cheaper way; shape (C, L + 1, L + 1)."""
        forward = self._of_batch(lambda size, speed: self.ticks("forward", size, speed))
        return np.stack([self._runs(table) for table in forward + self.backwards])

    @cached_property
    def backwards(self) -> Array:
        """Ticks of all backwards of the batch, each in the cheaper way; shape (C, L + 1, L + 1)."""

        def one(size: int, speed: float) -> Array:
            split = self.ticks("backward_input", size, speed) + self.ticks("backward_weight", size, speed)
            return np.asarray(np.minimum(split, self.ticks("backward", size, speed)))

        return np.stack([self._runs(table) for table in self._of_batch(one)])

    @cached_property
    def forward(self) -> Array:
        """Ticks of the shortest F, shape (C, L + 1, L + 1)."""
        return self._by_speed(lambda speed: np.min([self.ticks("forward", size, speed) for size in self.sizes], axis=0))

    @cached_property
    def passed(self) -> Array:
        """Ticks from the start of a backward until its gradient is passed on, at least; shape (C, L + 1, L + 1)."""
        kinds = ("backward_input", "backward")
        return self._by_speed(
            lambda speed: np.min([self.ticks(kind, size, speed) for kind in kinds for size in self.sizes], axis=0)
        )

    @cached_property
    def hops(self) -> Array:
        """Least ticks of a message, [from][to]; 0 within a rank, shape (p, p)."""
        cluster, ranks = self.workload.cluster, range(self.workload.ranks)
        messages = (int(self.workload.prices(size).message[:-1].min(initial=FAR)) for size in self.sizes)
        least = min(messages) if self.workload.layers > 1 else 0

        def ticks(r: int, q: int) -> int:
            if r == q:
                return 0
            return ceil(exact(cluster.latency_s[r][q]) * 10**6) + ceil(least / exact(cluster.bandwidth[r][q]) * 10**6)

        return np.array([[ticks(r, q) for q in ranks] for r in ranks], dtype=np.int64)

    @cached_property
    def static(self) -> Array:
        """Bytes of weights, gradients and optimizer state, what is tied counted once; shape (L + 1, L + 1)."""
        total = self._sums(self.workload.static)
        for tie in self.workload.ties:
            low, high = tie.layers
            total[: low + 1, high + 1 :] -= tie.static
        return self._runs(total)

    @cached_property
    def activation(self) -> Array:
        """Bytes that F of the largest micro-batch takes, shape (L + 1, L + 1)."""
        return self._runs(self._sums(self.workload.prices(self.largest).activation))

    @cached_property
    def way(self) -> Array:
        """Ticks from the start of F of layer a to the end of its I at the fastest speed, for the smallest micro-batch:
        all F from there on and all I back, without messages and what ops take beside layers; shape (L + 1,)."""
        prices = self.workload.prices(min(self.division))
        both = np.concatenate(([0], np.cumsum(prices.forward + prices.backward_input)))
        return np.asarray((both[-1] - both) / (PER_TICK * self.speeds[-1]), dtype=np.int64)

    def room(self, rank: int) -> int:
        """Bytes that a rank may hold for longer than one op runs, below 0 where nothing fits; `FAR`: no limit."""
        limit = self.workload.cluster.memory[rank]
        return FAR if limit is None else limit - self.workload.transient(self.largest)

    def rank_work(self, bounds: Sequence[int], row: Sequence[int]) -> Array:
        """Ticks of each rank for the stages between `bounds` on the ranks of `row`; shape (p,)."""
        found = np.zeros(self.workload.ranks, dtype=np.int64)
        for stage, rank in enumerate(row):
            found[rank] += self.work[self.of_rank[rank], bounds[stage], bounds[stage + 1]]
        return found

    def _of_batch(self, of: Callable[[int, float], Array]) -> Array:
        """Sum over the micro-batches, at each speed."""
        return self._by_speed(
            lambda speed: np.sum([count * of(size, speed) for size, count in self.sizes.items()], axis=0)
        )

    def _by_speed(self, of: Callable[[float], Array]) -> Array:
        return np.stack([of(speed) for speed in self.speeds])

    @staticmethod
    def _sums(values: Array) -> Array:
        ends = np.concatenate(([0], np.cumsum(values)))
        return np.asarray(ends[None, :] - ends[:, None], dtype=np.int64)

    @staticmethod
    def _runs(values: Array) -> Array:
        """The values where a run has layers, `FAR` elsewhere."""
        table = np.full(values.shape, FAR, dtype=np.int64)
        a, b = np.triu_indices(values.shape[0], 1)
        table[a, b] = values[a, b]
        return table
