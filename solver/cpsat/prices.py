"""The instance on the model's own clock: scaled durations, classes of equal micro-batches, what may be fused."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np
import numpy.typing as npt

from ..core.granularity import ALL, Granularity
from ..core.instance import UNLIMITED, Instance
from ..core.problem import Problem
from ..core.schedule import Array, Schedule

Mask = npt.NDArray[np.bool_]

MOST_PIECES = 8
"""Most pieces of a weight gradient in the model, which has a literal for each range of them; twice as many where a
known schedule cuts elsewhere."""

LONGEST = 2**45
"""Longest horizon, in the model's steps: far below where CP-SAT refuses a model for possible overflow."""


@dataclass(frozen=True)
class Prices:
    """What the model is built from.

    Parameters
    ----------
    instance
        The problem with its sizes fixed.
    step
        Ticks of one step of the model's clock. The greatest common divisor of all durations and message times where the
        horizon then fits `LONGEST`; `exact` says so. Otherwise a coarser step, and durations are rounded *down* to it:
        every order then takes no longer, in steps, than in ticks, so the model's bound times `step` is a bound of the
        problem. Schedules are simulated again in ticks in either case.
    forward, backward_input, backward_weight, backward
        Steps, shape (S, m).
    lag
        Steps, shape (3 * S * m, 2).
    room
        Bytes of each rank beyond static memory, `UNLIMITED` where it has no limit, shape (p,).
    group, place
        Class of each micro-batch, of equal size and direction, and its position in it, shape (m,).
    fusible
        Where a fused backward is allowed, and may be better than I and W in a row: it is faster, or `retained` is above
        `activation`, so that I swells the memory and B does not. Elsewhere I with W right after it does all that B
        does, and passes the gradient on no later. Shape (S, m).
    samples
        Of the batch, where only some of the instance's micro-batches make it up: those are chosen. Else 0.
    points
        For each stage, the units before which its weight gradients may be cut, from 0 to their number.
    """

    instance: Instance
    step: int
    exact: bool
    forward: Array
    backward_input: Array
    backward_weight: Array
    backward: Array
    lag: Array
    room: Array
    group: Array
    place: Array
    fusible: Mask
    points: tuple[tuple[int, ...], ...]
    samples: int = 0

    @cached_property
    def units(self) -> tuple[int, ...]:
        """For each stage, the pieces that the cuts leave."""
        return tuple(len(points) - 1 for points in self.points)

    @property
    def all_points(self) -> bool:
        """Whether weight gradients of more than one piece may be cut before every unit."""
        every = self.instance.problem.weight_units
        return all(len(points) in (2, len(units) + 1) for points, units in zip(self.points, every, strict=True))

    @property
    def horizon(self) -> int:
        """Steps in which any order that does not deadlock ends: all ops and messages in a row."""
        longest = np.maximum(self.backward_input + self.backward_weight, self.backward)
        cuts = sum((units - 1) * int(cost) for units, cost in zip(self.units, self.instance.overhead, strict=True))
        return int(self.forward.sum() + longest.sum() + self.lag.sum()) + cuts * len(self.place) // self.step

    def range_ticks(self, s: int, j: int, first: int, stop: int) -> int:
        """Steps of the pieces [first:stop] of W(s, j), as one op."""
        sums, points = self.instance.unit_ticks[s, j], self.points[s]
        return int(sums[points[stop]] - sums[points[first]] + (self.instance.overhead[s] if first else 0)) // self.step

    def alike(self, s: int, j: int) -> bool:
        """Whether the pieces of W(s, j) from the second on take equally long, and free equally much but for rounding.

        They may then be exchanged, so that their ranges run in order. The range with the first piece may not: where
        cuts cost something it alone is free of that.
        """
        pieces = range(1, self.units[s])
        if len(pieces) < 2:
            return False
        ticks = {self.range_ticks(s, j, k, k + 1) for k in pieces}
        freed = {int(np.diff(self.instance.unit_bytes[s, j][list(self.points[s])])[k]) for k in pieces}
        return len(ticks) == 1 and self.exact and max(freed) - min(freed) <= 1

    def piece_bytes(self, s: int, j: int) -> list[int]:
        """Bytes that each piece of W(s, j) frees, at most: those that are `alike` are exchanged, so that rounding may
        let each of them free the byte more."""
        freed: list[int] = np.diff(self.instance.unit_bytes[s, j][list(self.points[s])]).tolist()
        return freed if not self.alike(s, j) else [freed[0], *[max(freed[1:])] * (len(freed) - 1)]


