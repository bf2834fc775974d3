"""Traces of what ranks did, for Perfetto."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from adaptpipe.solver.files.reading import write_text

if TYPE_CHECKING:
    from adaptpipe.executor import OpRecord


def save_measured_trace(records: Sequence[Sequence[OpRecord]], path: Path) -> None:
    """Write one step as a Chrome trace: a process for each rank, a counter for the bytes that its ops hold.

    Parameters
    ----------
    records
        For each rank, its ops in order.
    path
        The file.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    begin = min((row[0].start_s for row in records if row), default=0.0)
    events: list[dict[str, object]] = []
    for rank, row in enumerate(records):
        events.append({"ph": "M", "pid": rank, "tid": 0, "name": "process_name", "args": {"name": f"rank {rank}"}})
        held: dict[tuple[int, int], int] = {}
        for record in row:
            op, start = record.op, (record.start_s - begin) * 1e6
            end = (record.end_s - begin) * 1e6
            held[op.stage, op.microbatch] = record.held_bytes
            events.append(
                {
                    "ph": "X",
                    "pid": rank,
                    "tid": 0,
                    "name": str(op),
                    "cat": op.kind.name,
                    "ts": start,
                    "dur": end - start,
                }
            )
            events.append(
                {
                    "ph": "C",
                    "pid": rank,
                    "tid": 0,
                    "name": "held bytes",
                    "ts": end,
                    "args": {"bytes": sum(held.values())},
                }
            )
    write_text(path, msgspec.json.encode({"traceEvents": events}).decode())
