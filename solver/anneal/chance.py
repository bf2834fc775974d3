"""Compiled random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .bare import inner

# Compiled with bare.py 8636d929

Words = npt.NDArray[np.uint64]


@inner
def draw(random: Words) -> Any:  # pragma: no cover
    """Next number of a xorshift generator (Marsaglia, 2003)."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return x


@inner
def below(random: Words, n: int) -> Any:  # pragma: no cover
    """Random integer of 0..n-1."""
    return np.int64((draw(random) >> np.uint64(11)) % np.uint64(n))


@inner
def share(random: Words) -> float:  # pragma: no cover
    """Random number above 0, at most 1."""
    return (np.float64(draw(random) >> np.uint64(11)) + 1.0) / 9007199254740992.0
