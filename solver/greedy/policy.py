"""Policies of the greedy list scheduler: a grid to start from, and small changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from random import Random

import numpy as np

from ..core.instance import Instance
from ..core.schedule import Array
from .kernel import CUT, DEEP, FUSE, KEEP, PRIORITY, RULES, WAIT

SIXTEENTHS = 16
NEVER = 2**31
"""As many weight gradients as this are never put off."""

_REACH = (1600, 16, 32, 24, 20, 28, 40, 48, 12)
_REACH_SEVERAL = (14, 16, 12, 7, 1600, 15, 13, 11, 10, 9, 8, 6, 5, 18, 20, 24, 28, 32)
_WAIT = (0, 16, 8, 12, 4)
_PACE = ((13, 0), (13, 2), (13, 4), (14, 2), (14, 4), (14, 8), (15, 4), (17, 2), (18, 0), (18, 2), (19, 2))


@dataclass(frozen=True, slots=True)
class Policy:
    """How ranks choose among the ops that they could run.

    Parameters
    ----------
    ahead
        Micro-batches that each chunk (stage on a rank, in a direction) may have between F and I or B, shape (C,).
    rules
        For each rank which of two ready ops goes first, and when a W runs; see `greedy.kernel.run`, shape (p, 6).
    pace, burst
        Micro-batch j enters the pipeline no earlier than (j - burst) * pace / 16 times `work_each`. With little memory,
        micro-batches that enter at once block each other.
    """

    ahead: Array
    rules: Array
    pace: int = 0
    burst: int = 0

    def release(self, microbatches: int, work: int) -> Array:
        """Time before which each micro-batch does not enter, shape (m,); `work` is a micro-batch's, in ticks."""
        waits = np.maximum(0, np.arange(microbatches, dtype=np.int64) - self.burst)
        return waits * (work * self.pace // SIXTEENTHS)


def work_each(instance: Instance) -> int:
    """Ticks that one micro-batch takes on the busiest rank, on average."""
    work = np.zeros(instance.ranks, dtype=np.int64)
    ticks = instance.forward + np.minimum(instance.backward, instance.backward_input + instance.backward_weight)
    np.add.at(work, instance.rank, ticks)
    return int(work.max()) // instance.microbatches


def grid(instance: Instance, to_come: Array, fused: bool = True) -> Iterator[Policy]:
    """Policies that are the same on all ranks, likely winners first, none twice; some fuse, where that may help.

    `to_come` is the number of stages from each chunk to the last; how far forwards may run ahead is a multiple of it.
    """
    several = len(to_come) > instance.ranks
    reaches = _REACH_SEVERAL if several else _REACH
    deeps = (1, 0) if several else (1,)
    aheads = _aheads(instance, to_come, reaches)
    bytes_of = {reach: ahead.tobytes() for reach, ahead in aheads.items()}
    seen: set[tuple[object, ...]] = set()

    def fresh(
        priority: int, deep: int, keep: int, fuse: int, wait: int, reach: int, pace: int = 0, burst: int = 0
    ) -> Iterator[Policy]:
        key = (priority, deep, keep, fuse, wait, bytes_of[reach], pace, min(burst, instance.microbatches))
        if key in seen:
            return
        seen.add(key)
        rules = np.zeros((instance.ranks, RULES), dtype=np.int64)
        rules[:, [PRIORITY, DEEP, KEEP, FUSE, WAIT]] = priority, deep, keep, fuse, wait
        yield Policy(aheads[reach], rules, pace, burst)

    for wait, deep, priority, reach in product(_WAIT, deeps, (0, 2, 1), reaches):
        yield from fresh(priority, deep, NEVER, 0, wait, reach)
    for keep, deep, priority, reach in product((0, 1, 2), deeps, (0, 2, 1), reaches):
        yield from fresh(priority, deep, keep, 0, 0, reach)
    if fused and fusing_helps(instance):
        for fuse, deep, priority, reach in product((1, 2), deeps, (0, 2, 1), reaches):
            yield from fresh(priority, deep, NEVER, fuse, 0, reach)
    if several:
        for (pace, burst), keep, wait, priority, reach in product(_PACE, (NEVER, 1), (8, 0), (0, 1, 2), reaches):
            yield from fresh(priority, 1, keep, 0, wait, reach, pace, burst)


def refined_grid(instance: Instance, to_come: Array, fused: bool, units: bool) -> Iterator[Policy]:
    """Policies that fuse backwards, or cut weight gradients into ranges, or both, none twice."""
    several = len(to_come) > instance.ranks
    aheads = _aheads(instance, to_come, _REACH_SEVERAL if several else _REACH)
    ways = [(fuse, cut, 0) for fuse, cut in ((1, 0), (2, 0), (2, 1)) if fused and (units or not cut)]
    if units:
        ways += [(0, 1, wait) for wait in (16, 0, 8)]
    seen = set[tuple[object, ...]]()
    for deep, priority, ahead, (fuse, cut, wait) in product(
        (1, 0) if several else (1,), (0, 2, 1), aheads.values(), ways
    ):
        rules = np.zeros((instance.ranks, RULES), dtype=np.int64)
        rules[:, [PRIORITY, DEEP, KEEP, FUSE, WAIT, CUT]] = priority, deep, NEVER, fuse, wait, cut
        key = (priority, deep, fuse, wait, cut, ahead.tobytes())
        if key not in seen:
            seen.add(key)
            yield Policy(ahead, rules)


def _aheads(instance: Instance, to_come: Array, reaches: tuple[int, ...]) -> dict[int, Array]:
    """For each reach, most micro-batches that each chunk may have between F and I or B; with slices, most of these."""
    more = instance.problem.slice_count - 1  # the last slice is the first to go back
    return {
        reach: np.minimum(np.maximum(-(-to_come * reach // SIXTEENTHS), 1) + more, instance.microbatches)
        for reach in reaches
    }


def change(policy: Policy, microbatches: int, random: Random, fusing: bool, cutting: bool = False) -> Policy:
    """A policy with one or two small changes, each on one rank or on a run of neighbours."""
    ahead, rules, pace, burst = policy.ahead.copy(), policy.rules.copy(), policy.pace, policy.burst
    chunks, ranks = len(ahead), len(rules)
    for _ in range(1 + (random.random() < 0.4)):
        part = random.random()
        if part < 0.45:
            start = random.randrange(chunks)
            length = 1 if random.random() < 0.7 else random.randrange(1, ranks + 1)
            ahead[start : start + length] += random.choice((-1, 1))
        elif part < 0.55:
            pace = max(0, pace + random.choice((-1, 1)))
            burst = max(0, burst + random.choice((-1, 0, 1)))
        else:
            start = random.randrange(ranks)
            stop = start + 1 if random.random() < 0.7 else random.randrange(start, ranks) + 1
            rule, values = random.choices(_CHANGES, weights=(4, 2, 3, 1, 4 * fusing, 4 * cutting))[0]
            rules[start:stop, rule] = random.choice(values)
    return replace(policy, ahead=np.minimum(np.maximum(ahead, 1), microbatches), rules=rules, pace=pace, burst=burst)


_CHANGES = (
    (WAIT, (0, 4, 8, 12, 16, 20, 24, 32)),
    (KEEP, (0, 1, 2, 3, 4, 6, 8, NEVER)),
    (PRIORITY, (0, 1, 2)),
    (DEEP, (0, 1)),
    (FUSE, (0, 1, 2)),
    (CUT, (0, 1)),
)


def fusing_helps(instance: Instance) -> bool:
    """Whether a fused backward can be worth it anywhere: it is cheaper than its halves, or holds less."""
    halves = instance.backward_input + instance.backward_weight
    return bool((instance.backward < halves).any() or (instance.retained > instance.activation).any())


def cutting_helps(instance: Instance) -> bool:
    """Whether any weight gradient has units to be cut into."""
    return bool(instance.unit_ticks.shape[2] > 2)
