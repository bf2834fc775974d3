"""Timeline as a trace for ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..core.ops import Op
from ..core.problem import SECONDS
from ..files.reading import write_text
from .simulate import op_inputs
from .timeline import Timeline

COMPUTE = 0
"""Track of a rank's ops; its messages in flight lie on tracks 1, 2, … so that none overlaps another."""

Event = dict[str, object]


def trace_events(timeline: Timeline) -> list[Event]:
    """Events of a timeline: a process for each rank, its ops, its messages in flight, and a counter of its memory.

    Times are microseconds, memory bytes. Events of one track never overlap: Perfetto drops those that do. Ops of no
    duration stay in, as events of no duration.
    """
    events: list[Event] = []
    to_us = float(SECONDS[timeline.problem.unit] * 10**6)
    offsets = timeline.schedule.table.offsets.tolist()
    during, after = timeline.during.tolist(), timeline.after.tolist()
    for rank in range(timeline.problem.ranks):
        events += _names(rank, COMPUTE, "compute")
        events.append(_counter(rank, 0.0, int(timeline.static[rank])))
        for index, (op, start, end) in enumerate(timeline.of(rank), offsets[rank]):
            begin, stop = start * to_us, end * to_us
            args = {"stage": op.stage, "micro-batch": op.microbatch, "samples": timeline.schedule.sizes[op.microbatch]}
            events.append(
                {"ph": "X", "pid": rank, "tid": COMPUTE, "name": str(op), "cat": op.kind.name, "ts": begin}
                | {"dur": stop - begin, "args": args}
            )
            events.append(_counter(rank, begin, during[index]))
            events.append(_counter(rank, stop, after[index]))
    return events + _messages(timeline, to_us)


def _counter(rank: int, at: float, held: int) -> Event:
    return {"ph": "C", "pid": rank, "tid": COMPUTE, "name": "memory", "ts": at, "args": {"bytes": held}}


def _names(rank: int, track: int, name: str) -> list[Event]:
    return [
        {"ph": "M", "pid": rank, "tid": track, "name": "process_name", "args": {"name": f"rank {rank}"}},
        {"ph": "M", "pid": rank, "tid": track, "name": "process_sort_index", "args": {"sort_index": rank}},
        {"ph": "M", "pid": rank, "tid": track, "name": "thread_name", "args": {"name": name}},
        {"ph": "M", "pid": rank, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}},
    ]


def _messages(timeline: Timeline, to_us: float) -> list[Event]:
    """Messages that take time, on the sender's process."""
    schedule = timeline.schedule
    flat: list[tuple[int, Op]] = [(rank, op) for rank, row in enumerate(schedule.ops) for op in row]
    before, lag = op_inputs(timeline.problem.instance(schedule.sizes), schedule)
    flights = []
    for target, (sources, lags) in enumerate(zip(before.tolist(), lag.tolist(), strict=True)):
        for source, wait in zip(sources, lags, strict=True):
            if source >= 0 and wait > 0:
                left = int(timeline.end[source])
                flights.append((flat[source][0], left, left + wait, str(flat[source][1]), flat[target][0]))
    events: list[Event] = []
    free: dict[int, list[int]] = {}
    for rank, start, end, name, to in sorted(flights):
        # Tracks of a rank, by the time at which each is free again: the first one that is free takes the message.
        tracks = free.setdefault(rank, [])
        track = next((k for k, until in enumerate(tracks) if until <= start), len(tracks))
        if track == len(tracks):
            tracks.append(end)
            events += _names(rank, track + 1, f"messages {track + 1}")
        tracks[track] = end
        begin, stop = start * to_us, end * to_us
        events.append(
            {"ph": "X", "pid": rank, "tid": track + 1, "name": f"{name} to rank {to}", "cat": "message", "ts": begin}
            | {"dur": stop - begin}
        )
    return events


def save_trace(timeline: Timeline, path: str | Path) -> None:
    """Write a trace; open it at ui.perfetto.dev.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    document = {"displayTimeUnit": "ns", "traceEvents": trace_events(timeline)}
    write_text(path, msgspec.json.encode(document).decode())
