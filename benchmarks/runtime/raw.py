"""What a run of the benchmark leaves behind: figures of each case, and the ratios made of them."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec

THEIRS, OURS, ADAPTIVE = "theirs", "ours", "adaptive"


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One side of a case.

    Parameters
    ----------
    cpu_s
        For each step the seconds of processor, all ranks and their threads together.
    wall_s
        For each step the seconds from one barrier to the next, of the slowest rank.
    peak_bytes
        For each rank the most bytes that a step holds.
    """

    cpu_s: tuple[float, ...]
    wall_s: tuple[float, ...]
    peak_bytes: tuple[int, ...]


class Ratios(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ours over theirs.

    Parameters
    ----------
    cpu_ratio, wall_ratio
        Medians over steps that ran back to back.
    peak_ratio
        Of the rank where it is largest.
    """

    cpu_ratio: float
    wall_ratio: float
    peak_ratio: float


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule on some ranks.

    Parameters
    ----------
    schedule, ranks, split
        As of the case.
    difference
        Largest difference between a parameter's gradients, relative to the largest of them.
    sides
        By name: theirs, ours, and ours with adaptive execution where there is a weight gradient that can move.
    """

    schedule: str
    ranks: int
    split: bool
    difference: float
    sides: dict[str, Figures]

    def ratios(self, side: str = OURS) -> Ratios:
        """A side over theirs."""
        ours, theirs = self.sides[side], self.sides[THEIRS]
        return Ratios(
            cpu_ratio=median(a / b for a, b in zip(ours.cpu_s, theirs.cpu_s, strict=True)),
            wall_ratio=median(a / b for a, b in zip(ours.wall_s, theirs.wall_s, strict=True)),
            peak_ratio=max(a / b for a, b in zip(ours.peak_bytes, theirs.peak_bytes, strict=True)),
        )


class Book(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of the benchmark."""

    date: str
    machine: str
    torch: str
    pairs: int
    cases: tuple[Measured, ...]


def read(path: Path) -> Book:
    """A book that `write` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Book)


def write(path: Path, book: Book) -> None:
    """Keep a book."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(book), indent=1) + b"\n")


def summary(book: Book) -> list[dict[str, object]]:
    """The ratios of each schedule and number of ranks, and beside them those of adaptive execution."""
    return [
        {
            "schedule": case.schedule,
            "ranks": case.ranks,
            **msgspec.to_builtins(case.ratios()),
            **({ADAPTIVE: msgspec.to_builtins(case.ratios(ADAPTIVE))} if ADAPTIVE in case.sides else {}),
        }
        for case in book.cases
    ]
