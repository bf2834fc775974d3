"""A lower bound over every split, placement, division of the batch and order. Proofs are in docs/planning-bounds.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from math import ceil, floor, prod
from time import monotonic

import numpy as np

from ...core.fit import exact
from ...core.schedule import Array
from ..splits.stage_table import FAR, StageTable
from ..workload import PER_TICK, Workload
from .every_plan import few, least_of_all
from .packing import items
from .packing_kernel import FORWARD, HELD, packs

RESOLUTION = 20_000
"""The last steps of the search for the bound are left out: it may be lower than what is proven by one part in this."""

MOST_FILLS = 3000
"""Where ranks are of so many classes that there are more numbers of them than this, layers are not packed whole."""


SECONDS = 10.0
"""Time to look at every plan, where there are few."""

SHARE = 0.15
"""Share of a search's time for that."""

EXTRAS = 6
"""Layers that first runs hold beyond one each are counted up to one less than this."""


def lower_bound(workload: Workload, *, seconds: float = SECONDS) -> int:
    """Ticks of one step that no plan gets below: whatever layers form a stage, wherever stages live, whichever of the
    workload's divisions of the batch is taken, and in whatever order the ops run.

    Where there are few layers, ranks and micro-batches (`every_plan.few`), it is the least makespan of any plan, unless
    the time is too short. Where no plan fits into memory the bound means nothing; ask `need.why_not`.

    Parameters
    ----------
    workload
        Layers, cluster and batch.
    seconds
        Time to look at every plan, where there are few. Another call for the same workload goes on from there.

    Examples
    --------
    >>> from adaptpipe.solver.core.cluster import uniform_cluster
    >>> from adaptpipe.solver.core.profile import Measurement, Part, Profile
    >>> layers = [Part("", 0, (Measurement(1, 1e-3, 1e-3, 1e-3, 2e-3, 0, 0, 0),)) for _ in range(5)]
    >>> workload = Workload("", Profile("", tuple(layers), 0.0), uniform_cluster("", 2, None, 0.0, 1e9), 8, (1,))
    >>> lower_bound(workload)
    72000
    """
    bounds = [division_bound(workload, division) for division in workload.divisions]
    best = min((bound for bound in bounds if bound is not None), default=0)
    return max(best, least_of_all(workload, monotonic() + seconds)[0]) if few(workload) else best


@lru_cache(maxsize=256)
def division_bound(workload: Workload, division: tuple[int, ...]) -> int | None:
    """The same where the division of the batch is given; None where memory surely has no room for any plan of it."""
    layers = _Layers(StageTable(workload, division))
    packed = layers.packed()
    return None if packed is None else max(layers.chain(), layers.area(), layers.memory_time(), packed)


