"""What is to be planned: layers with their prices, the ranks they are spread over, and the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil

import numpy as np

from ..core.cluster import Cluster
from ..core.errors import InputError
from ..core.fit import exact, fit
from ..core.placement import Placement
from ..core.problem import Affine, Cost, Links, Memory, Problem
from ..core.profile import Measurement, Part, Profile
from ..core.schedule import Array

UNIT = "us"
"""Unit of the problems that plans are made of."""

PER_TICK = 1000
"""Layers are priced in thousandths of a tick (nanoseconds), so that rounding a stage up costs it one tick at most."""

MOST_SAMPLES = 65_536
"""Of a batch: each micro-batch is planned by itself."""

Split = tuple[range, ...]
"""Layers of each stage: contiguous, first to last, each layer in exactly one stage."""


@dataclass(frozen=True, slots=True)
class Tie:
    """A parameter that two layers share: where both are on one rank, it is held once.

    Parameters
    ----------
    layers
        Indices of the two layers, ascending.
    static
        Bytes of its weight, gradient and optimizer state, which each layer's `static` contains.
    """

    layers: tuple[int, int]
    static: int


@dataclass(frozen=True)
class Prices:
    """Layers at one micro-batch size, first to last; shape (L,) each.

    Attributes
    ----------
    forward, backward_input, backward_weight, backward
        Nanoseconds of F, I, W and B at speed 1, without `op`.
    activation, retained, message
        Bytes held after F and after I, and of the message that leaves the layer.
    transient
        Bytes that one op of the layer holds for itself while it runs.
    op
        Nanoseconds that each op of a stage takes beside its layers.
    """

    forward: Array
    backward_input: Array
    backward_weight: Array
    backward: Array
    activation: Array
    retained: Array
    message: Array
    transient: Array
    op: int


@dataclass(frozen=True)
class Workload:
    """Layers, cluster and batch: everything that a plan depends on.

    Parameters
    ----------
    name
        For people.
    profile
        Its parts are the layers, first to last; its links are not used. Costs at a size that was not measured come
        from the line through those that were.
    cluster
        The ranks.
    samples
        Samples in a batch, N.
    sizes
        Micro-batch sizes to choose from, ascending. A size that does not divide the batch stands for the near-uniform
        division into as few micro-batches as it takes.
    ties
        Parameters that layers share.

    Raises
    ------
    InputError
        When there are fewer layers than ranks, no size, or no batch of 1 to `MOST_SAMPLES` samples.
    """

    name: str
    profile: Profile
    cluster: Cluster
    samples: int
    sizes: tuple[int, ...]
    ties: tuple[Tie, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise InputError(
                f"samples = {self.samples}: must be from 1 to {MOST_SAMPLES}, all of one pipeline; plan a smaller batch"
            )
        if not self.sizes or list(self.sizes) != sorted(set(self.sizes)) or self.sizes[0] < 1:
            raise InputError(
                f"microbatch sizes = {list(self.sizes)}: must be distinct, at least 1 and in ascending order"
            )
        if self.layers < self.cluster.ranks:
            raise InputError(
                f"{self.layers} layers for {self.cluster.ranks} ranks: each rank needs one at least; use at most "
                f"{self.layers} ranks, or cut layers (attention and MLP apart)"
            )

    @property
    def layers(self) -> int:
        """Number of layers, L."""
        return len(self.profile.parts)

    @property
    def ranks(self) -> int:
        """Number of ranks, p."""
        return self.cluster.ranks

    @cached_property
    def divisions(self) -> tuple[tuple[int, ...], ...]:
        """Ways to divide the batch, one for each of `sizes` that is no larger than the batch, none twice.

        Examples
        --------
        >>> from adaptpipe.solver.core.cluster import uniform_cluster
        >>> part = Part("layer", 0, (Measurement(1, 1e-3, 1e-3, 1e-3, 2e-3, 0, 0, 0),))
        >>> Workload("", Profile("", (part,), 0.0), uniform_cluster("", 1, None, 0.0, 1e9), 8, (2, 3)).divisions
        ((2, 2, 2, 2), (3, 3, 2))
        """
        found: dict[tuple[int, ...], None] = {}
        for size in self.sizes:
            count = -(-self.samples // size)
            small, more = divmod(self.samples, count)
            found[(small + 1,) * more + (small,) * (count - more)] = None
        return tuple(found)

    def prices(self, size: int) -> Prices:
        """Costs of the layers at a micro-batch size; times rounded up to nanoseconds."""
        if size not in self._prices:
            rows = [_measured(part, size) for part in self.profile.parts]

            def ns(value: Callable[[Measurement], float]) -> Array:
                return np.array([ceil(exact(value(row)) * 10**9) for row in rows], dtype=np.int64)

            def count(value: Callable[[Measurement], int]) -> Array:
                return np.array([value(row) for row in rows], dtype=np.int64)

            self._prices[size] = Prices(
                ns(lambda m: m.forward_s),
                ns(lambda m: m.backward_input_s),
                ns(lambda m: m.backward_weight_s),
                ns(lambda m: m.backward_s),
                count(lambda m: m.activation),
                count(lambda m: m.retained),
                count(lambda m: m.message),
                count(lambda m: m.transient),
                ceil(exact(self.profile.op_s) * 10**9),
            )
        return self._prices[size]

    @cached_property
    def _prices(self) -> dict[int, Prices]:
        return {}

    def transient(self, size: int) -> int:
        """Bytes that any rank must have free for what one op holds for itself, as a layer that is made again does, with
        micro-batches of at most a size: the largest of all layers, since layers run one after the other."""
        return int(self.prices(size).transient.max())

    @cached_property
    def static(self) -> Array:
        """Bytes of weights, gradients and optimizer state of each layer, shape (L,)."""
        return np.array([part.static for part in self.profile.parts], dtype=np.int64)

    def stage_static(self, split: Split, placement: Placement) -> tuple[int, ...]:
        """Static bytes of each stage; a tie counts in the first of its stages only, where both are on one rank."""
        found = [int(self.static[part.start : part.stop].sum()) for part in split]
        home = {layer: stage for stage, part in enumerate(split) for layer in part}
        for tie in self.ties:
            first, second = (home[layer] for layer in tie.layers)
            if placement.stages[0][first] == placement.stages[0][second]:
                found[second] -= tie.static
        return tuple(found)

    def problem(self, split: Split, placement: Placement, division: Sequence[int]) -> Problem:
        """The problem of one split: a stage costs the sum of its layers, and `op`, divided by its rank's speed.

        Parameters
        ----------
        split
            Layers of each stage.
        placement
            Rank of each stage; one direction.
        division
            Samples of each micro-batch: one size, or two that differ by one.

        Raises
        ------
        InputError
            When split and placement do not fit.
        """
        self.check_split(split, placement)
        sizes = sorted(set(division))
        row = placement.stages[0]
        cluster = self.cluster

        def total(field: str, part: range, size: int) -> int:
            return int(getattr(self.prices(size), field)[part.start : part.stop].sum())

        def ticks(field: str) -> tuple[Cost, ...]:
            def one(stage: int, size: int) -> int:
                thousandths = total(field, split[stage], size) + self.prices(size).op
                return stage_ticks(thousandths, cluster.speed[row[stage]])

            return tuple(_cost([(size, one(stage, size)) for size in sizes]) for stage in range(len(split)))

        def count(field: str) -> tuple[Cost, ...]:
            return tuple(_cost([(size, total(field, part, size)) for size in sizes]) for part in split)

        message = tuple(
            _cost([(size, int(self.prices(size).message[part.stop - 1])) for size in sizes]) for part in split
        )
        weight = ticks("backward_weight")
        return Problem(
            name=self.name,
            unit=UNIT,
            placement=placement,
            samples=self.samples,
            sizes=tuple(sizes),
            forward=ticks("forward"),
            backward_input=ticks("backward_input"),
            weight_units=tuple((cost,) for cost in weight),
            backward=ticks("backward"),
            memory=Memory(
                activation=count("activation"),
                retained=count("retained"),
                static=self.stage_static(split, placement),
                reserve=(self.transient(sizes[-1]),) * self.ranks,
                limit=cluster.memory,
                unit="MB",
            ),
            links=Links(
                latency=tuple(tuple(ceil(exact(value) * 10**6) for value in line) for line in cluster.latency_s),
                bandwidth=cluster.bandwidth,
                message=message,
            ),
        )

    def check_split(self, split: Split, placement: Placement) -> None:
        """Raise unless the stages cover every layer exactly once, in order, one stage for each of the placement's.

        Raises
        ------
        InputError
            With the layer or the count that does not fit.
        """
        if placement.directions != 1:
            raise InputError("placement: a plan has one direction; use linear, loop, v, wave, or a list")
        if placement.ranks != self.ranks:
            raise InputError(f"placement: {placement.ranks} ranks, and the cluster has {self.ranks}")
        if len(split) != placement.stage_count:
            raise InputError(f"split: {len(split)} stages, and the placement has {placement.stage_count}")
        at = 0
        for stage, part in enumerate(split):
            if part.start != at or part.stop <= at or part.step != 1:
                raise InputError(
                    f"split: stage {stage} has layers {part.start} to {part.stop - 1}, and layer {at} comes next; "
                    "every layer belongs to exactly one stage, and every stage has one at least"
                )
            at = part.stop
        if at != self.layers:
            raise InputError(f"split: ends before layer {at}, and there are {self.layers}; every layer must be covered")


def stage_ticks(thousandths: int, speed: float) -> int:
    """Ticks of an op from its nanoseconds at speed 1, rounded up.

    Examples
    --------
    >>> stage_ticks(3000, 1.0), stage_ticks(3000, 0.6), stage_ticks(3001, 1.0)
    (3, 5, 4)
    """
    if speed == 1.0:
        return -(-thousandths // PER_TICK)
    return ceil(Fraction(thousandths) / (exact(speed) * PER_TICK))


def split_of(bounds: Sequence[int]) -> Split:
    """Stages from the boundaries between them, 0 and L included.

    Examples
    --------
    >>> split_of([0, 2, 5])
    (range(0, 2), range(2, 5))
    """
    return tuple(range(bounds[i], bounds[i + 1]) for i in range(len(bounds) - 1))


def _measured(part: Part, size: int) -> Measurement:
    """The layer at a size: as measured, or from the lines through what was measured."""
    for m in part.measurements:
        if m.size == size:
            return m

    def seconds(field: str) -> float:
        return float(fit(part.values(field)).at(size))

    def held(field: str) -> int:
        values = part.values(field)
        return ceil(fit(values).above(values).at(size))

    return Measurement(
        size,
        seconds("forward_s"),
        seconds("backward_input_s"),
        seconds("backward_weight_s"),
        seconds("backward_s"),
        held("activation"),
        held("retained"),
        held("message"),
        transient=held("transient"),
    )


def _cost(values: Sequence[tuple[int, int]]) -> Cost:
    """A cost for one size, or the line through those of two sizes that differ by one, with neither part below 0."""
    if len(values) == 1:
        return values[0][1]
    (low, first), (high, second) = values
    slope = max(0, second - first)
    fixed = first - slope * low
    if fixed < 0:  # by rounding: the least line through 0 with no value above it
        fixed, slope = 0, max(-(-first // low), -(-second // high))
    return Affine(fixed, slope)
