"""Targets: whatever each of them takes, all that can be refuted is refuted in the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver.cpsat.targets import Targets


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300), st.floats(0.1, 200))
def test_the_bound_meets_the_optimum(bound: int, gap: int, loss: int, hardness: float) -> None:
    """A refutation takes the more effort, the nearer the target is to the optimum."""
    optimum, value = bound + gap, bound + gap + loss
    targets = Targets()
    for _ in range(200):
        target = targets.next(bound, value)
        if target is None:
            break
        assert bound <= target < value
        if targets.effort < hardness * (1 - abs(optimum - target) / 600):
            targets.too_hard(target)
        elif target < optimum:
            bound = target + 1
        else:
            value = target
            targets.reached(target)
    assert bound == optimum == value


@given(st.integers(0, 9), st.integers(1, 9))
def test_what_the_model_reaches_is_not_asked_again(bound: int, gap: int) -> None:
    targets = Targets()
    first = targets.next(bound, bound + gap)
    assert first is not None
    targets.reached(first)
    again = targets.next(bound, bound + gap)
    assert again is None or again < first