@dataclass(frozen=True)
class _Layers:
    """Layers of a workload for one division, in nanoseconds at speed 1."""

    table: StageTable

    @property
    def workload(self) -> Workload:
        return self.table.workload

    @cached_property
    def op(self) -> int:
        """Nanoseconds of what an op takes beside its layers."""
        return self.workload.prices(self.table.largest).op

    @cached_property
    def work(self) -> Array:
        """Of each layer for the whole batch, every backward in the cheaper way; shape (L,)."""
        total = np.zeros(self.workload.layers, dtype=np.int64)
        for size, count in self.table.sizes.items():
            prices = self.workload.prices(size)
            split = prices.backward_input + prices.backward_weight
            total += count * (prices.forward + np.minimum(split, prices.backward))
        return total

    @cached_property
    def ops(self) -> int:
        """Of the F and backwards of one stage for the whole batch, beside its layers."""
        return 2 * self.op * len(self.table.division)

    @cached_property
    def hop(self) -> int:
        """The least ticks of a message between two ranks."""
        apart = ~np.eye(self.workload.ranks, dtype=bool)
        return int(self.table.hops[apart].min(initial=FAR)) if self.workload.ranks > 1 else 0

    @cached_property
    def forward(self) -> Array:
        """F of each layer for the cheapest micro-batch, shape (L,)."""
        return np.asarray(np.min([self.workload.prices(size).forward for size in self.table.sizes], axis=0))

    @cached_property
    def passed(self) -> Array:
        """From the start of a backward until the gradient is passed on, for the cheapest micro-batch, shape (L,)."""
        prices = [self.workload.prices(size) for size in self.table.sizes]
        return np.asarray(np.min([np.minimum(each.backward_input, each.backward) for each in prices], axis=0))

    def head(self, speeds: Sequence[float], layers: int | None = None, *, back: bool = False) -> int:
        """Ticks before which a rank cannot start if ranks of these speeds hold layers before its first one; `back`: and
        those that a gradient takes from there to the end.

        Each of them holds a layer before it at least, and the micro-batch passes on between them. All layers before it
        cost what they do at the highest of these speeds, and each rank adds what a layer costs more at its own: the
        slowest one for the cheapest layer of all. `layers` are before it; None: as few as there can be.
        """
        if not speeds:
            return 0
        top, cost = exact(max(speeds)), self.passed if back else self.forward
        time = (int(cost[: layers or len(speeds)].sum()) + self.op * len(speeds)) / top
        slower = sorted((1 / exact(speed) - 1 / top for speed in speeds), reverse=True)
        time += sum(more * (int(least) + self.op) for more, least in zip(slower, sorted(cost), strict=False))
        return ceil(time / PER_TICK) + len(speeds) * self.hop

    def chain(self) -> int:
        """The way of one micro-batch there and back, and the rest of the last backward, at the fastest speed."""
        ranks, best = self.workload.ranks, 0
        for size in self.table.sizes:
            prices = self.workload.prices(size)
            passed = np.minimum(prices.backward_input, prices.backward)
            whole = np.minimum(prices.backward_input + prices.backward_weight, prices.backward)
            way = int((prices.forward + passed).sum()) + 2 * self.op * ranks + max(0, int((whole - passed)[0]))
            best = max(best, ceil(way / (PER_TICK * exact(self.table.speeds[-1]))) + 2 * (ranks - 1) * self.hop)
        return best

    def area(self) -> int:
        """All work, and what ranks idle before they can start, over all speeds."""
        speeds = sorted(self.workload.cluster.speed, reverse=True)
        idle = sum(exact(speed) * self.head(speeds[:k]) for k, speed in enumerate(speeds))
        work = Fraction(int(self.work.sum()) + self.ops * len(speeds), PER_TICK)
        return ceil((work + idle) / sum(map(exact, speeds)))

    def memory_time(self) -> int:
        """A layer holds its activations from its F until its backward; all ranks together have so much room."""
        if None in self.workload.cluster.memory:
            return 0
        rooms = sum(self.table.room(rank) for rank in range(self.workload.ranks))
        room = rooms - int(self.workload.static.sum()) + sum(tie.static for tie in self.workload.ties)
        held = 0.0
        for size, count in self.table.sizes.items():
            prices = self.workload.prices(size)
            both = prices.forward + np.minimum(prices.backward_input, prices.backward)
            way = np.cumsum(both[::-1])[::-1] / (PER_TICK * self.table.speeds[-1])
            held += count * float((prices.activation * way).sum())
        return floor(held / room * (1 - 1e-9)) if room > 0 else 0  # not above it by what floats lose

    def packed(self) -> int | None:
        """The least time in which all layers find a rank, whole. None where not even memory has room for them.

        A rank starts no sooner than the ranks whose first layers come before its own let it. Before its first backward
        it runs F's only, as many as its memory holds. Where its first run is not all it has, it has a stage more.
        """
        kinds, bins = self.classes
        if prod(n + 1 for n in bins) > MOST_FILLS:
            return 0
        columns, batch = self.columns
        found = items(columns)
        types = found.type_of(columns[0]), found.type_of(columns[-1], alone=True)
        order = np.argsort(-(self.op - found.weight[:, FORWARD]) / np.maximum(1e-9, found.weight[:, HELD]))
        apart = found.apart(columns)
        limits = np.array([limit for _, limit in kinds], dtype=np.int64)

        def fits(time: int) -> bool:
            free, between = (
                [[[self._left(time - end[which], speed) for speed, _ in kinds] for end in row] for row in self.ends]
                for which in (0, 1)
            )
            late = [[self._left(time - at, speed) for at in self.first_backward] for speed, _ in kinds]
            times = np.array(free), np.array(between), np.array(late)
            given = found.weight, found.count, order, np.array(bins)
            return bool(packs(*given, *times, limits, apart, *types, batch, self.op, self.ops))

        high = max(0, self.area())
        if not fits(FAR):
            return None
        low, width = high - 1, 1
        while not fits(high):
            low, high, width = high, high + width, 2 * width
        while high - low > max(1, low // RESOLUTION):
            middle = (low + high) // 2
            if fits(middle):
                high = middle
            else:
                low = middle
        return low + 1

    @staticmethod
    def _left(time: int, speed: float) -> int:
        """Nanoseconds at speed 1 in a time at a speed."""
        return min(FAR, int(time * PER_TICK * exact(speed) // 1))

    @cached_property
    def columns(self) -> tuple[Array, int]:
        """What a layer takes of time and memory, shape (L, 7), see `packing_kernel.WORK`; and how many items of the
        smallest micro-batch's bytes the batch is. An item takes the most time for its bytes of any micro-batch."""
        static = self.workload.static.copy()
        for tie in self.workload.ties:
            static[tie.layers[1]] -= tie.static
        prices = {size: self.workload.prices(size) for size in self.table.sizes}
        need = static + prices[self.table.largest].activation
        held = np.min([each.activation for each in prices.values()], axis=0)
        forward = np.max([each.forward for each in prices.values()], axis=0)
        batch = len(self.table.division)
        for layer in np.flatnonzero(held):
            least = int(held[layer])
            rates = [
                Fraction(int(each.forward[layer]) + self.op, int(each.activation[layer])) for each in prices.values()
            ]
            forward[layer] = ceil(max(rates) * least) - self.op
            total = sum(n * int(prices[size].activation[layer]) for size, n in self.table.sizes.items())
            batch = max(batch, -(-total // least))
        back, passed = np.zeros_like(self.work), np.zeros_like(self.work)
        for size, n in self.table.sizes.items():
            each = prices[size]
            back += n * np.minimum(each.backward_input + each.backward_weight, each.backward)
            passed += n * (each.forward + np.minimum(each.backward_input, each.backward))
        return np.stack([self.work, need, -forward, held, static, back, passed], axis=1), batch

    @cached_property
    def ends(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Earliest start of a rank after ranks of each class, by their numbers, the first class counting fastest; and
        by how many layers more than one each their first runs hold. With it, the sum of that and of what comes at least
        after the last of its backwards passes its gradient on."""
        kinds, bins = self.classes
        found = []
        for used in product(*(range(n + 1) for n in reversed(bins))):
            before = [kind[0] for kind, n in zip(kinds, reversed(used), strict=True) for _ in range(n)]
            row = []
            for extra in range(EXTRAS):
                head, tail = (self.head(before, len(before) + extra, back=back) for back in (False, True))
                row.append((head, head + tail))
            found.append(tuple(row))
        return tuple(found)

    @cached_property
    def first_backward(self) -> tuple[int, int]:
        """Earliest moment of a backward of a rank that holds the last layer, and of one that does not: the way of a
        micro-batch through all ranks, and back through the last layer."""
        ranks, top = self.workload.ranks, PER_TICK * exact(self.table.speeds[-1])
        there = ceil((int(self.forward.sum()) + self.op * ranks) / top) + (ranks - 1) * self.hop
        return there, there + ceil((int(self.passed[-1]) + self.op) / top) + self.hop

    @cached_property
    def classes(self) -> tuple[tuple[tuple[float, int], ...], tuple[int, ...]]:
        """Speed and room of the ranks, alike ones together, and how many there are of each."""
        each = [(speed, self.table.room(rank)) for rank, speed in enumerate(self.workload.cluster.speed)]
        kinds = tuple(sorted(set(each), reverse=True))
        return kinds, tuple(each.count(kind) for kind in kinds)
