"""What a model's layers or stages cost on a device, in seconds and bytes, and the problem that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from .errors import InputError
from .placement import Placement
from .problem import SECONDS, Affine, Cost, Links, Memory, Problem


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
    """

    size: int
    forward_s: float
    backward_input_s: float
    backward_weight_s: float
    backward_s: float
    activation: int
    retained: int
    message: int


@dataclass(frozen=True, slots=True)
class Part:
    """A layer or a stage.

    Parameters
    ----------
    name
        For people.
    static
        Bytes of weights, gradients and optimizer state.
    measurements
        Costs at several micro-batch sizes, ascending.
    deferred
        Share of the parameters whose gradient W computes; the others' is part of I.
    """

    name: str
    static: int
    measurements: tuple[Measurement, ...]
    deferred: float = 1.0


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
    """

    device: str
    parts: tuple[Part, ...]
    latency_s: float
    bandwidth: float | None = None

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

        Raises
        ------
        InputError
            When there are not as many parts as stages.
        """
        if len(self.parts) != placement.stage_count:
            raise InputError(f"the profile has {len(self.parts)} parts, the placement {placement.stage_count} stages")
        tick = SECONDS[unit]

        def ticks(field: str) -> tuple[Cost, ...]:
            return tuple(_cost(part, field, tuple(sizes), tick) for part in self.parts)

        def count(field: str) -> tuple[Cost, ...]:
            return tuple(_cost(part, field, tuple(sizes), Fraction(1)) for part in self.parts)

        ranks = placement.ranks
        return Problem(
            name=name,
            unit=unit,
            placement=placement,
            samples=samples,
            sizes=tuple(sizes),
            forward=ticks("forward_s"),
            backward_input=ticks("backward_input_s"),
            weight_units=tuple((cost,) for cost in ticks("backward_weight_s")),
            backward=ticks("backward_s"),
            overhead=(0,) * placement.stage_count,
            memory=Memory(
                activation=count("activation"),
                retained=count("retained"),
                static=tuple(part.static for part in self.parts),
                reserve=tuple(reserve) if reserve is not None else (0,) * ranks,
                limit=tuple(limits) if limits is not None else (None,) * ranks,
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


def _round_up(value: float, quantum: Fraction) -> int:
    # The decimal that a float prints as is what its maker meant: 0.004 s are 4000 us, though the float lies above it.
    return ceil(Fraction(repr(float(value))) / quantum)


def _cost(part: Part, field: str, sizes: tuple[int, ...], quantum: Fraction) -> Cost:
    values = {m.size: float(getattr(m, field)) for m in part.measurements}
    if len(sizes) == 1 and sizes[0] in values:
        return _round_up(values[sizes[0]], quantum)
    fixed, slope = _line(sorted(values.items()))
    if quantum == 1:  # bytes
        fixed = max(0.0, *(value - slope * size for size, value in values.items()))
    if len(sizes) == 1:
        return _round_up(fixed + slope * sizes[0], quantum)
    return Affine(_round_up(fixed, quantum), _round_up(slope, quantum))


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Least-squares line with neither part below 0."""
    x, y = np.array([p for p, _ in points], dtype=float), np.array([v for _, v in points])
    if len(points) == 1:
        return 0.0, float(y[0] / x[0])
    slope, fixed = np.polyfit(x, y, 1)
    if fixed < 0:
        return 0.0, float((x @ y) / (x @ x))
    if slope < 0:
        return float(y.mean()), 0.0
    return float(fixed), float(slope)
