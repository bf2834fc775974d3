"""Memory-time: what all ops hold, times how long, has its place in what the limit leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.instance import Instance
from ..core.schedule import Array
from .paths import Paths

MOST_UNITS = 32
"""Units of a weight gradient beyond which only what each holds by itself counts."""

FAR = float(2**61)


@dataclass(frozen=True, slots=True)
class Ramp:
    """How fast a rank can fill its memory, or empty it: `at_once` bytes, and `rate` bytes a tick from then on."""

    at_once: int
    rate: float

    def deficit(self, room: int) -> float:
        """Bytes x ticks that a rank cannot use until it can be full, and after."""
        return max(0, room - self.at_once) ** 2 / (2 * self.rate) if self.rate > 0 else FAR

    def length(self, room: int) -> float:
        """Ticks until it can be full."""
        return max(0, room - self.at_once) / self.rate if self.rate > 0 else FAR


def least_time(total: int, room: int, up: Ramp, down: Ramp) -> int:
    """Ticks within which a rank with `room` bytes can hold `total` bytes x ticks in sum.

    After x ticks it holds no more than `up` lets it, and y ticks before its end no more than `down`. Where the rank
    can be full between the two ramps, the deficits of both come on top; else those of one ramp, if that alone does.

    Examples
    --------
    Two bytes at once and one more each tick, until there are six: 8 bytes x ticks less than without a ramp.

    >>> least_time(600, 6, Ramp(6, 1.0), Ramp(6, 1.0)), least_time(600, 6, Ramp(2, 1.0), Ramp(6, 1.0))
    (100, 102)
    """
    best = -(-total // room)
    for ramps in ((up, down), (up,), (down,)):
        ticks = (total + sum(ramp.deficit(room) for ramp in ramps)) / room
        if ticks < FAR and ticks >= sum(ramp.length(room) for ramp in ramps):
            # A little less, for the rounding of floating point.
            best = max(best, int(np.ceil(ticks * (1 - 1e-11))))
    return best


def held(paths: Paths, stage: int, one: Array, wait: Array) -> Array:
    """Least bytes x ticks that a stage's ops hold for each micro-batch of `one`.

    `activation` is held from the start of F to the start of the backward, `wait` ticks at least, and through it: or the
    larger `retained` through I, and then what W's units hold while they run. Of any two units one runs while the other
    still holds its part. Numbers are Python's, which do not overflow.
    """
    instance = paths.instance
    taken, kept = instance.activation[stage, one].astype(object), instance.retained[stage, one].astype(object)
    fused = taken * instance.backward[stage, one]
    split = np.maximum(taken, kept) * instance.backward_input[stage, one] + _of_weights(instance, stage, one)
    least: Array = taken * wait + np.where(paths.fused_only[stage, one], fused, np.minimum(fused, split))
    return least


def _of_weights(instance: Instance, stage: int, one: Array) -> Array:
    ticks = np.diff(instance.unit_ticks[stage, one].astype(object), axis=-1)
    freed = np.diff(instance.unit_bytes[stage, one].astype(object), axis=-1)
    total: Array = (ticks * freed).sum(axis=-1)
    if ticks.shape[-1] <= MOST_UNITS:
        for u in range(ticks.shape[-1]):
            pairs = np.minimum(ticks[..., u : u + 1] * freed[..., u + 1 :], freed[..., u : u + 1] * ticks[..., u + 1 :])
            total = total + pairs.sum(axis=-1)
    return total


def filling_up(paths: Paths, stages: Array, batches: Array) -> Ramp:
    """How fast ops of these stages and micro-batches take memory, shapes that go together: F's, and I's that swell."""
    instance = paths.instance
    taken, kept = instance.activation[stages, batches], paths.retained[stages, batches]
    return _ramp(
        (taken, instance.forward[stages, batches]),
        (np.maximum(kept - taken, 0), instance.backward_input[stages, batches]),
        at_once=int(np.maximum(taken, kept - taken).max()),
    )


def emptying(paths: Paths, stages: Array, batches: Array) -> Ramp:
    """How fast they can free it: whole backwards and units of W, beside what one op that is running holds."""
    instance = paths.instance
    taken, kept = instance.activation[stages, batches], paths.retained[stages, batches]
    units = (np.diff(table[stages, batches], axis=-1) for table in (instance.unit_bytes, instance.unit_ticks))
    return _ramp(
        (taken, paths.whole[stages, batches]), (next(units), next(units)), at_once=int(np.maximum(taken, kept).max())
    )


def _ramp(*pieces: tuple[Array, Array], at_once: int) -> Ramp:
    rate = 0.0
    for size, ticks in pieces:
        there = size > 0
        if there.any():
            least = int(ticks[there].min())
            rate = max(rate, float((size[there] / ticks[there]).max()) if least > 0 else np.inf)
    return Ramp(at_once, rate)
