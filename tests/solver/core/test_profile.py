"""From seconds measured to the ticks of a problem."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import Affine, InputError, Measurement, Part, Profile, place
from adaptpipe.solver.core.problem import price
from adaptpipe.solver.core.profile import to_ticks


def measurement(size: int, fixed: float = 0.002, slope: float = 0.001) -> Measurement:
    seconds = fixed + slope * size
    return Measurement(size, seconds, 2 * seconds, seconds / 2, 3 * seconds, 100 * size, 80 * size, 64 * size)


PROFILE = Profile(
    "test", tuple(Part(f"stage {s}", 1000, (measurement(1), measurement(2), measurement(4))) for s in (0, 1)), 1e-4
)


def test_a_size_that_was_measured_costs_what_was_measured_rounded_up() -> None:
    problem = PROFILE.problem(place("linear", 2), samples=8, sizes=[2])
    assert problem.forward == (4000, 4000)
    assert problem.backward_input == (8000, 8000)
    assert problem.weight_units == ((2000,), (2000,))
    assert problem.backward == (12000, 12000)
    assert problem.memory.activation == (200, 200)
    assert problem.links.latency[0][1] == 100


def test_several_sizes_give_the_line_that_made_them() -> None:
    problem = PROFILE.problem(place("linear", 2), samples=8, sizes=[1, 3])
    assert isinstance(problem.forward[0], Affine)
    for size in (1, 2, 3, 4):
        assert price(problem.forward[0], size) == pytest.approx(2000 + 1000 * size, abs=2 + size)


def test_a_line_never_falls_below_zero() -> None:
    falling = replace(
        PROFILE,
        parts=tuple(replace(p, measurements=(measurement(1, -0.0005), measurement(4, -0.0005))) for p in PROFILE.parts),
    )
    cost = falling.problem(place("linear", 2), samples=8, sizes=[1, 2]).forward[0]
    assert isinstance(cost, Affine)
    assert cost.fixed == 0
    assert cost.per_sample > 0
    shrinking = replace(
        PROFILE,
        parts=tuple(
            replace(p, measurements=(measurement(1, 0.01, -0.001), measurement(4, 0.01, -0.001))) for p in PROFILE.parts
        ),
    )
    cost = shrinking.problem(place("linear", 2), samples=8, sizes=[1, 2]).forward[0]
    assert isinstance(cost, Affine)
    assert cost.per_sample == 0
    assert cost.fixed > 0


def test_bandwidth_makes_messages_cost_their_bytes() -> None:
    problem = replace(PROFILE, bandwidth=64e6).problem(place("linear", 2), samples=4, sizes=[1])
    instance = problem.instance(problem.default_sizes())
    assert sorted(set(instance.lag.reshape(-1).tolist())) == [0, 101]  # 100 us and 64 bytes at 64 MB/s


def test_parts_and_stages_must_agree() -> None:
    with pytest.raises(InputError, match="the profile has 2 parts, the placement 3 stages"):
        PROFILE.problem(place("linear", 3), samples=8, sizes=[1])


def test_ticks_are_rounded_up_never_down() -> None:
    assert to_ticks(0.0, "us") == 0
    assert to_ticks(1e-9, "us") == 1
    assert to_ticks(0.004, "us") == 4000  # though the float nearest to 0.004 lies above it


@given(st.dictionaries(st.integers(1, 16), st.integers(0, 10**6), min_size=1, max_size=5))
def test_no_measured_bytes_are_above_the_price(activations: dict[int, int]) -> None:
    parts = tuple(
        Part(
            f"stage {s}",
            0,
            tuple(replace(measurement(size), activation=held) for size, held in sorted(activations.items())),
        )
        for s in (0, 1)
    )
    problem = Profile("test", parts, 0.0).problem(place("linear", 2), samples=40, sizes=[1, 2, 17])
    for size, held in activations.items():
        assert price(problem.memory.activation[0], size) >= held
