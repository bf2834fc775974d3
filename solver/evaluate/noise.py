"""What a run does to planned times: a model of noise, drawn so that different orders of the same ops meet the same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np
import numpy.typing as npt

from ..core.errors import InputError
from ..core.instance import LONGEST, Instance
from ..core.precedence import op_nodes
from ..core.schedule import Array, Schedule
from .simulate import op_inputs, op_ticks

TRAINING: Final = 0
"""Stream of the scenarios that a search sees."""

EVALUATION: Final = 1
"""Stream of the scenarios that schedules are judged by; no search sees them."""

VALIDATION: Final = 2
"""Stream of the scenarios by which a search chooses among the orders that it found in those of `TRAINING`."""

LARGEST_SIGMA: Final = 2.0
"""Beyond it a lognormal op takes more than 25 times its planned time once in a hundred."""

_FINE: Final = 256
"""Least mean duration of an op, in parts of a tick, at which rounding is negligible beside the noise."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Random times of ops and messages around the planned ones.

    Each op takes its planned time times exp(sigma Z - sigma^2 / 2), Z a standard normal number: lognormal, of mean 1,
    so that a run does the planned work in the mean. Ranges of one W share their factor, as parts of the same work; so
    do the I and the B of a stage and micro-batch. Each message between different ranks takes longer by an exponential
    time. All factors and delays are independent.

    Parameters
    ----------
    sigma
        Standard deviation of the logarithm of an op's time, 0 to 2; about the relative deviation of the time.
    link
        Mean delay of a message, as a share of the mean planned time of an F.
    seed
        Of the random numbers.

    Raises
    ------
    InputError
        When a value is out of range.

    Examples
    --------
    >>> Noise()
    Noise(sigma=0.2, link=0.1, seed=0)
    """

    sigma: float = 0.2
    link: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.sigma <= LARGEST_SIGMA:
            raise InputError(f"noise.sigma: {self.sigma} is not within 0..{LARGEST_SIGMA:g}; 0.2 is usual")
        if not 0 <= self.link < math.inf:
            raise InputError(f"noise.link: {self.link} is not a share of at least 0 of the mean F; 0.1 is usual")
        if self.seed < 0:
            raise InputError(f"noise.seed: {self.seed} is below 0")

    @property
    def silent(self) -> bool:
        """Whether every run takes the planned times."""
        return self.sigma == 0 and self.link == 0

    def scenario(self, instance: Instance, number: int, stream: int = EVALUATION, parts: int | None = None) -> Scenario:
        """One random run of the problem, for any order of its ops.

        Factors and delays belong to ops and messages, not to places in an order: schedules of one problem and division
        into micro-batches are compared under the same noise. A scenario is fixed by (seed, stream, number) and the
        numbers of stages and micro-batches.

        Parameters
        ----------
        instance
            The problem with its sizes.
        number
            From 0.
        stream
            `TRAINING`, `VALIDATION`, `EVALUATION`, or any other number for other purposes.
        parts
            Parts of a tick to which times are rounded; None: 1, or more where ticks are coarse. 1 gives whole ticks.

        Raises
        ------
        InputError
            When times leave the range of integers.
        """
        return self._draw(instance, number, stream, parts or fine_parts(instance), _crossing(instance))

    def scenarios(self, instance: Instance, stream: int = EVALUATION, parts: int | None = None) -> Iterator[Scenario]:
        """The runs of a stream from number 0, without end; see `scenario`. What they share is worked out once."""
        parts, crossing = parts or fine_parts(instance), _crossing(instance)
        for number in count():
            yield self._draw(instance, number, stream, parts, crossing)

    def _draw(
        self, instance: Instance, number: int, stream: int, parts: int, crossing: npt.NDArray[np.bool_]
    ) -> Scenario:
        random = np.random.default_rng([self.seed, stream, number])
        shape = (3, instance.stages, instance.microbatches)
        factor = np.exp(self.sigma * random.standard_normal(shape) - self.sigma**2 / 2)
        delay = random.exponential(1.0, (len(instance.before), 2)) * (self.link * float(instance.forward.mean()))
        scenario = Scenario(instance, factor, np.where(crossing, delay, 0.0), parts)
        if scenario.horizon > LONGEST:
            raise InputError(
                f"noise: the sum of all durations is {scenario.horizon:.3g}, above 2^60; choose a coarser unit"
            )
        return scenario


def _crossing(instance: Instance) -> npt.NDArray[np.bool_]:
    """Whether what a node waits for comes from another rank, shape (3 * S * m, 2)."""
    rank = np.tile(instance.rank.reshape(-1), 3)
    crossing: npt.NDArray[np.bool_] = (instance.before >= 0) & (rank[instance.before] != rank[:, None])
    return crossing


def fine_parts(instance: Instance) -> int:
    """Parts of a tick, a power of two, in which the mean op takes at least 256; 1 where its ticks are that fine."""
    mean = float(np.mean([instance.forward, instance.backward_input, instance.backward_weight]))
    return 1 if mean == 0 or mean >= _FINE else int(2 ** math.ceil(math.log2(_FINE / mean)))


@dataclass(frozen=True, slots=True)
class Planned:
    """What the ops of a schedule take without noise: worked out once for all its runs.

    Parameters
    ----------
    nodes
        Node of each op, shape (n,).
    before
        Ops that each op waits for (-1: none), shape (n, 2).
    ticks, lags
        Duration of each op, shape (n,), and message times to it, shape (n, 2), in ticks.
    """

    nodes: Array
    before: Array
    ticks: Array
    lags: Array

    @classmethod
    def of(cls, instance: Instance, schedule: Schedule) -> Planned:
        """Those of a well-formed schedule."""
        before, lags = op_inputs(instance, schedule)
        return cls(op_nodes(schedule), before, op_ticks(instance, schedule), lags)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One random run: made by `Noise.scenario`.

    Parameters
    ----------
    instance
        The problem with its sizes.
    factor
        Actual over planned time of F, of I or B, and of W, shape (3, S, m).
    delay
        Ticks by which the message to each node from each of its predecessors is late, shape (3 * S * m, 2).
    parts
        Times are integers in this part of a tick.
    """

    instance: Instance
    factor: npt.NDArray[np.float64]
    delay: npt.NDArray[np.float64]
    parts: int

    @property
    def horizon(self) -> float:
        """Sum of all durations and message times, in parts of a tick: above any makespan."""
        x = self.instance
        backward = np.maximum(x.backward_input, x.backward)
        planned = np.array([x.forward, backward, x.backward_weight], dtype=np.float64)
        planned[2] += x.overhead[:, None] * float(x.unit_ticks.shape[2])
        return float((planned * self.factor).sum() + self.delay.sum() + x.lag.sum(dtype=np.float64)) * self.parts

    def times(self, planned: Planned) -> tuple[Array, Array]:
        """Duration of every op, shape (n,), and message times to it, shape (n, 2), in parts of a tick."""
        ticks = _whole(planned.ticks * self.factor.reshape(-1)[planned.nodes] * self.parts)
        return ticks, planned.lags * self.parts + _whole(self.delay[planned.nodes] * self.parts)

    def ticks(self, schedule: Schedule) -> Array:
        """Duration of every op of a schedule in parts of a tick, shape (n,)."""
        return self.times(Planned.of(self.instance, schedule))[0]

    def lags(self, schedule: Schedule) -> Array:
        """Message times to every op of a schedule in parts of a tick, shape (n, 2); see `op_inputs`."""
        return self.times(Planned.of(self.instance, schedule))[1]


def _whole(times: npt.NDArray[np.float64]) -> Array:
    return np.ascontiguousarray(np.rint(times).astype(np.int64))
