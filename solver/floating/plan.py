"""What adaptive execution knows of a schedule: the fixed order of F, I and B, the units that float, and the slack."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

import numpy as np

from ..core.errors import InputError, NoAnswerError
from ..core.instance import UNLIMITED, Instance
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.schedule import Array, Schedule
from ..evaluate.kernel import earliest
from ..evaluate.limits import in_unit
from ..evaluate.scenario import fine_parts
from ..evaluate.simulate import op_bytes, op_inputs, op_ticks, simulate
from ..evaluate.timeline import Timeline
from .arrays import Pieces

Order = Literal["planned", "oldest", "newest"]
"""Which unit comes first of those that may run: the first in the schedule, or one of the earliest or the latest I.

In the published schedules the first two are the same. A searched schedule may run its units in another order because of
what they free or how long they take; with the schedule's own order, a run without noise keeps to the plan.
"""

ORDERS: Final[tuple[Order, ...]] = get_args(Order)


@dataclass(frozen=True)
class FloatingPlan:
    """A schedule whose weight gradients float: made by `FloatingPlan.of`.

    Parameters
    ----------
    problem, schedule
        The plan.
    order
        Which units come first.
    parts
        The times in `pieces` are integers in this part of a tick.
    fixed
        For each rank its F, I and B, in the schedule's order.
    units
        For each rank its weight units, one op each, in the order of their I's; a W of one unit is whole.
    pieces
        The same as arrays.
    """

    problem: Problem
    schedule: Schedule
    order: Order
    parts: int
    fixed: tuple[tuple[Op, ...], ...]
    units: tuple[tuple[Op, ...], ...]
    pieces: Pieces

    @classmethod
    def of(
        cls, problem: Problem, schedule: Schedule, *, order: Order = "planned", parts: int | None = None
    ) -> FloatingPlan:
        """Work out the plan of a valid order, and prove that no rank will ever be forced past its limit.

        A rank can always make room by running the units whose I has run, and by nothing else. So F (and I, while which
        the larger of what F left and W needs is held) must fit once all of these have run: then any rank can go on at
        any moment, whatever has been put off or pulled forward until then.

        Parameters
        ----------
        problem, schedule
            A schedule of the problem. That its own order keeps the limits is not asked for.
        order
            Which units come first.
        parts
            Parts of a tick to which times are rounded; None: 1, or more where ticks are coarse.

        Raises
        ------
        InputError
            When the schedule is for another shape, or there is no such order of units; or when each weight gradient
            is an update of the weights, so that none may move.
        NoAnswerError
            When the schedule cannot run; or when an op does not fit even with all earlier weight gradients done: with
            rank, op, bytes and limit.

        Examples
        --------
        >>> from adaptpipe.solver.heuristics.one_f_one_b import one_f_one_b_split
        >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 2}, "costs":
        ...     {"forward": 1, "backward_input": 1, "weight_units": [1, 1]}})
        >>> plan = FloatingPlan.of(problem, one_f_one_b_split(problem))
        >>> " ".join(map(str, plan.fixed[1])), " ".join(map(str, plan.units[1]))
        ('1F0 1I0 1F1 1I1', '1W0[0:1] 1W0[1:2] 1W1[0:1] 1W1[1:2]')
        """
        if order not in ORDERS:
            raise InputError(f"order: {order!r} is none of {', '.join(ORDERS)}")
        if schedule.updates == "stash" and schedule.splits_backward:
            raise InputError(
                "execution: adaptive execution moves weight gradients, and where updates are 'stash' each moves an "
                "update of the weights; choose static execution, or fused backwards"
            )
        timeline = simulate(problem, schedule)
        instance = problem.instance(schedule.sizes)
        parts = parts or fine_parts(instance)
        rows = tuple(_Row.of(problem, row) for row in schedule.ops)
        pieces = _pieces(timeline, rows, order, parts)
        _require_room(timeline, rows, pieces)
        fixed, units = tuple(row.fixed for row in rows), tuple(row.units for row in rows)
        return cls(problem, schedule, order, parts, fixed, units, pieces)


@dataclass(frozen=True, slots=True)
class _Row:
    """One rank's ops, with each W as its units.

    Parameters
    ----------
    fixed, units
        As in `FloatingPlan`.
    owed
        For each fixed op, how many units precede it.
    ready
        For each fixed op, how many units have their I at or before it.
    planned
        For each unit, its place among the units in the schedule.
    first
        For each unit, the number of the first unit of the same W.
    """

    fixed: tuple[Op, ...]
    units: tuple[Op, ...]
    owed: tuple[int, ...]
    ready: tuple[int, ...]
    planned: tuple[int, ...]
    first: tuple[int, ...]

    @classmethod
    def of(cls, problem: Problem, row: tuple[Op, ...]) -> _Row:
        """That of one op list."""
        base: dict[tuple[int, int], int] = {}
        units: list[Op] = []
        ready, first = [], []
        for op in row:
            count = len(problem.weight_units[op.stage])
            if op.kind is Kind.I:
                base[op.stage, op.microbatch] = len(units)
                first += [len(units)] * count
                whole = Op(op.stage, Kind.W, op.microbatch)
                units += [whole] if count == 1 else [replace(whole, units=(u, u + 1)) for u in range(count)]
            if op.kind is not Kind.W:
                ready.append(len(units))
        ran, owed, planned = 0, [], [0] * len(units)
        for op in row:
            if op.kind is not Kind.W:
                owed.append(ran)
                continue
            for unit in range(*(op.units or (0, len(problem.weight_units[op.stage])))):
                planned[base[op.stage, op.microbatch] + unit] = ran
                ran += 1
        fixed = tuple(op for op in row if op.kind is not Kind.W)
        return cls(fixed, tuple(units), tuple(owed), tuple(ready), tuple(planned), tuple(first))

    def keys(self, order: Order) -> tuple[int, ...]:
        """For each unit a number; the least comes first."""
        if order == "planned":
            return self.planned
        count = len(self.units)
        return tuple(unit if order == "oldest" else unit - 2 * first + count for unit, first in enumerate(self.first))


def _pieces(timeline: Timeline, rows: tuple[_Row, ...], order: Order, parts: int) -> Pieces:
    problem, schedule = timeline.problem, timeline.schedule
    instance = problem.instance(schedule.sizes)
    fixed, floating = (
        replace(schedule, ops=tuple(ops)) for ops in ([row.fixed for row in rows], [row.units for row in rows])
    )
    units, unit_at = floating.table, floating.table.offsets
    overhead = np.where(units.start > 0, instance.overhead[units.stage], 0)
    unit_ticks = op_ticks(instance, floating) - overhead
    take, swell, free = op_bytes(instance, fixed)
    latest = timeline.makespan - _tails(instance, schedule)[schedule.table.kind != Kind.W]
    by_rank = zip(rows, unit_at.tolist(), strict=False)
    return Pieces(
        fixed_at=fixed.table.offsets,
        unit_at=unit_at,
        before=op_inputs(instance, fixed)[0],
        latest=latest * parts,
        owed=_flat(row.owed for row in rows),
        ready=_flat([at + count for count in row.ready] for row, at in by_rank),
        take=take,
        swell=swell,
        free=free,
        unit_ticks=unit_ticks * parts,
        overhead=overhead * parts,
        unit_free=op_bytes(instance, floating)[2],
        key=_flat(row.keys(order) for row in rows),
        static=timeline.static,
        room=_room(timeline, instance, take),
    )


def _room(timeline: Timeline, instance: Instance, take: Array) -> Array:
    """Bytes that each rank may hold: its limit; without one, what the plan's fullest rank needs and one activation.

    Static memory aside. Without any bound weight gradients would pile up, to twice what was planned and more, and runs
    under noise would be less than 1 % shorter for it.
    """
    planned = np.array(timeline.peak_memory, dtype=np.int64) - timeline.static
    bound = timeline.static + planned.max(initial=0) + take.max(initial=0)
    return np.where(instance.limit == UNLIMITED, bound, instance.limit)


def _flat(rows: Iterable[Iterable[int]]) -> Array:
    return np.array([value for row in rows for value in row], dtype=np.int64)


def _tails(instance: Instance, schedule: Schedule) -> Array:
    """Least time from the start of each op to the end of the step, in the schedule's order, in ticks, shape (n,)."""
    offsets, ticks = schedule.table.offsets, op_ticks(instance, schedule)
    before, lag = op_inputs(instance, schedule)
    # Where every op takes one step, each starts in a later step than what it waits for.
    steps, done = np.zeros_like(ticks), np.zeros(len(offsets) - 1, dtype=np.int64)
    earliest(offsets, np.ones_like(ticks), before, np.zeros_like(before), steps, done)
    firsts, after, way = set(offsets.tolist()), [0] * len(ticks), ticks.tolist()
    sources, waits = before.tolist(), lag.tolist()
    for op in np.argsort(-steps).tolist():
        way[op] += after[op]
        inputs = [*zip(sources[op], waits[op], strict=True), (op - 1 if op not in firsts else -1, 0)]
        for source, wait in inputs:
            if source >= 0:
                after[source] = max(after[source], wait + way[op])
    return np.array(way, dtype=np.int64)


