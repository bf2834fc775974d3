"""Traces as files for ui.perfetto.dev and chrome://tracing, which `reading` reads back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..files.reading import write_text
from ..files.schedule_file import as_spec
from .trace import Ran, Trace

FORMAT = "adaptpipe-trace"
VERSION = 1
COMPUTE, RECEIVE, SEND = 0, 1, 2
"""Tracks of a rank: its ops; its waits for messages; its messages on their way, on as many tracks as it takes."""

Event = dict[str, object]


def trace_events(trace: Trace) -> list[Event]:
    """Events of a trace: a process for each rank, with its ops, waits and messages on their way, and its memory.

    Times are microseconds, memory bytes. Events of one track never overlap: Perfetto drops those that do. Ops of no
    duration stay in, as events of no duration.
    """
    events: list[Event] = []
    for rank, row in enumerate(trace.rows):
        events += _names(rank, COMPUTE, "compute")
        events += _names(rank, RECEIVE, "wait for messages")
        for ran in row:
            events.append(_op(rank, ran, trace))
            events.append(_counter(rank, ran.start_ns, ran.during_bytes))
            events.append(_counter(rank, ran.end_ns, ran.after_bytes))
        events += _waits(trace, rank)
    return [*events, *_messages(trace)]


def save_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace, with the schedule that was planned; open it at ui.perfetto.dev.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    document = {
        "displayTimeUnit": "ns",
        "adaptpipe": {
            "format": FORMAT,
            "version": VERSION,
            "seconds_per_tick": trace.seconds_per_tick,
            "schedule": as_spec(trace.schedule),
        },
        "traceEvents": trace_events(trace),
    }
    write_text(path, msgspec.json.encode(document).decode())


def microseconds(count_ns: int) -> float:
    """Nanoseconds as the format wants them; a reader that cuts the digits off gets the same nanoseconds.

    Examples
    --------
    >>> microseconds(1500), int(microseconds(1001) * 1000), int(1.001 * 1000)
    (1.5, 1001, 1000)
    """
    value = count_ns / 1000
    return value if int(value * 1000) == count_ns else math.nextafter(value, math.inf)


def _span(rank: int, track: int, name: str, category: str, start_ns: int, end_ns: int) -> Event:
    start, length = microseconds(start_ns), microseconds(end_ns - start_ns)
    return {"ph": "X", "pid": rank, "tid": track, "name": name, "cat": category, "ts": start, "dur": length}


def _op(rank: int, ran: Ran, trace: Trace) -> Event:
    op = ran.op
    args: dict[str, object] = {
        "stage": op.stage,
        "micro-batch": op.microbatch,
        "samples": trace.schedule.sizes[op.microbatch],
        "bytes_during": ran.during_bytes,
        "bytes_after": ran.after_bytes,
        "message_bytes": ran.message_bytes,
    }
    if ran.asked_ns is not None and ran.arrived_ns is not None:
        args |= {"asked_ns": ran.asked_ns, "arrived_ns": ran.arrived_ns, "wait_ns": ran.wait_ns}
    return _span(rank, COMPUTE, str(op), op.kind.name, ran.start_ns, ran.end_ns) | {"args": args}


def _waits(trace: Trace, rank: int) -> Iterator[Event]:
    """Times in which the rank waited for a message; weight gradients may run meanwhile."""
    free = trace.begin_ns
    for ran in trace.rows[rank]:
        source = trace.source(ran.op)
        if source is None or ran.asked_ns is None or ran.arrived_ns is None:
            continue
        start = max(ran.asked_ns, free)
        if ran.arrived_ns > start:
            free = ran.arrived_ns
            yield _span(rank, RECEIVE, f"{source[1]} from rank {source[0]}", "wait", start, free)


def _messages(trace: Trace) -> Iterator[Event]:
    """Messages that take time, on their sender's process: from the end of the op to the arrival."""
    ends = {ran.op: ran.end_ns for row in trace.rows for ran in row}
    flights = []
    for rank, row in enumerate(trace.rows):
        for ran in row:
            source = trace.source(ran.op)
            if source is not None and ran.arrived_ns is not None and ran.arrived_ns > ends[source[1]]:
                flights.append((source[0], ends[source[1]], ran.arrived_ns, str(source[1]), rank))
    free: dict[int, list[int]] = {}
    for rank, start, end, name, to in sorted(flights):
        # Tracks of a rank, by the time at which each is free again: the first one that is free takes the message.
        tracks = free.setdefault(rank, [])
        track = next((k for k, until in enumerate(tracks) if until <= start), len(tracks))
        if track == len(tracks):
            tracks.append(end)
            yield from _names(rank, SEND + track, f"messages sent {track + 1}")
        tracks[track] = end
        yield _span(rank, SEND + track, f"{name} to rank {to}", "message", start, end)


def _counter(rank: int, at_ns: int, held: int) -> Event:
    at = microseconds(at_ns)
    return {"ph": "C", "pid": rank, "tid": COMPUTE, "name": "memory", "ts": at, "args": {"bytes": held}}


def _names(rank: int, track: int, name: str) -> list[Event]:
    return [
        {"ph": "M", "pid": rank, "tid": track, "name": "process_name", "args": {"name": f"rank {rank}"}},
        {"ph": "M", "pid": rank, "tid": track, "name": "process_sort_index", "args": {"sort_index": rank}},
        {"ph": "M", "pid": rank, "tid": track, "name": "thread_name", "args": {"name": name}},
        {"ph": "M", "pid": rank, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}},
    ]
