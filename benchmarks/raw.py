"""What a benchmark run leaves behind, so that a part can be run again and the report made anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A better schedule: after how many seconds, its value, the bound known then, and who found it."""

    time_s: float
    value: int
    bound: int
    found_by: str


class Heuristic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule by construction or by the greedy; without a value it does not exist or breaks the limit."""

    method: str
    value: int | None
    standing: str


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row: one run of `solve`, and the heuristics beside it.

    `start_s` is what the command takes beside the search: Python's start, imports, compiled code from its cache.
    """

    instance: str
    objective: Literal["makespan", "span"]
    date: str
    machine: str
    time_limit_s: float
    workers: int
    seed: int
    start_s: float
    unit: str
    status: str
    value: int | None
    bound: int
    makespan: int | None
    span: int | None
    bubble: float | None
    span_bubble: float | None
    found_by: str
    time_s: float
    reason: str
    steps: tuple[Step, ...]
    heuristics: tuple[Heuristic, ...]

    def best_at(self, seconds: float) -> int | None:
        """Value of the best schedule known by then; None where there is none, or the run was allowed less time."""
        if seconds > self.time_limit_s and not self.proven:
            return None
        return min((step.value for step in self.steps if step.time_s <= seconds), default=None)

    def gap(self, value: int | None) -> float | None:
        """How far a value lies above the final bound, as a share of it."""
        return None if value is None or not self.bound else value / self.bound - 1

    @property
    def proven(self) -> bool:
        """Whether the bound was met."""
        return self.status == "OPTIMAL"

    @property
    def best_heuristic(self) -> Heuristic | None:
        """The least value among the heuristics; the first of equals."""
        found = [heuristic for heuristic in self.heuristics if heuristic.value is not None]
        return min(found, key=lambda heuristic: heuristic.value or 0, default=None)


Runs = dict[str, Run]
"""Runs by the key of their row."""


def read(path: Path) -> Runs:
    """Runs of a file; none where there is no file yet."""
    return msgspec.json.decode(path.read_bytes(), type=Runs) if path.exists() else {}


def write(path: Path, runs: Runs) -> None:
    """Replace the file at once, so that an interrupt leaves the old or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".part")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(runs), indent=1) + b"\n")
    os.replace(fresh, path)
