"""What a run of the study leaves behind, so that a part can be run again and the report made anew."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one search found.

    `bound` holds for `proven_for`; `fused` and `cut` are shares of the backwards.
    """

    value: int
    bound: int
    status: str
    proven_for: str
    found_by: str
    time_s: float
    sizes: tuple[int, ...]
    fused: float
    cut: float


class Study(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answers of one case in one set, by granularity; "none" is what gains are over."""

    case: str
    set: str
    date: str
    machine: str
    time_limit_s: float
    workers: int
    seed: int
    answers: dict[str, Answer]


class Executed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two schedules run in turns: the best without choices of size, and the best with them.

    Seconds are medians over the pairs of steps; `gain` is the median of the paired gains, between its quartiles.
    """

    what: str
    date: str
    machine: str
    pairs: int
    predicted_s: tuple[float, float]
    measured_s: tuple[float, float]
    predicted_gain: float
    gain: float
    quartiles: tuple[float, float]
    chosen: str


class Book(msgspec.Struct, forbid_unknown_fields=True):
    """All that is kept: studies by set and case, and what was executed, by name."""

    studies: dict[str, Study] = msgspec.field(default_factory=dict)
    executed: dict[str, Executed] = msgspec.field(default_factory=dict)


def read(path: Path) -> Book:
    """What a file keeps; an empty book where there is no file yet."""
    return msgspec.json.decode(path.read_bytes(), type=Book) if path.exists() else Book()


def write(path: Path, book: Book) -> None:
    """Replace the file at once, so that an interrupt leaves the old or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".part")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(book), indent=1) + b"\n")
    os.replace(fresh, path)
