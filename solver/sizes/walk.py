"""Divisions and policies of the greedy, changed together."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from random import Random

from ..core.division import Sizes
from ..core.granularity import Granularity
from ..greedy.policy import Policy, change
from .trial import Trial

HEAT = 0.03
"""Highest temperature as a share of the mean duration of an op."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the greedy makes of a division under a policy: its value, in ticks."""

    value: int
    sizes: Sizes
    policy: Policy


def walk(
    trial: Trial, start: Found, free: Granularity, random: Random, tries: int | None, deadline: float | None
) -> Iterator[Found]:
    """Better divisions and policies by simulated annealing from a good one, each as it is found.

    A small change of a policy moves many ops at once, and it keeps to the memory whatever the sizes are. So it gets
    over what resizing under a fixed order, in full memory, cannot.

    Parameters
    ----------
    free
        Whether divisions change, too, and whether policies may fuse.
    tries, deadline
        Runs of the greedy after which, and value of `time.monotonic()` at which, the walk ends; at least one of them.
    """
    assert tries is not None or deadline is not None, "a walk needs an end"
    now, best, began, done = start, start.value, time.monotonic(), 0
    heat = HEAT * start.value / (3 * len(start.sizes))
    left = 1.0
    while True:
        if tries is not None:
            left = (tries - done) / tries if tries else 0.0
        elif done % 8 == 0:
            assert deadline is not None
            left = (deadline - time.monotonic()) / max(deadline - began, 1e-9)
        if left <= 0 or (deadline is not None and done % 8 == 0 and time.monotonic() >= deadline):
            return
        done += 1
        part, sizes, policy = random.random(), now.sizes, now.policy
        if free.sizes and part < 0.6:
            sizes = moved(sizes, trial.problem.sizes, random)
        if not free.sizes or part > 0.4:
            policy = change(policy, len(sizes), random, free.fused, False)
        below = now.value + 1 + int(-heat * left**2 * log(1 - random.random()))
        trial.divide(sizes)
        value = trial.value(policy, below)
        if value is None:
            continue
        now = Found(value, sizes, policy)
        if value < best:
            best = value
            yield now


def moved(division: Sizes, allowed: Sizes, random: Random) -> Sizes:
    """A division with a small change: samples moved, two exchanged, one moved, split, merged, spread out or gathered.

    The division itself, where none of some attempts gives allowed sizes.

    Examples
    --------
    >>> sum(moved((1, 2, 4, 4), (1, 2, 4, 8), Random(0)))
    11
    """
    for _ in range(_ATTEMPTS):
        sizes = list(division)
        if _move(sizes, allowed, random) and tuple(sizes) != division:
            return tuple(sizes)
    return division


_ATTEMPTS = 20


def _move(sizes: list[int], allowed: Sizes, random: Random) -> bool:
    """Change a division in place; whether the sizes are allowed ones."""
    part, i, j = random.random(), random.randrange(len(sizes)), random.randrange(len(sizes))
    if part < 0.5:
        other = _step(sizes[i], allowed, random)
        changed, sizes[i] = sizes[i] - other, other
        return _spread(sizes, i, changed, allowed, random)
    if part < 0.65:
        sizes[i], sizes[j] = sizes[j], sizes[i]
        return True
    if part < 0.8:
        sizes.insert(j, sizes.pop(i))
        return True
    if part < 0.85:
        whole, size = sizes.pop(i), random.choice(allowed)
        sizes.insert(i, size)
        sizes.insert(j, whole - size)
        return _is(whole - size, allowed)
    if part < 0.9:
        if i == j:
            return False
        sizes[i] += sizes[j]
        whole = sizes[i]
        sizes.pop(j)
        return _is(whole, allowed)
    if part < 0.95:
        return len(sizes) > 1 and _spread(sizes, -1, sizes.pop(i), allowed, random)
    size = random.choice(allowed)
    sizes.insert(j, size)
    return _spread(sizes, j, -size, allowed, random)


def _is(size: int, allowed: Sizes) -> bool:
    z = bisect_left(allowed, size)
    return z < len(allowed) and allowed[z] == size


def _step(size: int, allowed: Sizes, random: Random) -> int:
    """A size one step away."""
    z = bisect_left(allowed, size) + random.choice((-1, 1))
    return allowed[min(max(z, 0), len(allowed) - 1)]


def _spread(sizes: list[int], but: int, samples: int, allowed: Sizes, random: Random) -> bool:
    """Give samples to some of the others, or take them (below 0), in steps; whether that came out even."""
    for _ in range(_ATTEMPTS):
        if samples == 0:
            return True
        k = random.randrange(len(sizes))
        z = bisect_left(allowed, sizes[k]) + (1 if samples > 0 else -1)
        if k == but or not 0 <= z < len(allowed):
            continue
        step = allowed[z] - sizes[k]
        if abs(step) <= abs(samples):
            sizes[k] = allowed[z]
            samples -= step
    return False
