"""Reading traces back from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from ..core.errors import InputError
from ..core.ops import parse_op
from ..files.reading import convert, read_data
from ..files.schedule_file import ScheduleSpec, from_spec
from .trace import Ran, Trace
from .writing import COMPUTE, FORMAT, VERSION


class _Args(msgspec.Struct, frozen=True):
    bytes_during: int
    bytes_after: int
    message_bytes: int
    asked_ns: int | None = None
    arrived_ns: int | None = None


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    version: int
    seconds_per_tick: Annotated[float, msgspec.Meta(gt=0)]
    schedule: ScheduleSpec


class _Event(msgspec.Struct, frozen=True):
    ph: str
    pid: int
    tid: int
    name: str
    ts: float = 0.0
    dur: float = 0.0
    args: object = None


class _File(msgspec.Struct, frozen=True):
    adaptpipe: _Header
    traceEvents: list[_Event]


def load_trace(path: str | Path) -> Trace:
    """Read a trace that `save_trace` wrote.

    Raises
    ------
    InputError
        When the file cannot be read, or is no trace of a schedule, with the key or the event.
    """
    data = read_data(path)
    if "adaptpipe" not in data:
        raise InputError(f"{path}: holds no schedule, so it is not a trace of ours; adaptpipe run writes those")
    file = convert(str(path), data, _File)
    header = file.adaptpipe
    try:
        if (header.format, header.version) != (FORMAT, VERSION):
            raise InputError(f"format: {header.format!r} version {header.version} is not {FORMAT!r} version {VERSION}")
        schedule = from_spec(header.schedule)
        rows: list[list[Ran]] = [[] for _ in schedule.ops]
        for index, event in enumerate(file.traceEvents):
            if event.ph != "X" or event.tid != COMPUTE:
                continue
            place = f"traceEvents[{index}]"
            if not 0 <= event.pid < len(rows):
                raise InputError(f"{place}.pid: {event.pid} is not one of the {len(rows)} ranks")
            args = convert(f"{place}.args", event.args, _Args)
            start = round(event.ts * 1000)
            rows[event.pid].append(
                Ran(
                    parse_op(event.name),
                    start,
                    start + round(event.dur * 1000),
                    args.bytes_during,
                    args.bytes_after,
                    args.message_bytes,
                    args.asked_ns,
                    args.arrived_ns,
                )
            )
        return Trace(schedule, tuple(map(tuple, rows)), header.seconds_per_tick)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
