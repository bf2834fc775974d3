"""Several searches that take turns on a few threads; their compiled parts run side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Protocol, TypeVar

LOOK_S = 0.05
"""Seconds between two looks at the clock."""


class Turn(Protocol):
    """What is searched in turns: moves, from one temperature to another, as shares of the highest."""

    def run(self, moves: int, hot: float, cold: float, goal: int) -> None:
        """Try moves; may stop at a value of `goal`."""

    def restart(self) -> None:
        """Go on from the best."""

    @property
    def best(self) -> int:
        """The best value."""


T = TypeVar("T")


def cool(search: Turn, seconds: float, stop: Event, goal: int = -1, warmth: float = 1.0) -> None:
    """Anneal from the best so far for some time; the temperature falls with the square of what is left of it."""
    if seconds <= 0:
        return
    search.restart()
    began, moves = time.monotonic(), 20
    while not stop.is_set() and search.best > goal:
        now = time.monotonic()
        left = 1 - (now - began) / seconds
        if left <= 0:
            return
        search.run(moves, warmth * left**2, warmth * left**2, goal)
        took = time.monotonic() - now
        moves = max(10, min(10**6, int(moves * min(4.0, LOOK_S / max(took, 1e-6)))))


def each(items: Sequence[T], work: Callable[[T], None], workers: int, stop: Event) -> None:
    """Do some work for each item, on as many threads as there are workers.

    Ctrl-C sets `stop`, waits for what is running, and is raised again.
    """
    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        try:
            for _ in pool.map(work, items):
                pass
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
