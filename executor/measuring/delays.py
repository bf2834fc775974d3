"""What messages take inside a running pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from adaptpipe.solver import Kind, Placement

from ..report import OpRecord


def message_delays(placement: Placement, everyone: Sequence[Sequence[OpRecord]]) -> list[float]:
    """Seconds from the end of an op to the start of one on another rank that was waiting for it alone.

    Parameters
    ----------
    placement
        Stage to rank.
    everyone
        For each rank, its ops as they ran; the ranks' clocks must agree, as they do on one machine.

    Examples
    --------
    >>> from adaptpipe.solver import Op, place
    >>> sent, idle, waiting = Op(0, Kind.F, 1), Op(1, Kind.F, 0), Op(1, Kind.F, 1)
    >>> first = [OpRecord(sent, 1.0, 2.0, 0, 0)]
    >>> second = [OpRecord(idle, 0.5, 1.0, 0, 0), OpRecord(waiting, 2.25, 3.0, 0, 0)]
    >>> message_delays(place("linear", 2), [first, second])
    [0.25]
    """
    ends = {
        (record.op.stage, "F" if record.op.kind is Kind.F else "B", record.op.microbatch): record.end_s
        for records in everyone
        for record in records
        if record.op.kind is not Kind.W
    }
    count = 1 + max((record.op.microbatch for records in everyone for record in records), default=0)
    delays = []
    for records in everyone:
        free = 0.0
        for record in records:
            op, row = record.op, "F" if record.op.kind is Kind.F else "B"
            source = (op.stage - 1 if row == "F" else op.stage + 1, row, op.microbatch)
            sent = ends.get(source)
            crosses = sent is not None and op.kind is not Kind.W
            if crosses and sent is not None and free and free < sent:
                here, there = (placement.rank_of(stage, op.microbatch, count) for stage in (op.stage, source[0]))
                if here != there:
                    delays.append(record.start_s - sent)
            free = record.end_s
    return delays
