"""One round of annealing: from warm to cold, within moves or time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol


class Annealed(Protocol):
    """What can be annealed: the best value so far, and moves from one temperature to another."""

    @property
    def best(self) -> int:
        """Best objective value, in ticks."""

    def run(self, moves: int, hot: float, cold: float, target: int) -> None:
        """Propose moves, from temperature `hot` to `cold` in ticks; may stop at a value of `target`."""


MOVES_AT_ONCE = 2_000
"""Moves between two looks at the clock, at first and where moves are what is counted."""

LOOK_S = 0.05
"""Seconds between two looks at the clock."""


def cool(state: Annealed, iterations: int | None, deadline: float | None, heat: float, target: int) -> Iterator[None]:
    """Anneal from `heat`, in ticks, to 0; gives way after some moves each time.

    The temperature falls with the square of what is left of the round: of its moves, or else of its time.
    """
    began, moves, done = time.monotonic(), MOVES_AT_ONCE, 0
    while state.best > target:
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            return
        if iterations is not None:
            moves = min(MOVES_AT_ONCE, iterations - done)
            if moves <= 0:
                return
            left, after = 1 - done / iterations, 1 - (done + moves) / iterations
        else:
            assert deadline is not None
            left = after = (deadline - now) / max(deadline - began, 1e-9)
        state.run(moves, heat * left**2, heat * after**2, target)
        done += moves
        if iterations is None:
            took = time.monotonic() - now
            moves = max(100, min(10**6, int(moves * min(2.0, LOOK_S / max(took, 1e-6)))))
        yield
