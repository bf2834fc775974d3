"""Micro-batches that run to and fro over the ranks: Hanayo, and Hanayo with weight gradients in its waits."""

from __future__ import annotations

import heapq
from collections import deque

from ..core.instance import Instance
from ..core.method import Method
from ..core.ops import Kind, Op
from ..core.precedence import node
from ..core.problem import Problem
from ..core.schedule import Schedule
from .rows import paced, require_family


def hanayo(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Hanayo (Liu et al., SC'23, arXiv 2308.15762) with any number of waves w, fused backwards.

    The stages run down the ranks and back up, w times. It is Chimera without its second copy of the weights: what there
    is the other direction is here the way back. Micro-batches go in groups of p, and the first forwards of a group fall
    into the last waits of the group before, as in Chimera. Exists for every p, w and m.

    Equal stages (F and B of one, 1 / (2w) of a rank's layers), free messages, p dividing m: the bubble is
    2(p - 1)(max(F, B) + (m / p - 1) |B - F|). So with B = 2F and m = p its share is (2p - 2) / (3pw + 2p - 2). Rank r
    holds (2w - 1)p + r + 1 activations of a stage, so at most what 1F1B's p are. Both are worked out from the order;
    the paper's formula is known to us second-hand only, as a share of (2p - 2) / (3pw + p - 1), which is larger.

    Raises
    ------
    InputError
        When the placement is not a wave.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2, "placement": "wave", "stages_per_rank": 2}, "batch":
    ...     {"samples": 2}, "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in hanayo(problem).ops]
    ['0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1', '1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1']
    """
    _require_wave(problem, "Hanayo")
    return paced(problem, sizes, problem.ranks)


def hanayo_w(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Hanayo (arXiv 2308.15762) with split backwards: forwards and I's in its order, W's wherever a rank would wait.

    A rank whose next F or I is not there yet runs the oldest unit of W that it has, and so on until it is there; and
    before an F or I that would bring it above the memory of 1F1B (p micro-batches of all its stages), it runs units
    until there is room. What is left runs at the end. This is how AdaptPipe's adaptive execution began: it plans
    nothing, so that a unit may end after what the rank waits for is there. Depends on all costs; the problem's own
    limits are not looked at. Exists for every p, w and m.

    Equal stages with F = I <= W of one, free messages, p dividing m: the bubble is (p - 1)F, worked out from runs for p
    to 8, w to 3 and m to 4p. Where `retained` is at most `activation`, no rank holds more than p activations of all its
    stages. Takes about 10 us for each op.

    Raises
    ------
    InputError
        When the placement is not a wave.
    """
    _require_wave(problem, "Hanayo-W")
    order = paced(problem, sizes, problem.ranks)
    rows = _Run(problem.instance(order.sizes), order).rows
    return Schedule(order.placement, order.sizes, tuple(tuple(row) for row in rows), order.slices)


class _Run:
    """The run of `hanayo_w`: an order of fused ops, with its backwards split, on a clock.

    Attributes
    ----------
    rows
        What each rank has run.
    """

    def __init__(self, instance: Instance, order: Schedule) -> None:
        self._instance = instance
        self._before: list[list[int]] = instance.before.tolist()
        self._lag: list[list[int]] = instance.lag.tolist()
        self._fixed = [
            deque(Op(op.stage, Kind.I if op.kind is Kind.B else op.kind, op.microbatch) for op in row)
            for row in order.ops
        ]
        stages = [sorted({op.stage for op in row}) for row in order.ops]
        self._room = [order.placement.ranks * int(instance.activation[held].max(axis=1).sum()) for held in stages]
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


def _require_wave(problem: Problem, method: str) -> None:
    rounds, rest = divmod(problem.stages, problem.ranks)
    require_family(problem, method, "wave", rounds if not rest and rounds % 2 == 0 else 2)


HANAYO = Method(
    "Hanayo",
    ("Wave",),
    "to and fro over the ranks in waves: Chimera's order with one copy of the weights",
    hanayo,
    placement="wave",
    shapes="every p, number of waves w and m",
    bubble="2(p - 1)(max(F, B) + (m / p - 1) |B - F|) where p divides m, a stage being 1 / (2w) of a rank's layers",
    memory="2pw, as much as 1F1B's p",
    source="Liu et al., SC'23, arXiv 2308.15762; the formulas are worked out from the order",
)

HANAYO_W = Method(
    "Hanayo-W",
    ("HanayoW", "Hanayo-float"),
    "Hanayo's order with W's in the waits, in 1F1B's memory: what AdaptPipe's adaptive execution began as",
    hanayo_w,
    placement="wave",
    shapes="every p, number of waves w and m",
    bubble="(p - 1)F where p divides m and F = I <= W, a stage being 1 / (2w) of a rank's layers",
    memory="2pw, as much as 1F1B's p",
    source="order: Liu et al., SC'23, arXiv 2308.15762; W's: the executor's rule before it planned",
)
