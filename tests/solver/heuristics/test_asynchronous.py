"""PipeDream, PipeDream-2BW and PipeMare: as their papers say, and apart from all that searches."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from adaptpipe.solver import InputError, Noise, Problem, Schedule, check, simulate, solve
from adaptpipe.solver.bounds import lower_bound
from adaptpipe.solver.core.stream import staleness, weight_copies
from adaptpipe.solver.heuristics import one_f_one_b, pipedream, pipedream_2bw, pipemare
from tests.solver.heuristics.shapes import SHAPES, problem

BUILDS = (pipedream, pipedream_2bw, pipemare)
MEMORY: dict[str, object] = {"activation": 100, "static": 16, "weights": 2}

Build = Callable[[Problem], Schedule]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_no_bubble_in_the_steady_state_and_1f1bs_in_one_batch(build: Build, ranks: int, microbatches: int) -> None:
    at = problem(ranks, microbatches)
    schedule = build(at)
    assert check(at, schedule) == ()
    timeline = simulate(at, schedule)
    assert timeline.steady is not None
    assert (timeline.steady.microbatch, timeline.steady.bubble) == (Fraction(15), 0.0)
    assert timeline.makespan == (microbatches + ranks - 1) * 15
    assert schedule.ops == one_f_one_b(at).ops


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_versions_staleness_and_memory(ranks: int, microbatches: int) -> None:
    at = problem(ranks, microbatches, memory=MEMORY)
    stages = range(ranks)
    expected = {
        pipedream: ([ranks - s for s in stages], [Fraction(ranks - 1 - s) for s in stages]),
        pipedream_2bw: ([2 for _ in stages], [Fraction(1) for _ in stages]),
        pipemare: ([2 for _ in stages], [Fraction(ranks - 1 - s, microbatches) for s in stages]),
    }
    for build, (copies, late) in expected.items():
        schedule = build(at)
        assert list(weight_copies(schedule)) == copies
        assert list(staleness(schedule)) == late
        held = tuple(16 + 2 * (copies[s] - 1) + 100 * (ranks - s) for s in stages)
        assert simulate(at, schedule).peak_memory == held


@pytest.mark.parametrize("latency", [0, 1, 4])
def test_with_fewer_micro_batches_than_ranks_the_first_stages_take_turns(latency: int) -> None:
    for ranks in range(2, 7):
        for microbatches in range(1, ranks):
            at = problem(ranks, microbatches, latency=latency)
            steady = simulate(at, pipedream(at)).steady
            assert steady is not None
            assert steady.microbatch == (ranks - microbatches + 1) * 15 + 2 * latency * (ranks - microbatches)


@pytest.mark.parametrize("latency", [1, 4])
@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_messages_cost_the_round_trip_of_the_first_stage(ranks: int, microbatches: int, latency: int) -> None:
    at = problem(ranks, microbatches, latency=latency)
    steady = simulate(at, pipedream(at)).steady
    assert steady is not None
    assert steady.microbatch == 15 + Fraction(2 * latency * (ranks - 1), ranks)


def test_double_buffering_needs_as_many_micro_batches_as_ranks() -> None:
    message = "PipeDream-2BW needs as many micro-batches as ranks, or more, and there are 3 on 4 ranks; nearest: 4 mi"
    with pytest.raises(InputError, match=message):
        pipedream_2bw(problem(4, 3))
    for build in (pipedream, pipemare):
        assert check(problem(4, 3), build(problem(4, 3))) == ()


def test_by_name_they_say_what_they_are() -> None:
    at = problem(4, 8, memory=MEMORY)
    result = solve(at, "PIPEDREAM", time_limit=5)
    assert result.value == (8 + 3) * 15
    assert result.reason.startswith("stale weights, 3 updates late at most")
    row = result.row()
    assert (row["updates"], row["weight_copies"]) == ("stash", [4, 3, 2, 1])
    assert (row["steady_microbatch"], row["steady_bubble"]) == (15.0, 0.0)
    synchronous = solve(at, "1F1B", time_limit=5).row()
    assert (synchronous["updates"], synchronous["weight_copies"]) == ("step", [1] * 4)
    assert (synchronous["steady_microbatch"], synchronous["steady_bubble"]) == (None, None)
    assert lower_bound(at, "makespan") <= result.bound <= result.value


def test_versions_that_do_not_fit() -> None:
    at = problem(4, 8, memory=MEMORY | {"limit": 16 + 4 * 100 + 5})
    assert solve(at, "1F1B").timeline is not None
    result = solve(at, "pipedream")
    assert result.lack == "over limit"
    assert "it needs 422 B on rank 0, and the limit is 421 B" in result.reason


def test_no_search_starts_from_them() -> None:
    """On one rank every order is best, and the first that is tried stays."""
    assert solve(problem(1, 3), time_limit=1, workers=1).schedule.updates == "step"
    at = problem(3, 6)
    with pytest.raises(InputError, match="start: its updates are 'newest', and searches are for schedules that flush"):
        solve(at, start=pipemare(at))
    with pytest.raises(InputError, match=r"robust: a search under noise changes the order.*that PipeDream uses"):
        solve(at, "pipedream", robust=Noise(sigma=0.1))
