"""Sleep until a moment, and not beyond it."""

from __future__ import annotations

import time

_SPUN_S = 40e-6
"""The seconds before the moment that are not slept: what a sleep takes too long (30 us in the median with the least
timer slack, measured with 2 ranks to a core) would come on top."""


def sleep_until(moment_s: float) -> None:
    """Return at a moment of `time.perf_counter`, or at once if it has passed.

    Examples
    --------
    >>> begin = time.perf_counter()
    >>> sleep_until(begin + 0.001)
    >>> time.perf_counter() >= begin + 0.001
    True
    """
    if (left := moment_s - time.perf_counter() - _SPUN_S) > 0:
        time.sleep(left)
    while time.perf_counter() < moment_s:
        pass
