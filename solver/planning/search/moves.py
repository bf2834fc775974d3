"""Compiled small changes of a split, a placement and a policy."""

from __future__ import annotations

import numpy as np
from numba import njit

from ...anneal.chance import Words, below, share
from ...core.schedule import Array
from ...greedy.kernel import DEEP, FUSE, KEEP, PRIORITY, WAIT
from .point import Point

# Compiled with chance.py 55b96f21
# Compiled with kernel.py c162278c
# Compiled with point.py 69b8b633

WAITS = np.array([0, 4, 8, 12, 16, 20, 24, 32], dtype=np.int64)
KEEPS = np.array([0, 1, 2, 3, 4, 6, 8, 2**31], dtype=np.int64)
"""Values of the rules; see `greedy.kernel.run`."""


@njit(cache=True, nogil=True)
def transfer(now: Point, random: Words) -> bool:  # pragma: no cover
    """A layer goes from a stage to another, by way of those between them: half the time to a neighbour, a quarter to
    a stage of the same rank; False where the first has but one."""
    stages = len(now.row)
    if stages < 2:
        return False
    source, target = below(random, stages), 0
    kind = below(random, 4)
    if kind < 2:
        target = source + 1 if below(random, 2) == 0 else source - 1
    elif kind == 2:
        target = (source + 1 + below(random, stages - 1)) % stages
        for _ in range(stages):
            if target != source and now.row[target] == now.row[source]:
                break
            target = (target + 1) % stages
    else:
        target = below(random, stages)
    if target < 0 or target >= stages or target == source:
        return False
    if now.bounds[source + 1] - now.bounds[source] < 2:
        return False
    if source < target:
        now.bounds[source + 1 : target + 1] -= 1
    else:
        now.bounds[target + 1 : source + 1] += 1
    return True


@njit(cache=True, nogil=True)
def trade(now: Point, speed: Array, limit: Array, random: Words) -> None:  # pragma: no cover
    """Two ranks change places, with their rules; ranks that differ in speed or memory, if a few draws find such."""
    ranks = len(now.rules)
    one, other = below(random, ranks), below(random, ranks)
    for _ in range(4):
        if speed[one] != speed[other] or limit[one] != limit[other]:
            break
        one, other = below(random, ranks), below(random, ranks)
    for s in range(len(now.row)):
        if now.row[s] == one:
            now.row[s] = other
        elif now.row[s] == other:
            now.row[s] = one
    for rule in range(now.rules.shape[1]):
        now.rules[one, rule], now.rules[other, rule] = now.rules[other, rule], now.rules[one, rule]


@njit(cache=True, nogil=True)
def vary(now: Point, count: int, random: Words, fusing: bool) -> None:  # pragma: no cover
    """One change of the policy, at a stage or a run of neighbours; as `policy.change`."""
    stages = len(now.row)
    part = share(random)
    start = below(random, stages)
    length = 1 if share(random) < 0.7 else 1 + below(random, stages)
    stop = min(start + length, stages)
    if part < 0.45:
        step = 2 * below(random, 2) - 1
        for s in range(start, stop):
            now.ahead[s] = min(max(now.ahead[s] + step, 1), count)
    elif part < 0.55:
        now.pace[0] = max(0, now.pace[0] + 2 * below(random, 2) - 1)
        now.pace[1] = max(0, now.pace[1] + below(random, 3) - 1)
    else:
        pick = below(random, 14 if fusing else 10)
        if pick < 4:
            rule, value = WAIT, WAITS[below(random, len(WAITS))]
        elif pick < 6:
            rule, value = KEEP, KEEPS[below(random, len(KEEPS))]
        elif pick < 9:
            rule, value = PRIORITY, below(random, 3)
        elif pick < 10:
            rule, value = DEEP, below(random, 2)
        else:
            rule, value = FUSE, below(random, 3)
        for s in range(start, stop):
            now.rules[now.row[s], rule] = value
