"""What a step took: times, bytes, loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adaptpipe.solver import Op, Schedule
from adaptpipe.solver.traces.trace import NANOSECONDS, Ran, Trace


@dataclass(frozen=True, slots=True)
class OpRecord:
    """One op as it ran.

    Parameters
    ----------
    op
        What ran.
    start_s, end_s
        Seconds of `time.perf_counter`, which processes of one machine share on Linux. Waiting for messages and sending
        them is not in between. On a GPU they are the times at which the host queued the op.
    held_bytes
        What the stage holds for this micro-batch once the op has ended: after F all that the backward needs, after I
        or a part of W what still waits for W, else 0. Weights, buffers and the batch itself do not count.
    message_bytes
        What the op passed on to another stage.
    busy_s
        Seconds for which the op had the processor: on a busy machine less than what passed meanwhile.
    asked_s, arrived_s
        When the rank first had nothing else to do before the op than its message, and when that had arrived, which may
        be long before; None where the op needs none from another rank.
    in_wait
        Whether it is a W that ran because the message of the next other op had not arrived.
    """

    op: Op
    start_s: float
    end_s: float
    held_bytes: int
    message_bytes: int
    busy_s: float = 0.0
    asked_s: float | None = None
    arrived_s: float | None = None
    in_wait: bool = False

    @property
    def wait_s(self) -> float:
        """Seconds in which the op's message was waited for; weight gradients may have filled them."""
        if self.asked_s is None or self.arrived_s is None:
            return 0.0
        return max(0.0, self.arrived_s - self.asked_s)


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of one rank.

    Parameters
    ----------
    step
        Number of the step, from 0.
    loss
        Mean loss of the batch, the same on every rank.
    records
        The rank's ops in the order in which they ran.
    peak_bytes
        The most that ops of this rank held at once: the sum over its stages and micro-batches, as the memory model of
        a problem counts it, without static memory. Versions of weights beyond the newest count, too.
    received_bytes
        The most that messages which had arrived and were not taken yet held at once, besides.
    message_bytes
        The most that all messages held at once: received ones, those on their way to other ranks, and those between
        two stages of this rank.
    step_s
        Seconds from the call to the loss.
    versions
        The most versions of a stage's weights that were alive at once; more than 1 in asynchronous schedules only.
    """

    step: int
    loss: float
    records: tuple[OpRecord, ...]
    peak_bytes: int
    received_bytes: int
    message_bytes: int
    step_s: float
    versions: int = 1

    @property
    def units_in_waits(self) -> int:
        """How many weight units, or ranges of units, ran while the rank waited for a message."""
        return sum(record.in_wait for record in self.records)


def as_trace(schedule: Schedule, rows: Sequence[Sequence[OpRecord]], seconds_per_tick: float) -> Trace:
    """One step of all ranks as a trace, whose clock begins with the first op.

    Parameters
    ----------
    schedule
        What was planned.
    rows
        For each rank, its records.
    seconds_per_tick
        How long a tick of the plan was to take.

    Raises
    ------
    InputError
        If the records are not those of the schedule.
    """
    begin = min((row[0].start_s for row in rows if row), default=0.0)

    def ns(seconds: float) -> int:
        return round((seconds - begin) * NANOSECONDS)

    ran: list[tuple[Ran, ...]] = []
    for records in rows:
        held: dict[tuple[int, int], int] = {}
        row: list[Ran] = []
        for record in records:
            before = sum(held.values())
            held[record.op.stage, record.op.microbatch] = record.held_bytes
            after = sum(held.values())
            row.append(
                Ran(
                    op=record.op,
                    start_ns=ns(record.start_s),
                    end_ns=ns(record.end_s),
                    during_bytes=max(before, after),
                    after_bytes=after,
                    message_bytes=record.message_bytes,
                    asked_ns=None if record.asked_s is None else ns(record.asked_s),
                    arrived_ns=None if record.arrived_s is None else ns(record.arrived_s),
                )
            )
        ran.append(tuple(row))
    return Trace(schedule, tuple(ran), seconds_per_tick)


def makespan_s(step: Sequence[Sequence[OpRecord]]) -> float:
    """Seconds from the first start to the last end, of all ranks' ops."""
    ran = [record for row in step for record in row]
    return max(record.end_s for record in ran) - min(record.start_s for record in ran)
