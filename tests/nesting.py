"""A strict reader of Chrome traces: what Perfetto would drop or stack wrongly fails here."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

Span = tuple[int, int, str]


def tracks(events: Sequence[dict[str, Any]]) -> dict[tuple[int, int], list[Span]]:
    """(start, end, name) in nanoseconds by process and track, in order of their start; refuses what is malformed.

    Events of one track may lie one inside another; none may overlap another in part. Every process and track has a
    name, and times are cut off to whole nanoseconds as the strictest reader does.
    """
    found: dict[tuple[int, int], list[Span]] = {}
    processes: set[int] = set()
    threads: set[tuple[int, int]] = set()
    for event in events:
        where = (event["pid"], event["tid"])
        assert all(isinstance(number, int) and number >= 0 for number in where), event
        match event["ph"]:
            case "M":
                if event["name"] == "process_name":
                    processes.add(event["pid"])
                if event["name"] == "thread_name":
                    assert where not in threads, f"{where} is named twice"
                    threads.add(where)
            case "C":
                assert isfinite(event["ts"]), event
                assert all(isinstance(value, int) for value in event["args"].values()), event
            case "X":
                assert isfinite(event["ts"]), event
                assert event["dur"] >= 0, event
                start, length = int(event["ts"] * 1000), int(event["dur"] * 1000)
                found.setdefault(where, []).append((start, start + length, event["name"]))
            case other:
                raise AssertionError(f"{other} is no kind of event that we write")
    assert {pid for pid, _ in found} <= processes
    assert found.keys() <= threads
    for where, spans in found.items():
        spans.sort(key=lambda span: (span[0], -span[1]))
        stack: list[Span] = []
        for span in spans:
            while stack and stack[-1][1] <= span[0]:
                stack.pop()
            assert not stack or span[1] <= stack[-1][1], f"{where}: {span} overlaps {stack[-1]}"
            stack.append(span)
    return found