def _require_room(timeline: Timeline, rows: tuple[_Row, ...], x: Pieces) -> None:
    """Refuse an order in which an op does not fit even with all earlier weight gradients done.

    Raises
    ------
    NoAnswerError
        Naming it.
    """
    freed = np.concatenate([[0], np.cumsum(x.unit_free)])
    for rank, row in enumerate(rows):
        held, limit = int(x.static[rank]), int(x.room[rank])
        unit = timeline.problem.memory.unit
        if held > limit:
            raise NoAnswerError(
                f"rank {rank}: static memory {in_unit(held, unit)} is above the limit of {in_unit(limit, unit)}"
            )
        ready = int(x.unit_at[rank])
        for op, at in zip(row.fixed, range(x.fixed_at[rank], x.fixed_at[rank + 1]), strict=True):
            needed = held + int(x.take[at] + x.swell[at])
            if needed > limit:
                raise NoAnswerError(
                    f"rank {rank}: {op} brings the memory to {in_unit(needed, unit)}, above the limit of "
                    f"{in_unit(limit, unit)}, even with every earlier weight gradient done; "
                    "raise memory.limit, or take a schedule that starts fewer micro-batches ahead"
                )
            held += int(x.take[at] - x.free[at] - (freed[x.ready[at]] - freed[ready]))
            ready = int(x.ready[at])
