"""What local ranks are doing, told to the process that started them: it is all that is left of one that was killed."""

from __future__ import annotations

import time
from ctypes import Array, c_int64
from dataclasses import dataclass
from typing import ClassVar

from adaptpipe.solver import Kind, Op

from .errors import RankFailure

_FIELDS = 8
"""Numbers of each rank: whether it has begun a step, whether it is in an op, step, stage, kind and micro-batch of that
op or of the one before, since when, and how long others wait for it, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a rank is.

    Parameters
    ----------
    rank
        Its number.
    step
        Step that it has begun last.
    op
        The op that it is in, or has run last; None before the first.
    inside
        Whether it is in the op.
    for_s
        For how long it has been so.
    patience_s
        Seconds that a rank waits for a message of this step.
    """

    rank: int
    step: int
    op: Op | None
    inside: bool
    for_s: float
    patience_s: float

    @property
    def seems_to_hang(self) -> bool:
        """Whether it has been in an op for a good part of what others wait."""
        return self.inside and self.for_s > self.patience_s / 2

    def failure(self, cause: str, details: str = "") -> RankFailure:
        """What to say when it fails, and cannot say so itself."""
        if self.inside and self.op is not None:
            at = self.op
            return RankFailure(self.rank, at.stage, at.kind.name, at.microbatch, self.step, cause, details)
        after = "" if self.op is None else f", after {self.op}"
        return RankFailure(self.rank, None, None, None, self.step, cause + after, details)


class Board:
    """Memory in which each rank writes where it is, shared between the ranks and the process that started them.

    Parameters
    ----------
    cells
        `size` numbers, all zero, in shared memory.
    """

    mine: ClassVar[Place | None] = None
    """This process's place on the board of its parent; None where there is no such board."""

    def __init__(self, cells: Array[c_int64]) -> None:
        self._cells = memoryview(cells).cast("B").cast("q")

    @staticmethod
    def size(ranks: int) -> int:
        """How many numbers a board has."""
        return _FIELDS * ranks

    def place(self, rank: int) -> Place:
        """Where a rank writes."""
        return Place(self._cells[_FIELDS * rank : _FIELDS * (rank + 1)])

    def read(self, rank: int) -> Whereabouts | None:
        """Where a rank is; None before its first step."""
        cells = self._cells[_FIELDS * rank : _FIELDS * (rank + 1)]
        begun, inside, step, stage, kind, microbatch, since_ns, patience_ns = cells.tolist()
        if not begun:
            return None
        op = None if stage < 0 else Op(stage, Kind(kind), microbatch)
        return Whereabouts(rank, step, op, bool(inside), (time.monotonic_ns() - since_ns) / 1e9, patience_ns / 1e9)


class Place:
    """Where one rank writes."""

    def __init__(self, cells: memoryview) -> None:
        self._cells = cells

    def begin(self, step: int, patience_s: float) -> None:
        """A step begins, in which ranks wait for messages as long as this."""
        numbers = (1, 0, step, -1, 0, 0, time.monotonic_ns(), round(min(patience_s, 1e9) * 1e9))
        for index, number in enumerate(numbers):
            self._cells[index] = number

    def enter(self, op: Op) -> None:
        """An op begins."""
        cells = self._cells
        cells[3], cells[4], cells[5], cells[6] = op.stage, op.kind, op.microbatch, time.monotonic_ns()
        cells[1] = 1

    def leave(self) -> None:
        """It has ended."""
        self._cells[1] = 0
