"""Weight gradients in the waits of an order."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from ..core.instance import Instance
from ..core.ops import Kind, Op
from ..core.precedence import node
from ..core.problem import Problem
from ..core.schedule import Schedule


def fill_waits(problem: Problem, order: Schedule, room: Sequence[int]) -> Schedule:
    """An order with split backwards: F's and I's as they are, W's wherever a rank would wait.

    A rank whose next F or I is not there yet runs the oldest unit of W that it has, and so on until it is there; and
    before an F or I that would bring it above its room, it runs units until that fits, or none is left. What is left
    runs at the end. Nothing is planned, so that a unit may end after what the rank waits for is there. Takes about
    10 us for each op.

    Parameters
    ----------
    problem
        The problem; its limits are not looked at.
    order
        A schedule of it whose backwards are fused.
    room
        For each rank, bytes that its ops may hold.
    """
    rows = _Run(problem.instance(order.sizes), order, room).rows
    return replace(order, ops=tuple(tuple(row) for row in rows))


class _Run:
    """An order of fused ops, with its backwards split, on a clock.

    Attributes
    ----------
    rows
        What each rank has run.
    """

    def __init__(self, instance: Instance, order: Schedule, room: Sequence[int]) -> None:
        self._instance = instance
        self._before: list[list[int]] = instance.before.tolist()
        self._lag: list[list[int]] = instance.lag.tolist()
        self._fixed = [
            deque(Op(op.stage, Kind.I if op.kind is Kind.B else op.kind, op.microbatch) for op in row)
            for row in order.ops
        ]
        self._room = tuple(room)
        ranks = range(order.placement.ranks)
        self.rows: list[list[Op]] = [[] for _ in ranks]
        self._units: list[deque[tuple[int, int, int]]] = [deque() for _ in ranks]
        self._held, self._free = [0 for _ in ranks], [0 for _ in ranks]
        self._ends: dict[int, int] = {}
        self._looks = [(0, rank) for rank in ranks]
        while self._looks:
            now, rank = heapq.heappop(self._looks)
            if now >= self._free[rank]:
                self._look(rank, now)

    def _look(self, rank: int, now: int) -> None:
        """What a free rank does: the next fixed op where it can, else a unit, else wait for what has begun to come."""
        fixed, units = self._fixed[rank], self._units[rank]
        there = self._arrival(fixed[0]) if fixed else None
        if there is not None and there <= now and (not units or self._fits(rank, fixed[0])):
            self._run_fixed(rank, fixed.popleft(), now)
        elif units:
            self._run_unit(rank, *units.popleft(), now)
        elif there is not None:
            heapq.heappush(self._looks, (there, rank))

    def _node(self, op: Op) -> int:
        return node(op.kind, op.stage, op.microbatch, self._instance.stages, self._instance.microbatches)

    def _arrival(self, op: Op) -> int | None:
        """When all that an F or I needs is there; None where some of it has not begun."""
        number, there = self._node(op), 0
        for source, lag in zip(self._before[number], self._lag[number], strict=True):
            if source >= 0:
                if source not in self._ends:
                    return None
                there = max(there, self._ends[source] + lag)
        return there

    def _fits(self, rank: int, op: Op) -> bool:
        activation, retained = (
            int(held[op.stage, op.microbatch]) for held in (self._instance.activation, self._instance.retained)
        )
        more = activation if op.kind is Kind.F else max(0, retained - activation)
        return self._held[rank] + more <= self._room[rank]

    def _run_fixed(self, rank: int, op: Op, now: int) -> None:
        instance, s, j = self._instance, op.stage, op.microbatch
        ticks = instance.forward if op.kind is Kind.F else instance.backward_input
        self._held[rank] += int(instance.activation[s, j]) * (1 if op.kind is Kind.F else -1)
        if op.kind is Kind.I:
            self._held[rank] += int(instance.retained[s, j])
            self._units[rank] += [(s, j, unit) for unit in range(len(instance.problem.weight_units[s]))]
        self.rows[rank].append(op)
        self._end(rank, now + int(ticks[s, j]))
        self._ends[self._node(op)] = self._free[rank]
        neighbour = s + 1 if op.kind is Kind.F else s - 1
        if 0 <= neighbour < instance.stages:
            heapq.heappush(self._looks, (self._free[rank], int(instance.rank[neighbour, j])))

    def _run_unit(self, rank: int, stage: int, microbatch: int, unit: int, now: int) -> None:
        instance, row = self._instance, self.rows[rank]
        count, last = len(instance.problem.weight_units[stage]), row[-1]
        ticks, freed = (
            int(sums[stage, microbatch, unit + 1] - sums[stage, microbatch, unit])
            for sums in (instance.unit_ticks, instance.unit_bytes)
        )
        start = unit
        if (last.stage, last.microbatch) == (stage, microbatch) and last.units is not None and last.units[1] == unit:
            start = last.units[0]
            row.pop()
        elif unit:
            ticks += int(instance.overhead[stage])
        row.append(Op(stage, Kind.W, microbatch, None if (start, unit + 1) == (0, count) else (start, unit + 1)))
        self._held[rank] -= freed
        self._end(rank, now + ticks)

    def _end(self, rank: int, end: int) -> None:
        self._free[rank] = end
        heapq.heappush(self._looks, (end, rank))
