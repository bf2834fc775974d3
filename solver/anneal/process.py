"""A worker's process, seen from the one that started it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import BinaryIO

READY, BETTER, DONE, LOST = "ready", "better", "done", "lost"


@dataclass(frozen=True, slots=True)
class Found:
    """What a worker says.

    Parameters
    ----------
    what
        `READY`: it is loaded. `BETTER`: it has found something better. `DONE`: its round is over. `LOST`: it is gone.
    number
        Of its round.
    value, order
        Its best value, in ticks, and the bytes of the order that has it.
    """

    what: str
    number: int = 0
    value: int = 0
    order: bytes = b""


@dataclass(frozen=True, slots=True)
class Round:
    """What a worker is told to do; see `cooling.cool`.

    Parameters
    ----------
    number
        Of the round, which answers repeat.
    order
        Bytes of the order to start from.
    iterations, seconds
        Moves, or the time from when this arrives.
    heat, target
        Highest temperature, and the value at which to stop, in ticks.
    """

    number: int
    order: bytes
    iterations: int | None
    seconds: float | None
    heat: float
    target: int


class Worker:
    """A process of its own, whatever program this is part of: nothing of that is imported or run again there.

    Nothing here waits for it: what it is told goes through a thread, as a pipe takes no more than the process has read.

    Parameters
    ----------
    state
        The pickled `State`.
    seed
        Of its moves.
    warmer
        Its temperatures, as multiples of those of a round.
    """

    def __init__(self, state: bytes, seed: int, warmer: float) -> None:
        self.warmer, self.ready, self.round = warmer, False, 0
        self.found: SimpleQueue[Found] = SimpleQueue()
        self._tasks: SimpleQueue[bytes | None] = SimpleQueue()
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
        Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        Thread(target=self._tell, args=(self._process.stdin,), daemon=True).start()
        self._tasks.put(state)
        self._tasks.put(pickle.dumps(seed))

    @property
    def busy(self) -> bool:
        """Whether a round has begun and not ended."""
        return self.round > 0

    def start(self, task: Round) -> None:
        """Begin a round."""
        self.round = task.number
        self._tasks.put(pickle.dumps(task))

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._tasks.put(None)

    def _tell(self, stream: BinaryIO) -> None:
        try:
            while (task := self._tasks.get()) is not None:
                stream.write(task)
                stream.flush()
            stream.close()
        except OSError:
            self.found.put(Found(LOST))

    def _listen(self, stream: BinaryIO) -> None:
        try:
            while True:
                self.found.put(pickle.load(stream))
        except (EOFError, OSError, pickle.UnpicklingError):
            self.found.put(Found(LOST))
        stream.close()
