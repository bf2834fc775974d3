"""What ops take on the device they run on: processor time, or the time between two events of a GPU's stream."""

from __future__ import annotations

import time
from typing import Protocol

import torch


class Stopwatch(Protocol):
    """Times pieces of work, one after the other."""

    def start(self) -> None:
        """Begin a piece."""

    def stop(self) -> None:
        """End it."""

    def take_s(self) -> tuple[float, ...]:
        """Seconds of all pieces since the last call, in their order; waits until they are done."""


class ProcessorStopwatch:
    """Seconds for which the thread had the processor: what else runs on the machine does not count.

    Examples
    --------
    >>> stopwatch = ProcessorStopwatch()
    >>> stopwatch.start()
    >>> time.sleep(0.1)
    >>> stopwatch.stop()
    >>> stopwatch.take_s()[0] < 0.05
    True
    """

    def __init__(self) -> None:
        self._begin_s = 0.0
        self._pieces_s: list[float] = []

    def start(self) -> None:
        """Begin a piece."""
        self._begin_s = time.thread_time()

    def stop(self) -> None:
        """End it."""
        self._pieces_s.append(time.thread_time() - self._begin_s)

    def take_s(self) -> tuple[float, ...]:
        """Seconds of all pieces since the last call, in their order."""
        taken = tuple(self._pieces_s)
        self._pieces_s.clear()
        return taken


class CudaStopwatch:
    """Seconds between two events of the current stream, so that the host may queue ahead, as in a run. Untested."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []

    def start(self) -> None:
        """Begin a piece."""
        self._record()

    def stop(self) -> None:
        """End it."""
        self._record()

    def take_s(self) -> tuple[float, ...]:
        """Seconds of all pieces since the last call, in their order; waits until they are done."""
        torch.cuda.synchronize(self._device)
        pairs = zip(self._events[::2], self._events[1::2], strict=True)
        taken = tuple(begin.elapsed_time(end) / 1e3 for begin, end in pairs)
        self._events.clear()
        return taken

    def _record(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's
        event.record(torch.cuda.current_stream(self._device))
        self._events.append(event)


def stopwatch_for(device: torch.device) -> Stopwatch:
    """The stopwatch of a device."""
    return CudaStopwatch(device) if device.type == "cuda" else ProcessorStopwatch()
