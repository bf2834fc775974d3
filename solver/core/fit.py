"""A cost as a line over micro-batch sizes, fitted to what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Line:
    """`fixed + per_sample * size`, with neither part below 0.

    Parameters
    ----------
    fixed, per_sample
        In the unit of what was fitted: seconds, or bytes.
    """

    fixed: Fraction
    per_sample: Fraction

    def at(self, size: int) -> Fraction:
        """The value for micro-batches of `size` samples."""
        return self.fixed + self.per_sample * size

    def fixed_share(self, size: int) -> float:
        """The part of the value that does not depend on the size; 0 where there is no value."""
        value = self.at(size)
        return float(self.fixed / value) if value else 0.0

    def error(self, values: Mapping[int, float]) -> float:
        """The largest deviation of a value from the line, relative to the value, by size."""
        return max(
            (float(abs(self.at(size) / exact(value) - 1)) for size, value in values.items() if value), default=0.0
        )

    def above(self, values: Mapping[int, float]) -> Line:
        """This line, raised until no value lies above it."""
        lacking = max(exact(value) - self.at(size) for size, value in values.items())
        return Line(self.fixed + max(Fraction(0), lacking), self.per_sample)


def fit(values: Mapping[int, float]) -> Line:
    """The line with the least squares of relative deviations.

    Relative, because what disturbs a measurement is about in proportion to it, and small micro-batches, which fill and
    drain a pipeline, must be priced as well as large ones. Exact: values on a line give that line.

    Parameters
    ----------
    values
        By size; with one size, the line goes through 0.

    Examples
    --------
    >>> line = fit({1: 30.0, 2: 40.0, 4: 60.0})
    >>> print(line.fixed, line.per_sample, line.error({1: 30.0, 4: 75.0}))
    20 10 0.2
    """
    points = [(size, exact(value)) for size, value in sorted(values.items())]
    largest = max(value for _, value in points)
    if not largest:
        return Line(Fraction(0), Fraction(0))
    if len(points) == 1:
        return Line(Fraction(0), points[0][1] / points[0][0])
    # A value near 0 must not outweigh all others.
    weights = [1 / max(value, largest / 100) ** 2 for _, value in points]
    pairs = list(zip(weights, points, strict=True))
    n, zero = sum(weights), Fraction(0)
    x, y = sum((w * x for w, (x, _) in pairs), zero), sum((w * y for w, (_, y) in pairs), zero)
    xx, xy = sum((w * x * x for w, (x, _) in pairs), zero), sum((w * x * y for w, (x, y) in pairs), zero)
    slope = (n * xy - x * y) / (n * xx - x * x)
    fixed = (y - slope * x) / n
    if fixed < 0:
        return Line(zero, xy / xx)
    if slope < 0:
        return Line(y / n, zero)
    return Line(fixed, slope)


def exact(value: Fraction | float) -> Fraction:
    """The decimal that a float prints as, which is what its maker meant: 0.004 s are 4000 us, though the float lies
    above it.

    Examples
    --------
    >>> exact(0.004)
    Fraction(1, 250)
    """
    return Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)
