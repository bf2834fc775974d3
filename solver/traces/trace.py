"""Ops on a clock of nanoseconds: a step as it ran, or as it is planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..core.errors import InputError
from ..core.ops import Kind, Op
from ..core.problem import SECONDS, price
from ..core.schedule import Schedule
from ..evaluate.simulate import op_inputs
from ..evaluate.timeline import Timeline

NANOSECONDS = 10**9


@dataclass(frozen=True, slots=True)
class Ran:
    """One op as it ran.

    Parameters
    ----------
    op
        What ran.
    start_ns, end_ns
        Nanoseconds since the step's first start on any rank.
    during_bytes, after_bytes
        What the rank held while the op ran, and once it had ended.
    message_bytes
        What it passed on to another stage; 0 where that is unknown.
    asked_ns, arrived_ns
        When the rank had nothing else to do before this op than its message, and when that had arrived; None where it
        needs none from another rank.
    """

    op: Op
    start_ns: int
    end_ns: int
    during_bytes: int = 0
    after_bytes: int = 0
    message_bytes: int = 0
    asked_ns: int | None = None
    arrived_ns: int | None = None

    @property
    def wait_ns(self) -> int:
        """How long its message was waited for."""
        if self.asked_ns is None or self.arrived_ns is None:
            return 0
        return max(0, self.arrived_ns - self.asked_ns)


@dataclass(frozen=True)
class Trace:
    """One step of all ranks.

    Parameters
    ----------
    schedule
        What was planned. F, I and B ran in its order; weight gradients may have run elsewhere, and in other ranges.
    rows
        For each rank, its ops in the order in which they ran.
    seconds_per_tick
        How long a tick of the plan was to take.

    Raises
    ------
    InputError
        If a rank ran its F, I and B in another order, or ops overlap.
    """

    schedule: Schedule
    rows: tuple[tuple[Ran, ...], ...]
    seconds_per_tick: float

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.schedule.ops):
            raise InputError(f"the trace has {len(self.rows)} ranks, and its schedule {len(self.schedule.ops)}")
        for rank, (row, planned) in enumerate(zip(self.rows, self.schedule.ops, strict=True)):
            ran = [each.op for each in row if each.op.kind is not Kind.W]
            due = [op for op in planned if op.kind is not Kind.W]
            for op, wanted in zip([*ran, None], [*due, None], strict=False):
                if op != wanted:
                    raise InputError(f"rank {rank} ran {op or 'nothing'} where its schedule has {wanted or 'no more'}")
            free = None
            for each in row:
                if each.end_ns < each.start_ns or (free is not None and each.start_ns < free):
                    raise InputError(f"rank {rank}: {each.op} starts at {each.start_ns} ns, before it could")
                free = each.end_ns

    @cached_property
    def executed(self) -> Schedule:
        """The schedule that came out."""
        rows = tuple(tuple(each.op for each in row) for row in self.rows)
        return replace(self.schedule, ops=rows)

    @cached_property
    def begin_ns(self) -> int:
        """First start on any rank."""
        return min((row[0].start_ns for row in self.rows if row), default=0)

    @cached_property
    def end_ns(self) -> int:
        """Last end on any rank."""
        return max((row[-1].end_ns for row in self.rows if row), default=0)

    @property
    def makespan_ns(self) -> int:
        """From the first start to the last end."""
        return self.end_ns - self.begin_ns

    @property
    def tick_ns(self) -> Fraction:
        """Length of a tick of the plan, exactly as its decimal digits say."""
        return Fraction(repr(self.seconds_per_tick)) * NANOSECONDS

    def source(self, op: Op) -> tuple[int, Op] | None:
        """Rank and op that an op's message comes from; None where it needs none from another rank."""
        stage = op.stage + 1 if op.is_backward else op.stage - 1
        placement, count = self.schedule.placement, self.schedule.microbatches
        if op.kind is Kind.W or not 0 <= stage < placement.stage_count:
            return None
        rank = placement.rank_of(stage, op.microbatch, count)
        if rank == placement.rank_of(op.stage, op.microbatch, count):
            return None
        if not op.is_backward:
            return rank, Op(stage, Kind.F, op.microbatch)
        split = (stage, op.microbatch) in self._split
        return rank, Op(stage, Kind.I if split else Kind.B, op.microbatch)

    @cached_property
    def _split(self) -> frozenset[tuple[int, int]]:
        return frozenset((op.stage, op.microbatch) for row in self.schedule.ops for op in row if op.kind is Kind.I)


def trace_of(timeline: Timeline) -> Trace:
    """The plan as a trace: ranks wait from the end of one op for the message of the next."""
    problem, schedule = timeline.problem, timeline.schedule
    tick_ns = int(SECONDS[problem.unit] * NANOSECONDS)
    before, lag = op_inputs(problem.instance(schedule.sizes), schedule)
    rank_of = np.repeat(np.arange(problem.ranks), np.diff(schedule.table.offsets))
    remote = (before >= 0) & (rank_of[before] != rank_of[:, None])
    arrival = np.where(remote, timeline.end[before] + lag, -1).max(axis=1, initial=-1).tolist()
    during, after, offsets = timeline.during.tolist(), timeline.after.tolist(), schedule.table.offsets.tolist()
    rows = []
    for rank in range(problem.ranks):
        row: list[Ran] = []
        for index, (op, start, end) in enumerate(timeline.of(rank), offsets[rank]):
            asked = row[-1].end_ns if row else 0
            arrived = arrival[index] * tick_ns
            times = (asked, arrived) if arrived >= 0 else (None, None)
            nbytes = _message_bytes(timeline, op)
            row.append(Ran(op, start * tick_ns, end * tick_ns, during[index], after[index], nbytes, *times))
        rows.append(tuple(row))
    return Trace(schedule, tuple(rows), float(SECONDS[problem.unit]))


def _message_bytes(timeline: Timeline, op: Op) -> int:
    """Bytes that an op sends by the plan; that of a gradient is as large as the activation it belongs to."""
    sizes: Sequence[int] = timeline.schedule.sizes
    message = timeline.problem.links.message
    at = op.stage - 1 if op.is_backward else op.stage
    if op.kind is Kind.W or not message or not 0 <= at < timeline.problem.stages - 1:
        return 0
    return price(message[at], sizes[op.microbatch])
