"""Measuring stages: units of weight gradients, what they free, and that a run holds what the problem says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adaptpipe.executor.errors import RankFailure
from adaptpipe.executor.launching.launcher import launch
from adaptpipe.solver import Kind, Problem, Profile, place, simulate

from ...strategies import drawn, schedules_of
from . import profiling_jobs as jobs

pytestmark = pytest.mark.timeout(120)

V = place("v", 2, 2)


@pytest.fixture(scope="module")
def profile() -> Profile:
    """A GPT of two blocks, an embedding and a head, each a stage."""
    first, second = launch(jobs.profile_of, 2, (V, "gpt", (3, 1, 2), 4), threads=1)
    assert first == second
    return first


def test_units_are_as_even_as_weight_gradients_allow(profile: Profile) -> None:
    block = 2 * 8 * 3 * 8 * 8  # of a square layer: eight positions, three samples, eight features
    assert [part.unit_work for part in profile.parts] == [
        (1,),  # an embedding leaves nothing to W
        (4 * block, 4 * block, block, 3 * block),
        (4 * block, 4 * block, block, 3 * block),
        (2 * 8 * 3 * 8 * 13,),
    ]


def test_what_each_unit_takes_and_frees(profile: Profile) -> None:
    for part in profile.parts:
        assert [m.size for m in part.measurements] == [1, 2, 3]
        for m in part.measurements:
            units = len(part.unit_work) if len(part.unit_work) > 1 else 0
            assert len(m.unit_s) == len(m.unit_bytes) == units
            assert all(seconds > 0 for seconds in m.unit_s)
            if units:
                assert sum(m.unit_bytes) == m.retained
                # Input and output gradient of fc2, fc1, proj and qkv, for each of eight positions of eight features.
                assert m.unit_bytes == tuple(m.size * 8 * 8 * 4 * width for width in (5, 5, 2, 4))
    assert [m.backward_weight_s for m in profile.parts[0].measurements] == [0.0] * 3


def cases(problem: Problem, count: int, number: int) -> list[jobs.Run]:
    """Random schedules of a problem."""
    return [jobs.Run(problem, schedule) for schedule in drawn(schedules_of(problem), count, number)]


def bare(problem: Problem) -> Problem:
    """Without the bytes of weights, which a run does not count."""
    return replace(problem, memory=replace(problem.memory, static=(0,) * problem.stages, weights=()))


def test_a_run_holds_what_the_problem_says(profile: Profile) -> None:
    """To the byte where one size is allowed, and no more where several are: ranges in any order, fused or not.

    Weight gradients are cut in proportion to their units' ticks: of microseconds these tiny ones have too few.
    """
    one = bare(profile.problem(V, samples=8, sizes=[2], unit="ns"))
    several = bare(profile.problem(V, samples=9, sizes=[1, 2, 3], unit="ns"))
    runs = [*cases(one, 15, 1), *cases(several, 15, 2)]
    ranges = {op.units for run in runs for row in run.schedule.ops for op in row if op.kind is Kind.W}
    assert len(ranges) > 6
    measured = launch(jobs.peaks, 2, ("gpt", runs), threads=1)
    for number, run in enumerate(runs):
        held = tuple(rank[number] for rank in measured)
        said = simulate(run.problem, run.schedule).peak_memory
        if run.problem is one:
            assert held == said
        else:
            assert all(a <= b for a, b in zip(held, said, strict=True))


def test_a_checkpointed_stage_is_measured_as_it_is() -> None:
    """Recomputing was counted once in the model and done twice at run time: pytorch/pytorch#136766.

    F leaves a stage's input, and what the loss saved; I, which recomputes, leaves what both weight gradients need. Rows
    of the batch do not count, for they are there anyway.
    """
    (profile, _) = launch(jobs.profile_of, 2, (place("linear", 2), "recomputed", (3,), 1), threads=1)
    one = 3 * 4
    (first,), (last,) = (part.measurements for part in profile.parts)
    assert (first.activation, last.activation) == (0, (8 + 8) * one)
    assert (first.retained, last.retained) == ((16 + 16 + 8) * one, (8 + 16 + 16 + 8) * one)
    assert [part.deferred for part in profile.parts] == [1.0, 1.0]
    weights = 4 * (
        8 * 16 + 16 * 8
    )  # and their gradients, and two moments; and what recomputing makes of the first layer
    assert [part.static for part in profile.parts] == [4 * weights + (16 + 16) * one] * 2
    assert [part.weights for part in profile.parts] == [weights] * 2


def test_at_most_as_many_units_as_asked_for() -> None:
    (profile, _) = launch(jobs.profile_of, 2, (V, "gpt", (1,), 2), threads=1)
    assert [len(part.unit_work) for part in profile.parts] == [1, 2, 2, 1]


def test_a_measurement_leaves_all_as_it_was() -> None:
    assert launch(jobs.leaves_all_as_it_was, 2, place("linear", 2)) == (True, True)


def test_no_units_are_refused() -> None:
    with pytest.raises(RankFailure, match="InputError: units: 0 is below 1"):
        launch(jobs.profile_of, 2, (V, "gpt", (1,), 0), threads=1)
