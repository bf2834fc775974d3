"""How unevenly experts are met, and what that costs: the busiest of the devices that share them sets the pace."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from adaptpipe.solver import InputError

_DRAWS = 4000

_EVEN = 1e-6
"""Variation below which experts are met evenly."""

MOST_VARIATION = 3.0
"""Of how often experts are chosen: beyond, nearly all tokens meet one of them."""


@lru_cache(maxsize=64)
def busiest(count: int, holders: int, variation: float) -> tuple[float, float]:
    """Load of the busiest of the devices that hold a block's experts, over the average load.

    How often each expert is chosen is drawn from a gamma distribution; each device holds as many experts as the others,
    and all wait for the one whose experts are chosen most. The spread is what changes from one micro-batch and block to
    the next: noise for whoever judges a plan by it.

    Parameters
    ----------
    count, holders
        Experts, and devices that hold them; a divisor.
    variation
        Standard deviation, over the mean, of how often an expert is chosen.

    Returns
    -------
    mean, spread
        Mean and standard deviation of the busiest device's load over the average; 1 and 0 where one holds all.

    Raises
    ------
    InputError
        When the variation is not from 0 to `MOST_VARIATION`.

    Examples
    --------
    >>> busiest(64, 1, 0.2), busiest(64, 8, 0.0)
    ((1.0, 0.0), (1.0, 0.0))
    >>> mean, spread = busiest(256, 64, 0.2)
    >>> 1.2 < mean < 1.3, 0 < spread < 0.1
    (True, True)
    """
    if not isinstance(variation, int | float) or not 0 <= variation <= MOST_VARIATION:
        raise InputError(f"expert_imbalance = {variation!r}: must be a number from 0 to {MOST_VARIATION:g}")
    if holders == 1 or variation < _EVEN:
        return 1.0, 0.0
    shape = 1 / variation**2
    drawn = np.random.default_rng(0).gamma(shape * (count // holders), size=(_DRAWS, holders))
    load = drawn.max(axis=1) / drawn.mean(axis=1)
    return float(load.mean()), float(load.std())
