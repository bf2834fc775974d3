"""Several processes that anneal the same schedule, each in its own way."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from ..core.schedule import Array
from .cooling import cool
from .state import State

GRACE_S = 0.5
"""Seconds that a worker gets to end a round after this process has."""

WARMER = (1.0, 8.0, 2.5, 20.0)
"""Temperatures of this process and of the workers, in turns. Large schedules want to be cold, as a warm one does not
find back to where it started; small ones with little memory must get worse by a good part of an op to get better."""

READY, BETTER, DONE = "ready", "better", "done"

Found = tuple[str, int, bytes]
"""From a worker: it is ready for a round, has found something better, or has ended its round; its best value, and the
order of it."""


class Worker:
    """A process of its own, whatever program this is part of: nothing of that is imported or run again there."""

    def __init__(self, state: State, seed: int, warmer: float) -> None:
        self._warmer = warmer
        self.found: SimpleQueue[Found | None] = SimpleQueue()
        self.ready = False
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # What a worker has to say when it fails would only get between the lines of progress.
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._into = self._process.stdin
        Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        self._send((state, seed))

    def start(self, order: Array, iterations: int | None, seconds: float | None, heat: float, target: int) -> None:
        """Begin a round from an order."""
        self._send((order.tobytes(), iterations, seconds, heat * self._warmer, target))

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    # What was not sent yet has no reader any more.
                    continue

    def _send(self, message: object) -> None:
        try:
            pickle.dump(message, self._into)
            self._into.flush()
        except OSError:
            self.found.put(None)

    def _listen(self, stream: BinaryIO) -> None:
        try:
            while True:
                self.found.put(pickle.load(stream))
        except (EOFError, OSError, pickle.UnpicklingError, ValueError):
            self.found.put(None)


class Team:
    """This process and some workers.

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
        self._state = state
        self._workers = [Worker(state, seed + 1 + w, WARMER[(w + 1) % len(WARMER)]) for w in range(workers)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

        By moves, whose find counts does not depend on who is faster: the least value, of the first worker that has it.
        """
        state, best = self._state, self._state.now.best_order.copy()
        state.restart(best)
        found: list[tuple[int, Array]] = []
        running: list[Worker] = []

        def start(worker: Worker) -> None:
            seconds = None if deadline is None else deadline - time.monotonic()
            worker.start(best, iterations, seconds, heat, target)
            running.append(worker)

        if iterations is not None:
            for worker in self._workers:
                start(worker)
        for _ in cool(state, iterations, deadline, heat * WARMER[0], target):
            for worker in list(self._workers):
                self._hear(worker, running, found, 0.0)
                # Against the clock, one that is still being loaded is not waited for: it comes in when it is there.
                if iterations is None and worker.ready and worker not in running:
                    start(worker)
            if iterations is None and found:
                value, order = min(found, key=lambda pair: pair[0])
                found.clear()
                state.take_best(value, order)
            report()
            if state.best <= target:
                return
        while running:
            left = None if deadline is None else deadline + GRACE_S - time.monotonic()
            if left is not None and left <= 0:
                break
            self._hear(running[0], running, found, left)
        for value, order in found:
            state.take_best(value, order)
        report()

    def _hear(self, worker: Worker, running: list[Worker], found: list[tuple[int, Array]], wait: float | None) -> None:
        """Take what a worker has found, until its round is over, or nothing more has come for `wait` seconds."""
        while True:
            try:
                message = worker.found.get(block=wait != 0.0, timeout=wait or None)
            except Empty:
                return
            if (message is None or message[0] == DONE) and worker in running:
                running.remove(worker)
            if message is None:
                # It is gone, for whatever reason; the others go on.
                self._workers.remove(worker)
                return
            what, value, order = message
            if what == READY:
                worker.ready = True
                continue
            found.append((value, np.frombuffer(order, dtype=np.int64)))
            if what == DONE:
                return
