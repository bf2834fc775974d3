"""A worker's side: rounds of annealing by order of the process that started it."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np

from .cooling import cool
from .process import BETTER, DONE, READY, Found, Round
from .state import State


def main() -> None:
    """Read rounds from the standard input, write what is found to the standard output; end when it closes."""
    # Ctrl-C goes to every process of the terminal; this one is ended by the one that started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    came: SimpleQueue[tuple[Any, float]] = SimpleQueue()

    def listen() -> None:
        try:
            while True:
                came.put((pickle.load(source), time.monotonic()))
        except (EOFError, OSError):
            # The other side is gone, and with it all reason to go on.
            os._exit(0)

    Thread(target=listen, daemon=True).start()
    state: State = came.get()[0]
    state.reseed(came.get()[0])

    def tell(what: str, number: int) -> None:
        pickle.dump(Found(what, number, state.best, state.now.best.tobytes()), target)
        target.flush()

    tell(READY, 0)
    while True:
        task, moment = came.get()
        assert isinstance(task, Round)
        state.restart(np.frombuffer(task.order, dtype=np.int64))
        told = state.best
        deadline = None if task.seconds is None else moment + task.seconds
        for _ in cool(state, task.iterations, deadline, task.heat, task.target):
            if state.best < told and task.iterations is None:
                told = state.best
                tell(BETTER, task.number)
        tell(DONE, task.number)


if __name__ == "__main__":
    main()