def kinds(instance: Instance) -> list[tuple[int, int]]:
    """Direction and size of each micro-batch, or which slice it is: all that its prices depend on."""
    placement, count, slices = instance.problem.placement, instance.microbatches, instance.problem.slice_count
    return [
        (placement.direction_of(j, count), size if slices == 1 else j % slices) for j, size in enumerate(instance.sizes)
    ]


def cut_points(problem: Problem, granularity: Granularity, schedule: Schedule | None) -> tuple[tuple[int, ...], ...]:
    """For each stage, the units before which W's may be cut: all, where they are no more than `MOST_PIECES`; else
    those of as many pieces, and as many of those at which a schedule cuts, most often used first."""
    found = []
    for s, units in enumerate(problem.weight_units):
        count, pieces = len(units), min(len(units), MOST_PIECES) if granularity.units else 1
        points = {count * k // pieces for k in range(pieces + 1)}
        if schedule is not None and granularity.units:
            table = schedule.table
            here = (table.stage == s) & (table.start >= 0)
            cuts = Counter([*table.start[here].tolist(), *table.stop[here].tolist()])
            own = sorted(cuts.keys() - points, key=lambda unit: (-cuts[unit], unit))
            points |= {*own[:MOST_PIECES]}
        found.append(tuple(sorted(points)))
    return tuple(found)


def prices(
    instance: Instance,
    longest: int = LONGEST,
    granularity: Granularity = ALL,
    schedule: Schedule | None = None,
    samples: int = 0,
) -> Prices:
    """Scale an instance, to a horizon of at most about `longest` steps, and find its classes and choices, which allow
    for a known schedule."""
    parts = (instance.forward, instance.backward_input, instance.backward_weight, instance.backward, instance.lag)
    points = cut_points(instance.problem, granularity, schedule)
    pieces = np.array([len(row) - 1 for row in points])
    cuttable = pieces > 1
    cuts = int(instance.overhead @ (pieces - 1)) * instance.microbatches
    total = int(parts[0].sum() + np.maximum(parts[1] + parts[2], parts[3]).sum() + parts[4].sum()) + cuts
    finer = (instance.unit_ticks[cuttable], instance.overhead[cuttable])
    step = gcd(*(int(np.gcd.reduce(part.reshape(-1))) for part in (*parts, *finer))) or 1
    exact = total // step <= longest
    if not exact:
        step = -(-total // longest)
    keys = kinds(instance)
    names, seen = sorted(set(keys)), dict.fromkeys(keys, 0)
    place = np.zeros(len(keys), dtype=np.int64)
    for j, key in enumerate(keys):
        place[j], seen[key] = seen[key], seen[key] + 1
    room = np.where(instance.limit >= UNLIMITED, UNLIMITED, instance.limit - instance.static)
    held = np.maximum(instance.activation, instance.retained)
    for rank in range(instance.ranks):
        if held[instance.rank == rank].sum() <= room[rank]:
            room[rank] = UNLIMITED
    swells = (instance.retained > instance.activation) & (room[instance.rank] < UNLIMITED)
    faster = instance.backward < instance.backward_input + instance.backward_weight
    forward, short, weight, whole, lag = (part // step for part in parts)
    return Prices(
        instance=instance,
        step=step,
        exact=exact,
        forward=forward,
        backward_input=short,
        backward_weight=weight,
        backward=whole,
        lag=lag,
        room=room,
        group=np.array([names.index(key) for key in keys], dtype=np.int64),
        place=place,
        fusible=(faster | swells) & granularity.fused,
        points=points,
        samples=samples,
    )
