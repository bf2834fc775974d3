"""The benchmark of formulas against measurements: what it compares, and its table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adaptpipe.models.costs import PROCESSOR, SINGLE, architecture_of, layers
from adaptpipe.solver import Profile
from benchmarks.calibration import FITTED, HELD_OUT, Case, Results, fastest, fitted, report, rows, within


def exact(case: Case, factor: float = 1.0) -> Profile:
    """As if on a machine that is as the formulas say, but for F of some cases."""
    profile, _ = layers(
        architecture_of(case.config), PROCESSOR, sequence=case.sequence, sizes=case.sizes, recipe=SINGLE
    )
    return replace(
        profile,
        parts=tuple(
            replace(
                part, measurements=tuple(replace(m, forward_s=m.forward_s * factor) for m in part.measurements)
            )
            for part in profile.parts
        ),
    )  # fmt: skip


def results(factor: float) -> Results:
    profiles = [*map(exact, FITTED), *(exact(case, factor) for case in HELD_OUT)]
    return Results("2026-11-30", "a machine", 3.2, 2, tuple(profiles))


def test_no_case_that_is_compared_was_fitted_to() -> None:
    fitted_to = {(case.width, case.sequence, size) for case in FITTED for size in case.sizes}
    for case in HELD_OUT:
        assert case.width not in {width for width, _, _ in fitted_to}
        assert not {(case.width, case.sequence, size) for size in case.sizes} & fitted_to


@pytest.mark.parametrize(("factor", "near"), [(1.0, True), (0.85, True), (0.75, False), (1.5, False)])
def test_errors_are_formula_over_measured(factor: float, near: bool) -> None:
    found = results(factor)
    for row in rows(found, fitted(found)):
        if row.measured[2]:  # an embedding has no W, and little of anything
            assert row.seconds == pytest.approx((1 / factor - 1, 0.0, 0.0), abs=0.02)
        assert row.held == pytest.approx((0.0, 0.0), abs=0.01)
    assert within(found) == near


def test_the_table() -> None:
    text = report(results(0.5))
    assert "| model | +100.0% | " in text.replace("+99.9%", "+100.0%").replace("+100.1%", "+100.0%")
    assert "width 128, 64 tokens, sizes 1, 2, 4; width 256" in text
    assert "one thread; 3 processes wanted to run" in text
    assert text.count("\n| 512 | 128 | ") == 8


def test_the_fastest_of_two_counts() -> None:
    one, other = exact(HELD_OUT[0]), exact(HELD_OUT[0], 0.5)
    assert fastest(one, other) == fastest(other, one) == other
