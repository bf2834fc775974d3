"""What a model's layers or stages cost on a device, in seconds and bytes, and the problem that follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil
from statistics import median

from .errors import InputError
from .fit import Line, exact, fit
from .granularity import total
from .ops import Kind
from .placement import Placement
from .problem import SECONDS, Affine, Cost, Links, Memory, Problem

_SECONDS_OF = {
    Kind.F: "forward_s",
    Kind.I: "backward_input_s",
    Kind.W: "backward_weight_s",
    Kind.B: "backward_s",
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """Costs of one part for one micro-batch size.

    Parameters
    ----------
    size
        Samples in the micro-batch.
    forward_s, backward_input_s, backward_weight_s, backward_s
        Seconds of F, I, W and B.
    activation, retained
        Bytes held after F and after I.
    message
        Bytes that the part passes on.
    unit_s
        Seconds of each unit of W, run apart; empty where W was not cut.
    unit_bytes
        Bytes that each unit frees, `retained` in sum; empty where W was not cut.
    transient
        The most bytes that one of its ops holds for itself while it runs, beyond the larger of what is held before and
        after it; 0 where nobody looked.
    spread
        Of F, I, W and B, how far the middle half of the repeats spreads, relative to the median; empty where nothing
        was repeated.
    """

    size: int
    forward_s: float
    backward_input_s: float
    backward_weight_s: float
    backward_s: float
    activation: int
    retained: int
    message: int
    unit_s: tuple[float, ...] = ()
    unit_bytes: tuple[int, ...] = ()
    transient: int = 0
    spread: tuple[float, ...] = ()

    @property
    def range_s(self) -> float:
        """Seconds that each range of W beyond the first costs: what units take more than the whole, never below 0."""
        if len(self.unit_s) < 2:
            return 0.0
        return max(0.0, (sum(self.unit_s) - self.backward_weight_s) / (len(self.unit_s) - 1))

    @property
    def fused_saving(self) -> float:
        """Part of I + W that B saves; below 0 where it takes longer."""
        split = self.backward_input_s + self.backward_weight_s
        return 1 - self.backward_s / split if split else 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """A layer or a stage.

    Parameters
    ----------
    name
        For people.
    static
        Bytes of weights, gradients and optimizer state, and those that a recomputing backward holds besides.
    measurements
        Costs at several micro-batch sizes, ascending.
    deferred
        Share of the parameters whose gradient W computes; the others' is part of I.
    unit_work
        Floating-point operations of each unit of W, at any one size: whoever runs a W cuts it in this proportion.
    kind
        What sort of layer it is: "embedding", "block", "attention", "mlp", "head", …; "" where nobody asks.
    parameters
        Number of parameters; 0 where nobody asks.
    scatter
        Where several equal layers were measured and share their figures: how far the time of one of them, all its ops
        together, lies from the others' median at most, relative to that.
    uneven
        Standard deviation, over the mean, of its times from one micro-batch to the next, where these depend on what is
        in it, as with experts.
    weights
        Bytes of `static` that are one version of the weights that train; 0 where nobody asks.
    """

    name: str
    static: int
    measurements: tuple[Measurement, ...]
    deferred: float = 1.0
    unit_work: tuple[int, ...] = (1,)
    kind: str = ""
    parameters: int = 0
    scatter: float = 0.0
    uneven: float = 0.0
    weights: int = 0

    @property
    def range_s(self) -> float:
        """Seconds that each range of W beyond the first costs: the median over the sizes."""
        return median(m.range_s for m in self.measurements)

    @property
    def fused_saving(self) -> float:
        """Part of I + W that B saves: the median over the sizes."""
        return median(m.fused_saving for m in self.measurements)

    def seconds(self, kind: Kind) -> dict[int, float]:
        """Seconds of an op, by micro-batch size."""
        return self.values(_SECONDS_OF[kind])

    def values(self, field: str) -> dict[int, float]:
        """A field of the measurements, by micro-batch size."""
        return {m.size: getattr(m, field) for m in self.measurements}

    def line(self, kind: Kind) -> Line:
        """Seconds of an op as a line over the sizes, by which several allowed sizes are priced."""
        return fit(self.seconds(kind))

    def fit_error(self, kind: Kind) -> float:
        """The largest relative deviation of a measured time from the line over the sizes."""
        return self.line(kind).error(self.seconds(kind))


@dataclass(frozen=True, slots=True)
class Profile:
    """Seconds and bytes of a model's parts on a device, and of messages between ranks.

    Parameters
    ----------
    device
        What was measured, or for what it was computed.
    parts
        Layers or stages, first to last.
    latency_s, bandwidth
        Seconds of an empty message, and bytes per second; bandwidth None: messages cost their latency only.
    op_s
        Where the parts are layers: seconds that every op of a stage takes beside those of its layers.
    """

    device: str
    parts: tuple[Part, ...]
    latency_s: float
    bandwidth: float | None = None
    op_s: float = 0.0

    def problem(
        self,
        placement: Placement,
        samples: int,
        sizes: Sequence[int],
        limits: Sequence[int | None] | None = None,
        reserve: Sequence[int] | None = None,
        unit: str = "us",
        name: str = "",
    ) -> Problem:
        """Problem with one stage for each part.

        Durations are rounded up to whole ticks. With one size that was measured, costs are what was measured; otherwise
        they are a least-squares line over the sizes, `fixed + per_sample * size`, with neither below 0. The line of
        bytes is raised until no measured size lies above it, so that a limit which holds here holds in a run.

        The units of a W take its time in sum, each in proportion to its work, so that whoever runs the W cuts it where
        it was cut when it was measured. The bytes that they free are `retained` in sum, and each is raised by itself:
        whatever units have run, no more is left than the problem says.

        Raises
        ------
        InputError
            When there are not as many parts as stages.
        """
        if len(self.parts) != placement.stage_count:
            raise InputError(f"the profile has {len(self.parts)} parts, the placement {placement.stage_count} stages")
        tick, chosen = SECONDS[unit], tuple(sizes)

        def ticks(field: str) -> tuple[Cost, ...]:
            return tuple(_cost(part.values(field), chosen, tick) for part in self.parts)

        def count(field: str) -> tuple[Cost, ...]:
            return tuple(_bytes(part.values(field), chosen) for part in self.parts)

        weight = ticks("backward_weight_s")
        shares = [_unit_bytes(part, chosen) for part in self.parts]
        ranks, weights = placement.ranks, tuple(part.weights for part in self.parts)
        return Problem(
            name=name,
            unit=unit,
            placement=placement,
            samples=samples,
            sizes=tuple(sizes),
            forward=ticks("forward_s"),
            backward_input=ticks("backward_input_s"),
            weight_units=tuple(_divided(cost, part.unit_work) for cost, part in zip(weight, self.parts, strict=True)),
            backward=ticks("backward_s"),
            overhead=tuple(to_ticks(part.range_s, unit) for part in self.parts),
            memory=Memory(
                activation=count("activation"),
                retained=tuple(total(units) for units in shares),
                retained_units=tuple(shares) if any(len(units) > 1 for units in shares) else None,
                static=tuple(part.static for part in self.parts),
                reserve=tuple(reserve) if reserve is not None else (0,) * ranks,
                limit=tuple(limits) if limits is not None else (None,) * ranks,
                weights=weights if any(weights) else (),
            ),
            links=Links(
                latency=((to_ticks(self.latency_s, unit),) * ranks,) * ranks,
                bandwidth=None if self.bandwidth is None else ((self.bandwidth,) * ranks,) * ranks,
                message=() if self.bandwidth is None else count("message"),
            ),
        )


def to_ticks(seconds: float, unit: str) -> int:
    """Seconds as whole ticks, rounded up.

    Examples
    --------
    >>> to_ticks(0.0000021, "us")
    3
    """
    return _round_up(seconds, SECONDS[unit])


def _round_up(value: Fraction | float, quantum: Fraction) -> int:
    return ceil(exact(value) / quantum)


def _cost(values: Mapping[int, float], sizes: tuple[int, ...], quantum: Fraction) -> Cost:
    if len(sizes) == 1 and sizes[0] in values:
        return _round_up(values[sizes[0]], quantum)
    return _priced(fit(values), sizes, quantum)


def _bytes(values: Mapping[int, float], sizes: tuple[int, ...]) -> Cost:
    if len(sizes) == 1 and sizes[0] in values:
        return int(values[sizes[0]])
    return _priced(fit(values).above(values), sizes, Fraction(1))


def _priced(line: Line, sizes: tuple[int, ...], quantum: Fraction) -> Cost:
    if len(sizes) == 1:
        return _round_up(line.at(sizes[0]), quantum)
    return Affine(_round_up(line.fixed, quantum), _round_up(line.per_sample, quantum))


def _unit_bytes(part: Part, sizes: tuple[int, ...]) -> tuple[Cost, ...]:
    if len(part.unit_work) == 1:
        return (_bytes(part.values("retained"), sizes),)
    return tuple(
        _bytes({m.size: m.unit_bytes[unit] for m in part.measurements}, sizes) for unit in range(len(part.unit_work))
    )


def _divided(cost: Cost, work: Sequence[int]) -> tuple[Cost, ...]:
    """Whole costs in proportion to work, the given cost in sum."""
    if isinstance(cost, Affine):
        fixed, slope = _shares(cost.fixed, work), _shares(cost.per_sample, work)
        return tuple(Affine(a, b) for a, b in zip(fixed, slope, strict=True))
    return tuple(_shares(cost, work))


def _shares(whole: int, work: Sequence[int]) -> list[int]:
    ends = [0, *accumulate(work)]
    return [whole * b // ends[-1] - whole * a // ends[-1] for a, b in pairwise(ends)]
