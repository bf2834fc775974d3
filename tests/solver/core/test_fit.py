"""A line through measured values."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver.core.fit import Line, fit

VALUES = st.dictionaries(st.integers(1, 16), st.integers(0, 10**6), min_size=1, max_size=6)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sets(st.integers(1, 99), min_size=2, max_size=6))
def test_values_on_a_line_give_that_line(fixed: int, slope: int, sizes: set[int]) -> None:
    values = {size: fixed + slope * size for size in sizes}
    assert fit(values) == Line(Fraction(fixed), Fraction(slope))
    assert fit(values).error(values) == 0.0


def relative_squares(line: Line, values: dict[int, int]) -> float:
    floor = max(values.values()) / 100
    return sum(float(line.at(size) - value) ** 2 / max(value, floor) ** 2 for size, value in values.items())


@given(VALUES, st.floats(-0.2, 0.2), st.floats(-0.2, 0.2))
def test_no_line_without_negative_parts_is_nearer(values: dict[int, int], a: float, b: float) -> None:
    line = fit(values)
    assert line.fixed >= 0
    assert line.per_sample >= 0
    if len(values) > 1 and max(values.values()):
        other = Line(
            max(Fraction(0), line.fixed + Fraction(a) * max(values.values())),
            max(Fraction(0), line.per_sample + Fraction(b) * max(values.values())),
        )
        assert relative_squares(line, values) <= relative_squares(other, values) + 1e-9


@given(VALUES)
def test_a_raised_line_is_above_all_values_and_touches_one(values: dict[int, int]) -> None:
    line = fit(values)
    raised = line.above(values)
    assert raised.per_sample == line.per_sample
    assert all(raised.at(size) >= value for size, value in values.items())
    assert raised == line or any(raised.at(size) == value for size, value in values.items())


def test_one_size_gives_a_line_through_nothing() -> None:
    assert fit({4: 10}) == Line(Fraction(0), Fraction(5, 2))


def test_a_float_is_the_decimal_that_it_prints_as() -> None:
    assert fit({1: 0.1, 2: 0.2, 3: 0.3}) == Line(Fraction(0), Fraction(1, 10))


def test_the_fixed_share() -> None:
    assert Line(Fraction(3), Fraction(1)).fixed_share(1) == pytest.approx(0.75)
    assert Line(Fraction(3), Fraction(1)).fixed_share(9) == pytest.approx(0.25)
    assert Line(Fraction(0), Fraction(0)).fixed_share(1) == 0.0
