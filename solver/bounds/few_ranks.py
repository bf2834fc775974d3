"""The exact optimum of a problem in which only some ranks are kept and the others cost nothing but time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from time import monotonic

import numpy as np

from ..core.instance import UNLIMITED, Instance
from ..core.schedule import Array
from . import label_kernel
from .from_the_end import Ends, Layer, joined
from .label_kernel import Counts, Links, Times
from .paths import PASS, REST, F, Paths
from .ramps import Rank

LATEST = 2**30
"""Moments above this do not fit the labels."""


def applies(instance: Instance) -> bool:
    """Whether micro-batches are alike, so that only their number matters."""
    return (
        instance.problem.placement.directions == 1 and len(set(instance.alike)) == 1 and instance.microbatches < 2**15
    )


def in_equal_units(instance: Instance) -> Instance:
    """A problem that no schedule makes longer, and in which the units of each stage's weight gradient are alike.

    I takes the least time until a gradient is passed on. Each unit takes the least time of any, and no more than its
    share of what a fused backward takes beyond that; it holds the least bytes of any, and no more than its share of
    `activation`. A range costs nothing. The problem itself where no weight gradient has several units.

    Parameters
    ----------
    instance
        One for which `applies` is true.
    """
    problem, ways = instance.problem, Paths(instance)
    if instance.unit_ticks.shape[2] == 2:
        return instance
    counts = [len(row) for row in problem.weight_units]
    ticks, freed = [], []
    for s, units in enumerate(counts):
        times, sizes = (np.diff(table[s, 0, : units + 1]) for table in (instance.unit_ticks, instance.unit_bytes))
        alone = bool(ways.fused_only[s, 0])
        ticks.append(min(int(times.min()), int(ways.ticks[REST, s, 0]) // units))
        freed.append(0 if alone else min(int(sizes.min()), int(instance.activation[s, 0]) // units))
    links = problem.links
    plain = replace(
        problem,
        slices=None,
        links=replace(links, message=tuple(instance.message(s, 0) for s in range(len(links.message)))),
        samples=sum(instance.sizes),
        sizes=(instance.sizes[0],),
        forward=tuple(instance.forward[:, 0].tolist()),
        backward_input=tuple(ways.ticks[PASS, :, 0].tolist()),
        backward=None,
        weight_units=tuple((each,) * units for each, units in zip(ticks, counts, strict=True)),
        overhead=(0,) * len(counts),
        memory=replace(
            problem.memory,
            activation=tuple(instance.activation[:, 0].tolist()),
            retained=tuple(each * units for each, units in zip(freed, counts, strict=True)),
            retained_units=tuple((each,) * units for each, units in zip(freed, counts, strict=True)),
        ),
    )
    return plain.instance(instance.sizes)


SPEED, LEAST_EFFORT = 10_000_000, 100_000
"""Pairs of labels that are compared in a second, rather too few; and that one step may compare in any case."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search through labels says.

    Parameters
    ----------
    bound
        No schedule is shorter than this; 0 where the search was given up.
    labels
        How many labels there were.
    exact
        Whether the kept ranks' optimum is known to be `bound`.
    """

    bound: int
    labels: int
    exact: bool


class Kept:
    """The ops of some ranks, and what the others leave of a micro-batch's way: the time it takes.

    Parameters
    ----------
    paths
        Of an instance for which `applies` is true.
    ranks
        Which ranks to keep.

    Attributes
    ----------
    ops
        Columns of the ops of one micro-batch on these ranks, in the order of its way: F's by stage, then backwards.
    """

    def __init__(self, paths: Paths, ranks: tuple[int, ...]) -> None:
        instance = paths.instance
        owner = instance.rank[:, 0]
        stages = [s for s in range(instance.stages) if int(owner[s]) in ranks]
        way = [(F, s) for s in stages] + [(PASS, s) for s in reversed(stages)]
        self.ranks, self.way = ranks, tuple(way)
        index = {rank: k for k, rank in enumerate(ranks)}
        # Weight gradients of a rank that cost and hold the same, unit by unit, are one pool.
        pools: dict[tuple[int, int, int, int], int] = {}
        units = [len(row) for row in instance.problem.weight_units]
        kept = np.minimum(instance.retained[:, 0], instance.activation[:, 0])
        pool_of = {}
        for s in stages:
            name = (index[int(owner[s])], int(paths.ticks[REST, s, 0]) // units[s], int(kept[s]) // units[s], units[s])
            pool_of[s] = pools.setdefault(name, len(pools))
        self.count = instance.microbatches
        self.rank = _column([index[int(owner[s])] for _, s in way])
        self.dur = _column([int(paths.ticks[row, s, 0]) for row, s in way])
        self.lag = _column([0, *(_between(paths, a, b) for a, b in pairwise(way))])
        self.same = _column(
            [0] + [int(self.rank[i] == self.rank[i - 1] and self.lag[i] == 0) for i in range(1, len(way))]
        )
        self.group = _column([-1 if row == F else pool_of[s] for row, s in way])
        held = instance.activation[:, 0]
        self.bytes: Array = np.array([held[s] if row == F else held[s] - kept[s] for row, s in way], dtype=np.int64)
        # From the start of an op to the end of the schedule.
        self.rest = _column([int(paths.ticks[row, s, 0] + paths.tail[row, s, 0]) for row, s in way])
        self.pool_rank = _column([rank for rank, _, _, _ in pools])
        self.pool_dur = _column([ticks for _, ticks, _, _ in pools])
        self.pool_bytes: Array = np.array([size for _, _, size, _ in pools], dtype=np.int64)
        self.parts = _column([parts for _, _, _, parts in pools])
        self.head, self.leave = int(paths.head[F, stages[0], 0]), int(paths.tail[PASS, stages[0], 0])
        limit, static = instance.limit[list(ranks)], instance.static[list(ranks)]
        self.room: Array = np.where(limit >= UNLIMITED, UNLIMITED, limit - static)
        self.last_forward = _column(
            [max(i for i, (row, _) in enumerate(way) if row == F and self.rank[i] == k) for k in range(len(ranks))]
        )
        self.first_backward = _column([max(i for i in range(len(way)) if self.rank[i] == k) for k in range(len(ranks))])
        tail = np.zeros_like(paths.ticks_of_kind)
        self.cool: Array = np.zeros((len(ranks), 2), dtype=np.int64)
        for k, rank in enumerate(ranks):
            mine = [s for s in stages if int(owner[s]) == rank]
            if all(instance.retained[s, 0] <= instance.activation[s, 0] for s in mine):
                self.cool[k] = Rank(paths, rank).cool_alike(tail)
        self.only = _column(
            [
                int(np.flatnonzero(self.pool_rank == k)[0]) if (self.pool_rank == k).sum() == 1 else -1
                for k in range(len(ranks))
            ]
        )
        self.heads = _column([int(paths.head[F, min(s for s in stages if int(owner[s]) == rank), 0]) for rank in ranks])
        self.under_way = self._under_way(instance, stages)
        self.width = len(ranks) + 1 + len(pools) + self.under_way + 1

    def _under_way(self, instance: Instance, stages: list[int]) -> int:
        """Most micro-batches between their first and their last op here: the first stage's F holds them all."""
        most, held = self.count, int(instance.activation[stages[0], 0])
        room = int(self.room[self.rank[0]])
        return min(most, room // held) if held > 0 and room < UNLIMITED else most

    def end(self, label: Times) -> int:
        """When everything is done, of a label of the last layer."""
        ranks = len(self.room)
        end: Array = label[:ranks].astype(np.int64)
        for pool, rank in enumerate(self.pool_rank.tolist()):
            members = int((self.group == pool).sum()) * self.count * int(self.parts[pool])
            end[rank] += (members + int(label[ranks + 1 + pool])) * int(self.pool_dur[pool])
        return max(int(end.max()), int(label[ranks + 1 + len(self.pool_rank)]))

    @property
    def layers(self) -> int:
        """How many ops there are."""
        return self.count * len(self.rank)


def least(
    kept: Kept,
    below: int,
    most: int,
    deadline: float,
    tables: tuple[Ends, ...] = (),
    layers: list[Layer] | None = None,
) -> Found:
    """Whether the kept ranks' ops can be done before `below`.

    Parameters
    ----------
    kept
        The ranks.
    below
        The value that has to be beaten.
    most
        Labels of a layer, beyond which the search is given up.
    deadline
        Moment of `time.monotonic` at which it is given up.
    tables
        What some of these ranks need from the end on, to beat `below` or a higher value.
    layers
        Where to put the labels, if they are asked for; then no state is left out that a schedule may pass.
    """
    joint = joined(kept, tables)
    assert below <= LATEST, "times fit the labels"
    n = len(kept.rank)
    size, states = min(1 << 12, most), 1
    counts: Counts = np.zeros((1, n), dtype=np.int16)
    first: Links = np.zeros(1, dtype=np.int32)
    following: Links = np.full(1, -1, dtype=np.int32)
    times: Times = np.zeros((1, kept.width), dtype=np.int32)
    total = 1
    new = _layer(size, n, kept.width)
    if layers is not None:
        layers.append((counts, first, following, times))
    for _ in range(kept.layers):
        while True:
            found, labels = label_kernel.step(
                kept.count,
                below,
                kept.rank,
                kept.dur,
                kept.lag,
                kept.same,
                kept.group,
                kept.bytes,
                kept.rest,
                kept.last_forward,
                kept.first_backward,
                kept.cool,
                kept.pool_rank,
                kept.pool_dur,
                kept.pool_bytes,
                kept.parts,
                kept.only,
                kept.room,
                kept.head,
                kept.leave,
                int(SPEED * max(0.0, deadline - monotonic())) + LEAST_EFFORT,
                layers is not None,
                *joint,
                states,
                counts,
                first,
                following,
                times,
                *new,
            )
            if found >= 0:
                break
            size *= 2
            if found == label_kernel.SPENT or size > most or monotonic() > deadline:
                return Found(0, total, False)
            new = _layer(size, n, kept.width)
        if found == 0:
            return Found(below, total, False)
        if monotonic() > deadline:
            return Found(0, total, False)
        total += labels
        if layers is not None:
            layers.append(
                (new[0][:found].copy(), new[1][:found].copy(), new[2][:labels].copy(), new[3][:labels].copy())
            )
        old = (counts, first, following, times)
        counts, first, following, times, states = *new[:4], found
        new = (*old, new[4]) if len(old[1]) == size else _layer(size, n, kept.width)
    assert states == 1, "all ops are done in one way only"
    ends, at = [], int(first[0])
    while at >= 0:
        ends.append(kept.end(times[at]))
        at = int(following[at])
    return Found(min(ends), total, True)


def _layer(size: int, columns: int, width: int) -> tuple[Counts, Links, Links, Times, Links]:
    return (
        np.empty((size, columns), dtype=np.int16),
        np.empty(size, dtype=np.int32),
        np.empty(size, dtype=np.int32),
        np.empty((size, width), dtype=np.int32),
        np.empty(2 * size, dtype=np.int32),
    )


def _column(values: list[int]) -> Links:
    return np.array(values, dtype=np.int32)


def _between(paths: Paths, before: tuple[int, int], after: tuple[int, int]) -> int:
    """Least time from the end of an op of a micro-batch to the start of a later one on its way."""
    row, stage = before
    return int(paths.after_of_kind(row, stage)[after[0], after[1], 0] - paths.ticks[row, stage, 0])
