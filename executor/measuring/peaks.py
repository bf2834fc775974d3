"""The most bytes that pieces of work allocate, by the allocator's own account."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import torch
from torch.profiler import ProfilerActivity, profile, record_function

_MARK = "a piece of work, number "


def peak_bytes(pieces: Sequence[Callable[[], None]], device: torch.device) -> tuple[int, ...]:
    """The most bytes that each piece held at once, beyond what was held when it began.

    On the processor from the memory events of torch's profiler, which sees the calling thread; on a GPU from the
    allocator's statistics, which is untested.

    Examples
    --------
    >>> kept = []
    >>> def work():
    ...     x = torch.ones(256)
    ...     y = x.exp()
    ...     del x
    ...     y.exp()
    >>> peak_bytes([lambda: kept.append(torch.ones(64)), work, kept.clear], torch.device("cpu"))
    (256, 2048, 0)
    """
    return tuple(map(_on_gpu(device), pieces)) if device.type == "cuda" else _on_processor(pieces)


def _on_gpu(device: torch.device) -> Callable[[Callable[[], None]], int]:
    def peak(piece: Callable[[], None]) -> int:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        piece()
        return max(0, torch.cuda.max_memory_allocated(device) - before)

    return peak


def _on_processor(pieces: Sequence[Callable[[], None]]) -> tuple[int, ...]:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler tells stderr that it starts and stops
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        for number, piece in enumerate(pieces):
            with record_function(f"{_MARK}{number}"):
                piece()
        with record_function(f"{_MARK}{len(pieces)}"):  # what is freed from here on belongs to none
            pass
    result = profiler.profiler
    assert result is not None
    assert result.kineto_results is not None
    held, peaks = 0, [0]
    for event in sorted(result.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name().startswith(_MARK):
            held = 0
            peaks.append(0)
        elif event.name() == "[memory]":
            held += event.nbytes()
            peaks[-1] = max(peaks[-1], held)
    assert len(peaks) == len(pieces) + 2, "every piece is marked"
    return tuple(peaks[1:-1])
