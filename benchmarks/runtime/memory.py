"""The most bytes that a step holds, from the memory events of torch's profiler."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from torch.profiler import ProfilerActivity, profile, record_function

_MARK = "a step that counts"
_STEPS = 3


def peak_bytes(step: Callable[[], None]) -> int:
    """The most bytes that a step holds which were not held before the first step; the median of some steps.

    The first one is profiled and does not count: buffers that it makes for good belong to each. Parameters and, where
    they are there already, gradients do not. The profiler sees what the thread that calls it allocates and frees.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
        for _ in range(_STEPS):
            with record_function(_MARK):
                step()
    result = profiler.profiler
    assert result is not None
    assert result.kineto_results is not None
    events = sorted(result.kineto_results.events(), key=lambda event: event.start_ns())
    held, peaks = 0, [0]
    for event in events:
        if event.name() == _MARK:
            peaks.append(held)
        elif event.name() == "[memory]":
            held += event.nbytes()
            peaks[-1] = max(peaks[-1], held)
    assert len(peaks) == 1 + _STEPS, "every step is marked"
    return round(median(peaks[1:]))
