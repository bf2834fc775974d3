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
from .team import BETTER, DONE, READY


def main() -> None:
    """Read rounds from the standard input, write what is found to the standard output; end when it closes."""
    # Ctrl-C goes to every process of the terminal; this one is ended by the one that started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    rounds: SimpleQueue[Any] = SimpleQueue()

    def listen() -> None:
        try:
            while True:
                rounds.put((pickle.load(source), time.monotonic()))
        except (EOFError, OSError):
            # The other side is gone, and with it all reason to go on.
            os._exit(0)

    Thread(target=listen, daemon=True).start()
    (state, seed), _ = rounds.get()
    state.reseed(seed)

    def tell(what: str) -> None:
        pickle.dump((what, state.best, state.now.best_order.tobytes()), target)
        target.flush()

    tell(READY)
    while True:
        (order, iterations, seconds, heat, goal), came = rounds.get()
        state.restart(np.frombuffer(order, dtype=np.int64))
        told = state.best
        deadline = None if seconds is None else came + seconds
        for _ in cool(state, iterations, deadline, heat, goal):
            if state.best < told and iterations is None:
                told = state.best
                tell(BETTER)
        tell(DONE)


if __name__ == "__main__":
    main()
