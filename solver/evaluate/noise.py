"""What a run does to planned times: a model of noise, drawn so that different orders of the same ops meet the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..core.errors import InputError
from ..core.instance import LONGEST, Instance
from .scenario import Scenario, fine_parts

TRAINING: Final = 0
"""Stream of the scenarios that a search sees."""

EVALUATION: Final = 1
"""Stream of the scenarios that schedules are judged by; no search sees them."""

VALIDATION: Final = 2
"""Stream of the scenarios by which a search chooses among the orders that it found in those of `TRAINING`."""

LARGEST_SIGMA: Final = 2.0
"""Beyond it a lognormal op takes more than 25 times its planned time once in a hundred."""


def _rank_factor(text: str) -> tuple[int, float]:
    rank, factor = text.split(":")
    return int(rank), float(factor)


def _link_ticks(text: str) -> tuple[int, int, float]:
    ends, ticks = text.split(":")
    source, target = ends.split(">")
    return int(source), int(target), float(ticks)


_READERS: Final[dict[str, tuple[Callable[[str], object], str]]] = {
    "sigma": (float, "a number, as sigma=0.3"),
    "link": (float, "a number, as link=0.1"),
    "imbalance": (float, "a number, as imbalance=0.2"),
    "pause": (float, "a number of ticks, as pause=5000"),
    "slow_rank": (_rank_factor, "rank:factor, as slow_rank=1:1.5"),
    "slow_link": (_link_ticks, "from>to:ticks, as slow_link=2>3:5000"),
}
_NUMBERS: Final = ("sigma", "link", "imbalance", "pause")


@dataclass(frozen=True, slots=True)
class Noise:
    """Random times of ops and messages around the planned ones.

    Each op takes its planned time times exp(sigma Z - sigma^2 / 2), Z a standard normal number: lognormal, of mean 1,
    so that a run does the planned work in the mean. Ranges of one W share their factor, as parts of the same work; so
    do the I and the B of a stage and micro-batch. Each message between different ranks takes longer by an exponential
    time. All factors and delays are independent. The other disturbances come on top.

    Parameters
    ----------
    sigma
        Standard deviation of the logarithm of an op's time, 0 to 2; about the relative deviation of the time.
    link
        Mean delay of a message, as a share of the mean planned time of an F.
    seed
        Of the random numbers.
    imbalance
        The same as `sigma` for a factor that F, I, W and B of one stage and micro-batch share, as where the tokens of
        a micro-batch load the experts of a stage unevenly.
    pause
        Every F, I and B takes longer by a random time, uniform between 0 and so many ticks, before its message leaves.
    slow_rank
        (rank, factor): all ops of the rank take so many times as long.
    slow_link
        (from, to, ticks): every message from a rank to another takes so much longer.

    Raises
    ------
    InputError
        When a value is out of range.

    Examples
    --------
    >>> str(Noise()), str(Noise(sigma=0.3, link=0, slow_link=(2, 3, 5000)))
    ('sigma=0.2,link=0.1', 'sigma=0.3,slow_link=2>3:5000')
    """

    sigma: float = 0.2
    link: float = 0.1
    seed: int = 0
    imbalance: float = 0.0
    pause: float = 0.0
    slow_rank: tuple[int, float] | None = None
    slow_link: tuple[int, int, float] | None = None

    def __post_init__(self) -> None:
        for name, value in (("sigma", self.sigma), ("imbalance", self.imbalance)):
            if not 0 <= value <= LARGEST_SIGMA:
                raise InputError(f"noise.{name}: {value} is not within 0..{LARGEST_SIGMA:g}; 0.2 is usual")
        if not 0 <= self.link < math.inf:
            raise InputError(f"noise.link: {self.link} is not a share of at least 0 of the mean F; 0.1 is usual")
        if not 0 <= self.pause < math.inf:
            raise InputError(f"noise.pause: {self.pause} is not a number of ticks of at least 0")
        if self.seed < 0:
            raise InputError(f"noise.seed: {self.seed} is below 0")
        if self.slow_rank is not None:
            rank, factor = self.slow_rank
            if rank < 0 or not 0 < factor < math.inf:
                raise InputError(f"noise.slow_rank: {rank}:{factor:g} is not a rank and a factor above 0, as 1:1.5")
        if self.slow_link is not None:
            source, target, ticks = self.slow_link
            if min(source, target) < 0 or source == target or not 0 <= ticks < math.inf:
                text = f"{source}>{target}:{ticks:g}"
                raise InputError(f"noise.slow_link: {text} is not two ranks and ticks of at least 0, as 2>3:5000")

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> Noise:
        """Noise from its text form, `sigma=0.3,link=0.1,…`; what is not named is silent, and "none" is all silence.

        Raises
        ------
        InputError
            With the part that is wrong, and how it should be.

        Examples
        --------
        >>> noise = Noise.parse("sigma=0.3, slow_rank=1:1.5, pause=500")
        >>> noise.sigma, noise.link, noise.slow_rank, noise.pause
        (0.3, 0.0, (1, 1.5), 500.0)
        """
        values: dict[str, Any] = {"sigma": 0.0, "link": 0.0}
        named = [part.strip() for part in text.split(",")]
        for part in named if text.strip() != "none" else ():
            name, _, value = (each.strip() for each in part.partition("="))
            if name not in _READERS:
                raise InputError(f"noise: {part!r} is none of {', '.join(f'{each}=…' for each in _READERS)}; or none")
            if sum(each.partition("=")[0].strip() == name for each in named) > 1:
                raise InputError(f"noise: {name} is there twice")
            read, form = _READERS[name]
            try:
                values[name] = read(value)
            except ValueError:
                raise InputError(f"noise.{name}: {value!r} is not {form}") from None
        return cls(**values, seed=seed)

    def __str__(self) -> str:
        parts = [f"{name}={getattr(self, name):g}" for name in _NUMBERS if getattr(self, name)]
        if self.slow_rank is not None:
            parts.append("slow_rank={}:{:g}".format(*self.slow_rank))
        if self.slow_link is not None:
            parts.append("slow_link={}>{}:{:g}".format(*self.slow_link))
        return ",".join(parts) or "none"

    @property
    def silent(self) -> bool:
        """Whether every run takes the planned times."""
        return not (any(getattr(self, name) for name in _NUMBERS) or self.slow_rank or self.slow_link)

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
            When times leave the range of integers, or a rank is named that is not there.
        """
        return self._draw(instance, number, stream, parts or fine_parts(instance), self._fixed(instance))

    def scenarios(self, instance: Instance, stream: int = EVALUATION, parts: int | None = None) -> Iterator[Scenario]:
        """The runs of a stream from number 0, without end; see `scenario`. What they share is worked out once."""
        parts, fixed = parts or fine_parts(instance), self._fixed(instance)
        for number in count():
            yield self._draw(instance, number, stream, parts, fixed)

    def require_ranks(self, ranks: int) -> None:
        """Refuse noise of a rank that is not there.

        Raises
        ------
        InputError
            Naming it.
        """
        slow_rank = () if self.slow_rank is None else self.slow_rank[:1]
        slow_link = () if self.slow_link is None else self.slow_link[:2]
        for name, numbers in (("slow_rank", slow_rank), ("slow_link", slow_link)):
            for rank in numbers:
                if rank >= ranks:
                    raise InputError(f"noise.{name}: there is no rank {rank}; ranks are 0..{ranks - 1}")

    def _fixed(self, instance: Instance) -> _Fixed:
        """What is the same in all runs."""
        self.require_ranks(instance.ranks)
        rank = np.tile(instance.rank.reshape(-1), 3)
        source = np.where(instance.before >= 0, rank[instance.before], -1)
        crossing: npt.NDArray[np.bool_] = (source >= 0) & (source != rank[:, None])
        slow, late = None, None
        if self.slow_rank is not None:
            number, factor = self.slow_rank
            slow = np.where(instance.rank == number, factor, 1.0)
        if self.slow_link is not None:
            *ends, ticks = self.slow_link
            late = np.where((source == ends[0]) & (rank[:, None] == ends[1]), ticks, 0.0)
        return _Fixed(crossing, slow, late)

    def _draw(self, instance: Instance, number: int, stream: int, parts: int, fixed: _Fixed) -> Scenario:
        random = np.random.default_rng([self.seed, stream, number])
        shape = (3, instance.stages, instance.microbatches)
        factor = np.exp(self.sigma * random.standard_normal(shape) - self.sigma**2 / 2)
        delay = random.exponential(1.0, (len(instance.before), 2)) * (self.link * float(instance.forward.mean()))
        delay = np.where(fixed.crossing, delay, 0.0)
        if self.imbalance:
            factor *= np.exp(self.imbalance * random.standard_normal(shape[1:]) - self.imbalance**2 / 2)
        pause = None
        if self.pause:
            pause = random.uniform(0.0, self.pause, shape)
            pause[2] = 0.0
        if fixed.slow is not None:
            factor *= fixed.slow
        if fixed.late is not None:
            delay += fixed.late
        scenario = Scenario(instance, factor, delay, parts, pause)
        if scenario.horizon > LONGEST:
            raise InputError(
                f"noise: the sum of all durations is {scenario.horizon:.3g}, above 2^60; choose a coarser unit"
            )
        return scenario


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What all runs of one problem share.

    Parameters
    ----------
    crossing
        Whether what a node waits for comes from another rank, shape (3 * S * m, 2).
    slow
        Factor of the ops of each stage and micro-batch, shape (S, m); None: 1.
    late
        Further delay of each message, shape (3 * S * m, 2); None: 0.
    """

    crossing: npt.NDArray[np.bool_]
    slow: npt.NDArray[np.float64] | None
    late: npt.NDArray[np.float64] | None
