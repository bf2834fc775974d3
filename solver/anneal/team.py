"""Several processes that anneal the same schedule, each in its own way."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from queue import Empty
from types import TracebackType
from typing import Self

import numpy as np

from ..core.schedule import Array
from .cooling import cool
from .process import DONE, LOST, READY, Round, Worker
from .state import State

GRACE_S = 0.5
"""Seconds that a worker gets to end a round after this process has."""

WARMER = (1.0, 8.0, 2.5, 20.0)
"""Temperatures of this process and of the workers, in turns. Large schedules want to be cold, as a warm one does not
find back to where it started; small ones with little memory must get worse by a good part of an op to get better."""


class Team:
    """This process and some workers, which run while its context is open.

    Parameters
    ----------
    state
        What is annealed; it takes over what the workers find.
    workers
        Processes beside this one.
    seed
        Of this process; that of worker w is seed + 1 + w.
    """

    def __init__(self, state: State, workers: int, seed: int) -> None:
        self._state, self._count, self._seed = state, workers, seed
        self._workers: list[Worker] = []
        self._number = 0

    def __enter__(self) -> Self:
        state = pickle.dumps(self._state) if self._count else b""
        try:
            for w in range(self._count):
                self._workers.append(Worker(state, self._seed + 1 + w, WARMER[(w + 1) % len(WARMER)]))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for worker in self._workers:
            worker.close()

    def round(
        self,
        iterations: int | None,
        deadline: float | None,
        heat: float,
        target: int,
        report: Callable[[], None],
    ) -> None:
        """One round of all, from the best so far; then the state has the best of all.

        By moves, whose find counts does not depend on who is faster: this process's, then that of the first worker
        that has the least value. A process that is lost leaves the others as they are.
        """
        state, best = self._state, self._state.now.best.copy()
        state.restart(best)
        self._number += 1
        found: list[tuple[int, int, Array]] = []

        def start(worker: Worker) -> None:
            seconds = None if deadline is None else deadline - time.monotonic()
            worker.start(Round(self._number, best.tobytes(), iterations, seconds, heat * worker.warmer, target))

        if iterations is not None:
            for worker in self._workers:
                start(worker)
        for _ in cool(state, iterations, deadline, heat * WARMER[0], target):
            for index, worker in enumerate(list(self._workers)):
                self._hear(index, worker, found, 0.0)
                # Against the clock, one that is still being loaded is not waited for: it comes in when it is there.
                if iterations is None and worker.ready and not worker.busy:
                    start(worker)
            if iterations is None and found:
                self._take(found)
            report()
            if state.best <= target:
                return
        for index, worker in enumerate(list(self._workers)):
            while worker.busy and worker in self._workers:
                left = None if deadline is None else deadline + GRACE_S - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._hear(index, worker, found, left)
        self._take(found)
        report()

    def _take(self, found: list[tuple[int, int, Array]]) -> None:
        for value, _, order in sorted(found, key=lambda each: each[:2])[:1]:
            self._state.take_best(value, order)
        found.clear()

    def _hear(self, index: int, worker: Worker, found: list[tuple[int, int, Array]], wait: float | None) -> None:
        """Take what a worker has found, until its round is over, or nothing more has come for `wait` seconds."""
        while True:
            try:
                message = worker.found.get(block=wait != 0.0, timeout=wait or None)
            except Empty:
                return
            if message.what == LOST:
                self._workers.remove(worker)
                worker.close()
                return
            if message.what == READY:
                worker.ready = True
                continue
            found.append((message.value, index, np.frombuffer(message.order, dtype=np.int64)))
            if message.what == DONE and message.number == worker.round:
                worker.round = 0
                return
