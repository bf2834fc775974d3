"""A schedule's orders as arrays for the annealer, and back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..core.ops import Kind
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array, Schedule
from ..evaluate.simulate import op_bytes, op_inputs, op_ticks, simulate
from . import kernel
from .arrays import Now, Ops, Work

LARGEST_TIME = 2**60
"""No longest way in the kernel's ticks may pass this."""

REACH = 6
"""Places that an op moves at most, as a rule."""


class State:
    """An order of every rank's ops that moves can change, its heads and tails, and the best order so far.

    Parameters
    ----------
    problem, schedule
        The schedule to start from; it is valid for the problem and keeps its limits.
    objective
        "makespan" or "span".
    seed
        Of the moves.
    """

    def __init__(self, problem: Problem, schedule: Schedule, objective: Objective, seed: int) -> None:
        table, n = schedule.table, len(schedule.table.stage)
        self.schedule, self.span = schedule, objective == "span"
        timeline = simulate(problem, schedule)
        first = table.offsets.astype(np.int64)
        starts = np.zeros(problem.ranks, dtype=np.int64)
        busy = first[:-1] < first[1:]
        starts[busy] = timeline.start[first[:-1][busy]]
        ticks = op_ticks(problem.instance(schedule.sizes), schedule)
        lag = op_inputs(problem.instance(schedule.sizes), schedule)[1]
        # An op of no duration would let a circle of waits go unseen: times are multiplied, and such an op takes 1.
        horizon = int(ticks.sum()) + int(lag.sum()) + 1
        self.scale = min(int((ticks == 0).sum()) + 1, max(1, LARGEST_TIME // horizon))
        # The span is a makespan of which each rank's end counts later by what it starts earlier.
        self.offset = int(starts.max()) if self.span else 0
        self.ops = self._ops(problem, schedule, ticks, starts)
        order, slot = np.arange(n, dtype=np.int64), np.arange(n, dtype=np.int64)
        head, tail, held = (np.zeros(n, dtype=np.int64) for _ in range(3))
        self.now = Now(order, slot, head, tail, held, order.copy())
        self.counters = np.zeros(kernel.COUNTERS, dtype=np.int64)
        self.random = np.zeros(1, dtype=np.uint64)
        self.reseed(seed)
        value = self._fill()
        self.values = np.array([value, value, 0], dtype=np.int64)
        self.started = self.best
        longest = 2 * (value + int(self.ops.ticks.max())) + 1
        self.width = max(int(np.min(self.ops.ticks[ticks > 0], initial=longest)), longest // (4 * n + 16), 1)
        minus = [np.full(size, -1, dtype=np.int64) for size in (longest // self.width + 2, n)]
        blank = [np.zeros(n, dtype=np.int64) for _ in range(7)]
        self.work = Work(minus[0], blank[0], minus[1], *blank[1:])

    def _ops(self, problem: Problem, schedule: Schedule, ticks: Array, starts: Array) -> Ops:
        instance, table, n = problem.instance(schedule.sizes), schedule.table, len(ticks)
        before, lag = op_inputs(instance, schedule)
        lag = lag * self.scale
        sources, targets = before.reshape(-1), np.repeat(np.arange(n, dtype=np.int64), 2)
        there = np.flatnonzero(sources >= 0)
        by_source = there[np.argsort(sources[there], kind="stable")]
        counts = np.bincount(sources[there], minlength=n)
        # I and B of a stage are one family; so are its W's, which are as good as each other.
        kind = np.where(table.kind == Kind.B, int(Kind.I), table.kind)
        return Ops(
            first=table.offsets.astype(np.int64),
            rank=np.repeat(np.arange(problem.ranks, dtype=np.int64), np.diff(table.offsets)),
            ticks=np.where(ticks == 0, 1, ticks * self.scale),
            before=before,
            lag=lag,
            first_after=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            after=np.ascontiguousarray(targets[by_source]),
            after_lag=np.ascontiguousarray(lag.reshape(-1)[by_source]),
            rest=(self.offset - starts) * self.scale if self.span else np.zeros_like(starts),
            begin=starts * self.scale,
            family=kind * instance.stages + table.stage,
            **dict(zip(("take", "swell", "free"), op_bytes(instance, schedule), strict=True)),
            static=instance.static,
            limit=instance.limit,
        )

    def _fill(self) -> int:
        """Heads, tails and bytes of the order, from nothing; its value, in the kernel's ticks."""
        ops, now = self.ops, self.now
        alive = kernel.fill(ops, now, np.empty(len(now.order), dtype=np.int64))
        assert alive, "an order that was simulated has no deadlock"
        sums = np.concatenate([[0], np.cumsum((ops.take - ops.free)[now.order])])
        now.held[:] = sums[1:] - sums[ops.first[ops.rank]] + ops.static[ops.rank]
        return int(kernel.value_of(ops, now, self.span))

    def reseed(self, seed: int) -> None:
        """Begin another row of random moves."""
        self.random[0] = (seed * 2654435761 + 88172645463325252) % 2**64 or 1

    def restart(self, order: Array) -> None:
        """Go on from another order, of the same ops on the same ranks."""
        self.now.order[:] = order
        self.now.slot[order] = np.arange(len(order))
        self.values[kernel.VALUE] = value = self._fill()
        if value <= self.values[kernel.BEST]:
            self.values[kernel.BEST] = value
            self.now.best_order[:] = order

    def take_best(self, value: int, order: Array) -> None:
        """Take over an order that another found, if it is better than the best; moves go on where they are."""
        if value < self.best:
            self.values[kernel.BEST] = (value + self.offset + 1) * self.scale - 1
            self.now.best_order[:] = order

    def run(self, moves: int, hot: float, cold: float, target: int) -> None:
        """Propose moves, from temperature `hot` to `cold` in ticks; stop at a value of `target`."""
        goal = (target + self.offset + 1) * self.scale - 1
        kernel.anneal(
            self.ops, self.now, self.work, self.width, self.span, self.random, self.values, self.counters,
            moves, hot * self.scale, cold * self.scale, REACH, goal,
        )  # fmt: skip

    @property
    def value(self) -> int:
        """Objective value of the order, in ticks."""
        return int(self.values[kernel.VALUE]) // self.scale - self.offset

    @property
    def best(self) -> int:
        """Objective value of the best order, in ticks."""
        return int(self.values[kernel.BEST]) // self.scale - self.offset

    def best_schedule(self) -> Schedule:
        """The best order as a schedule."""
        flat = [op for row in self.schedule.ops for op in row]
        order, bounds = self.now.best_order.tolist(), pairwise(self.ops.first.tolist())
        rows = tuple(tuple(flat[op] for op in order[low:high]) for low, high in bounds)
        return Schedule(self.schedule.placement, self.schedule.sizes, rows)
