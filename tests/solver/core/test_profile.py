"""From seconds measured to the ticks of a problem."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import Affine, InputError, Kind, Measurement, Part, Problem, Profile, place
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


def cut_profile(work: tuple[int, ...], measured: dict[int, tuple[int, ...]], range_s: float = 0.0) -> Profile:
    """Two stages whose W has units of this work; for each size, the bytes that each unit frees."""
    measurements = tuple(
        replace(
            measurement(size),
            retained=sum(freed),
            unit_bytes=freed,
            unit_s=tuple(
                measurement(size).backward_weight_s * part / sum(work) + range_s * (unit > 0)
                for unit, part in enumerate(work)
            ),
        )
        for size, freed in sorted(measured.items())
    )
    return Profile("test", tuple(Part(f"stage {s}", 0, measurements, unit_work=work) for s in (0, 1)), 0.0)


WORK = st.lists(st.integers(1, 10**13), min_size=2, max_size=6).map(tuple)


@given(WORK, st.sampled_from([(2,), (3,), (1, 2, 4)]))
def test_units_take_the_whole_in_sum_each_by_its_work(work: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    profile = cut_profile(work, {size: (size,) * len(work) for size in (1, 2, 4)})
    whole = replace(profile, parts=tuple(replace(part, unit_work=(1,)) for part in profile.parts))
    problem, coarse = (each.problem(place("linear", 2), samples=12, sizes=sizes) for each in (profile, whole))
    for size in sizes:
        ticks = [price(unit, size) for unit in problem.weight_units[0]]
        assert sum(ticks) == price(coarse.weight_units[0][0], size)
        for share, done in zip(accumulate(work), accumulate(ticks), strict=True):
            assert abs(done - sum(ticks) * share / sum(work)) <= 1 + size


@given(WORK, st.data())
def test_no_more_is_freed_than_was_seen(work: tuple[int, ...], data: st.DataObject) -> None:
    """Whatever units have run, at least what was measured is left; bytes on a line are exact, also between sizes."""
    freed = st.lists(st.integers(0, 10**9), min_size=len(work), max_size=len(work)).map(tuple)
    measured = data.draw(st.dictionaries(st.integers(1, 9), freed, min_size=1, max_size=4))
    problem = cut_profile(work, measured).problem(place("linear", 2), samples=40, sizes=(1, 5))
    assert problem.memory.retained_units is not None
    units, retained = problem.memory.retained_units[0], problem.memory.retained[0]
    for size, seen in measured.items():
        assert all(price(unit, size) >= one for unit, one in zip(units, seen, strict=True))
    for size in range(1, 12):
        assert sum(price(unit, size) for unit in units) == price(retained, size)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=2, max_size=5))
def test_bytes_on_a_line_are_that_line(lines: list[tuple[int, int]]) -> None:
    measured = {size: tuple(a + b * size for a, b in lines) for size in (1, 3, 4)}
    problem = cut_profile((1,) * len(lines), measured).problem(place("linear", 2), samples=40, sizes=(1, 2))
    assert problem.memory.retained_units is not None
    assert problem.memory.retained_units[0] == tuple(Affine(a, b) for a, b in lines)


def test_a_size_that_was_measured_has_the_bytes_that_were_seen() -> None:
    problem = cut_profile((2, 1), {1: (7, 5), 2: (8, 9)}).problem(place("linear", 2), samples=4, sizes=[2])
    assert problem.memory.retained == (17, 17)
    assert problem.memory.retained_units == ((8, 9), (8, 9))
    assert problem.weight_units[0] == (1334 - 1, 2000 - 1333)


def test_a_problem_with_units_survives_its_file(tmp_path: Path) -> None:
    for sizes in ([2], [1, 2, 3]):
        problem = cut_profile((2, 1), {1: (7, 5), 2: (8, 9)}, range_s=1e-5).problem(place("linear", 2), 12, sizes)
        problem.save(tmp_path / "problem.json")
        assert Problem.load(tmp_path / "problem.json") == problem


def test_a_part_without_weight_gradients_has_one_unit_of_nothing() -> None:
    bare = replace(measurement(1), backward_weight_s=0.0, retained=0)
    problem = Profile("test", (Part("a", 0, (bare,)),) * 2, 0.0).problem(place("linear", 2), samples=2, sizes=[1])
    assert problem.weight_units == ((0,), (0,))
    assert problem.memory.retained_units is None
    assert problem.overhead == (0, 0)


def test_a_range_costs_what_units_take_more_than_the_whole() -> None:
    profile = cut_profile((2, 1, 1), dict.fromkeys((1, 2, 4), (1, 1, 1)), range_s=3.05e-5)
    assert profile.parts[0].range_s == pytest.approx(3.05e-5)
    assert profile.problem(place("linear", 2), samples=4, sizes=[1, 2]).overhead == (31, 31)
    faster = cut_profile((2, 1, 1), {1: (1, 1, 1)}, range_s=-3e-5)
    assert faster.parts[0].range_s == 0.0
    assert Part("whole", 0, (measurement(1),)).range_s == 0.0


def test_what_fusing_saves() -> None:
    part = PROFILE.parts[0]
    assert [m.fused_saving for m in part.measurements] == pytest.approx([-0.2] * 3)  # three halves of two and a half
    saving = replace(measurement(1), backward_s=measurement(1).backward_input_s)
    assert replace(part, measurements=(saving,)).fused_saving == pytest.approx(0.2)
    nothing = replace(measurement(1), backward_input_s=0.0, backward_weight_s=0.0)
    assert replace(part, measurements=(nothing,)).fused_saving == 0.0


def test_the_error_of_a_fit() -> None:
    part = PROFILE.parts[0]
    assert all(part.fit_error(kind) == pytest.approx(0, abs=1e-9) for kind in Kind)
    one, two, four = part.measurements
    bent = replace(part, measurements=(one, replace(two, forward_s=1.5 * two.forward_s), four))
    assert bent.fit_error(Kind.F) > 0.1
    assert bent.fit_error(Kind.B) == pytest.approx(0, abs=1e-9)
