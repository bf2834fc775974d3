"""A problem with its micro-batch sizes fixed, as arrays for the simulator, the bounds and the search."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .precedence import earlier_nodes, predecessor_nodes
from .problem import SECONDS, Cost, Problem
from .slices import sliced_price

Array = npt.NDArray[np.int64]

UNLIMITED = 2**62
"""Stands for "no limit" in the array of limits."""

LONGEST = 2**60
"""Sums of ticks or of bytes above this are refused, so that no array can overflow."""


class Instance:
    """Prices of every op, for given micro-batch sizes.

    Parameters
    ----------
    problem
        The problem.
    sizes
        Samples of each micro-batch, in order; their sum is the batch. An entry for each slice where there are some.

    Attributes
    ----------
    forward, backward_input, backward_weight, backward
        Ticks of F, I, whole W and B, shape (S, m).
    activation, retained
        Bytes held after F and after I, shape (S, m).
    unit_ticks, unit_bytes
        Sums of the times, and of the freed bytes, of the first u weight units, shape (S, m, U + 1); constant beyond a
        stage's last unit.
    overhead
        Ticks of each range of W that does not start at unit 0, shape (S,).
    rank
        Rank of each stage and micro-batch, shape (S, m).
    alike
        Number of each micro-batch's kind, shape (m,): those of one kind have the same prices.
    before, lag
        Predecessor nodes, and the message time from each, shape (3 * S * m, 2); see `precedence`.
    earlier
        Node that has to be earlier on its rank, for the slices' sake, shape (3 * S * m,); see `precedence`.
    static, limit
        Bytes of each rank before its first op, and its limit (`UNLIMITED` where there is none), shape (p,).
    """

    def __init__(self, problem: Problem, sizes: tuple[int, ...]) -> None:
        slices = problem.slice_count
        if not sizes or sum(sizes) != problem.samples * slices:
            of = f", {slices} times over for the slices" if slices > 1 else ""
            raise InputError(f"sizes: {sum(sizes)} samples in all, and the batch has {problem.samples}{of}")
        if stray := set(sizes) - set(problem.sizes):
            j = next(j for j, size in enumerate(sizes) if size in stray)
            raise InputError(f"sizes[{j}]: {sizes[j]} is none of the allowed micro-batch sizes {list(problem.sizes)}")
        self.problem, self.sizes = problem, sizes
        self.ranks, self.stages, self.microbatches = problem.ranks, problem.stages, len(sizes)
        # Micro-batches of one size, and of them slices of one place, have the same prices.
        classes = np.array(sizes, dtype=np.int64) * slices + np.arange(len(sizes)) % slices
        distinct, self.alike = np.unique(classes, return_inverse=True)
        self._distinct = [divmod(each, slices) for each in distinct.tolist()]

        self.forward = self._table(problem.forward)
        self.backward_input = self._table(problem.backward_input)
        self.unit_ticks, self.unit_bytes = self._units()
        self.backward_weight: Array = np.ascontiguousarray(self.unit_ticks[:, :, -1])
        fused = problem.backward
        if fused is None:
            self.backward: Array = self.backward_input + self.backward_weight
        else:
            self.backward = self._table(fused)
        self.activation = self._table(problem.memory.activation, bytes_=True)
        self.retained: Array = np.ascontiguousarray(self.unit_bytes[:, :, -1])
        self.overhead: Array = np.array(problem.overhead or (0,) * self.stages, dtype=np.int64)

        directions = [problem.placement.direction_of(j, self.microbatches) for j in range(self.microbatches)]
        by_direction = np.array(problem.placement.stages, dtype=np.int64)
        self.rank: Array = np.ascontiguousarray(by_direction[directions].T)
        self.before = predecessor_nodes(self.stages, self.microbatches)
        self.earlier = earlier_nodes(self.stages, self.microbatches, slices)
        self.lag = self._lags()
        if slices > 1:
            self._merge()
        self.static: Array = np.array([problem.static_bytes(r) for r in range(self.ranks)], dtype=np.int64)
        self.limit: Array = np.array(
            [UNLIMITED if value is None else value for value in problem.memory.limit], dtype=np.int64
        )
        self._check_horizon()

    def _price(self, cost: Cost, kind: int, bytes_: bool = False) -> int:
        """Ticks or bytes of the micro-batches, or slices, of one kind of `alike`."""
        size, place = self._distinct[kind]
        return sliced_price(cost, size, self.problem.tokens if bytes_ else self.problem.work, place)

    def _table(self, costs: tuple[Cost, ...], bytes_: bool = False) -> Array:
        rows = [[self._price(cost, kind, bytes_) for kind in range(len(self._distinct))] for cost in costs]
        return np.ascontiguousarray(np.array(rows, dtype=np.int64)[:, self.alike])

    def _units(self) -> tuple[Array, Array]:
        problem = self.problem
        width = max(len(units) for units in problem.weight_units)
        ticks = np.zeros((self.stages, len(self._distinct), width + 1), dtype=np.int64)
        freed = np.zeros_like(ticks)
        for s, units in enumerate(problem.weight_units):
            for z in range(len(self._distinct)):
                times = [0, *accumulate(self._price(unit, z) for unit in units)]
                if problem.memory.retained_units is not None:
                    shares = [0, *accumulate(self._price(u, z, bytes_=True) for u in problem.memory.retained_units[s])]
                else:
                    weights = times if times[-1] else list(range(len(units) + 1))
                    total = self._price(problem.memory.retained[s], z, bytes_=True)
                    shares = [total * part // weights[-1] for part in weights]
                ticks[s, z] = times + [times[-1]] * (width + 1 - len(times))
                freed[s, z] = shares + [shares[-1]] * (width + 1 - len(shares))
        return (np.ascontiguousarray(ticks[:, self.alike]), np.ascontiguousarray(freed[:, self.alike]))

    def _lags(self) -> Array:
        links, unit = self.problem.links, SECONDS[self.problem.unit]
        nodes = len(self.before)
        lag = np.zeros((nodes, 2), dtype=np.int64)
        rank, kind = np.tile(self.rank.reshape(-1), 3), np.tile(self.alike, 3 * self.stages)
        stage = np.tile(np.repeat(np.arange(self.stages), self.microbatches), 3)
        for slot in range(2):
            there = np.flatnonzero(self.before[:, slot] >= 0)
            source = self.before[there, slot]
            # The message after stage s is the same size in both directions: the activation, then its gradient.
            boundary = np.minimum(stage[there], stage[source])
            # Each kind of message is priced once. One number for its four parts sorts much faster than four.
            shape = (self.ranks, self.ranks, self.stages, len(self._distinct))
            keys = np.ravel_multi_index((rank[source], rank[there], boundary, kind[there]), shape)
            kinds, index = np.unique(keys, return_inverse=True)
            values = []
            for r, q, s, z in zip(*(part.tolist() for part in np.unravel_index(kinds, shape)), strict=True):
                value = 0 if r == q else links.latency[r][q]
                if r != q and links.bandwidth is not None:
                    count = self._price(links.message[s], z, bytes_=True)
                    time = Fraction(count) / (Fraction(links.bandwidth[r][q]) * unit)
                    value += -(-time.numerator // time.denominator)
                if value > LONGEST:
                    raise InputError(
                        f"links: a message from rank {r} to rank {q} takes over 2^{value.bit_length() - 1} ticks, "
                        "and 2^60 is the most; raise links.bandwidth, or choose a coarser unit"
                    )
                values.append(value)
            lag[there, slot] = np.array(values, dtype=np.int64)[index] if values else 0
        return lag

    def _merge(self) -> None:
        """Slices that happen to have the same prices are alike."""
        one_of = np.unique(self.alike, return_index=True)[1]
        tables = (self.forward, self.backward_input, self.backward, self.activation, self.unit_ticks, self.unit_bytes)
        columns = [table[:, one_of].swapaxes(0, 1).reshape(len(one_of), -1) for table in tables]
        columns.append(
            self.lag.reshape(3 * self.stages, self.microbatches, 2)[:, one_of].swapaxes(0, 1).reshape(len(one_of), -1)
        )
        self.alike = np.unique(np.concatenate(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)[self.alike]

    def message(self, stage: int, microbatch: int) -> int:
        """Bytes of the message that leaves a stage; only where a problem says how large they are."""
        slices = self.problem.slice_count
        return sliced_price(
            self.problem.links.message[stage], self.sizes[microbatch], self.problem.tokens, microbatch % slices
        )

    def _check_horizon(self) -> None:
        parts = (self.forward, np.maximum(self.backward_input + self.backward_weight, self.backward), self.lag)
        horizon = sum(float(part.sum(dtype=np.float64)) for part in parts)
        horizon += float(self.overhead.sum()) * self.microbatches * self.unit_ticks.shape[2]
        held = float(np.maximum(self.activation, self.retained).sum(dtype=np.float64)) + float(self.static.sum())
        for what, value in (("the sum of all durations", horizon), ("the sum of all bytes", held)):
            if value > LONGEST:
                raise InputError(f"{what} is {value:.3g}, above 2^60; choose a coarser unit")
