"""The greedy list scheduler: valid within the limits on every placement, and known optima."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver.core.problem import Problem
from adaptpipe.solver.core.result import Objective
from adaptpipe.solver.core.schedule import Schedule
from adaptpipe.solver.evaluate.check import check
from adaptpipe.solver.evaluate.simulate import simulate
from adaptpipe.solver.greedy import Search, greedy
from adaptpipe.solver.greedy.kernel import FAR
from adaptpipe.solver.greedy.policy import change
from adaptpipe.solver.heuristics import one_f_one_b
from tests.solver.heuristics.shapes import problem

PLACEMENTS: list[str | list[int] | list[list[int]]] = [
    "linear",
    "loop",
    "v",
    "wave",
    "bidirectional",
    [0, 1, 2, 0, 2, 1, 0],
    [[0, 1, 2, 1], [2, 0, 1, 0]],
]


def row_1_5b(ranks: int, microbatches: int, share: float = 1.0, placement: str = "linear") -> Problem:
    """Zero Bubble's 1.5B model in units of 100 us, with the memory of `share` * p activations."""
    chunks = 2 if placement == "v" else 1
    costs = (185, 181, 93) if chunks == 1 else (93, 91, 47)
    memory: dict[str, object] = {"activation": 201, "retained": 74, "limit": int(share * ranks * chunks * 201)}
    return problem(ranks, microbatches, placement, costs=costs, latency=6, memory=memory)


@pytest.mark.parametrize(
    ("ranks", "microbatches", "share", "optimum"),
    [(4, 8, 1, 4563), (8, 24, 1, 13095), (16, 48, 1, 26487), (32, 96, 1, 53271), (4, 8, 2, 4245), (8, 24, 2, 12353)],
)
def test_known_optima(ranks: int, microbatches: int, share: float, optimum: int) -> None:
    """Proven by a lower bound that the schedule meets."""
    at = row_1_5b(ranks, microbatches, share)
    found = greedy(at, target=optimum)
    assert found is not None
    assert check(at, found) == ()
    assert simulate(at, found).makespan == optimum


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, tuple[int, ...]]:
    """Random prices with zeros, and limits at which one micro-batch at a time just fits, or a little more."""
    placement = draw(st.sampled_from(PLACEMENTS))
    per_rank = {"loop": 2, "wave": 4}.get(placement) if isinstance(placement, str) else None
    shape = problem(3, 1, placement, per_rank)
    stages, sizes = shape.stages, tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=6)))
    cost = st.fixed_dictionaries({"fixed": st.integers(0, 9), "per_sample": st.integers(0, 9)})
    row = st.lists(cost, min_size=stages, max_size=stages)
    activation, static = draw(row), draw(st.lists(st.integers(0, 5), min_size=stages, max_size=stages))
    costs = {key: draw(row) for key in ("forward", "backward_input", "backward_weight")}
    if draw(st.booleans()):
        costs["backward"] = draw(row)
    limit = []
    for held in shape.placement.held:
        directions = {direction for direction, _ in held}
        one = max(
            sum(activation[s]["fixed"] + activation[s]["per_sample"] * max(sizes) for d, s in held if d == direction)
            for direction in directions
        )
        limit.append(sum(static[s] for _, s in held) + one + draw(st.sampled_from([0, 0, 1, 30, 1000])))
    at = Problem.from_dict(
        {
            "pipeline": {"ranks": 3, "placement": placement} | ({"stages_per_rank": per_rank} if per_rank else {}),
            "batch": {"samples": sum(sizes), "microbatch_sizes": [1, 2, 3]},
            "costs": costs,
            "memory": {"activation": activation, "retained": draw(row), "static": static, "limit": limit},
            "links": {"latency": draw(st.sampled_from([0, 1, 7]))},
        }
    )
    return at, sizes


OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from(OBJECTIVES))
def test_valid_on_every_placement_wherever_one_micro_batch_at_a_time_fits(
    drawn: tuple[Problem, tuple[int, ...]], objective: Objective
) -> None:
    at, sizes = drawn
    seen: list[tuple[Schedule, int]] = []
    found = greedy(at, sizes, objective, on_schedule=lambda schedule, value: seen.append((schedule, value)))
    assert found == seen[-1][0]
    values = [value for _, value in seen]
    assert values == sorted(set(values), reverse=True)
    for schedule, value in seen:
        assert check(at, schedule) == ()
        assert simulate(at, schedule).value(objective) == value


@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(0, 2**32))
def test_no_policy_gets_stuck(drawn: tuple[Problem, tuple[int, ...]], seed: int) -> None:
    """A V schedule at its memory limit waits for ever unless room is kept for the oldest micro-batch."""
    at, sizes = drawn
    instance = at.instance(sizes)
    search, random = Search(instance, "makespan"), Random(seed)
    for policy in random.sample(list(search.grid()), 5):
        varied = policy
        for _ in range(10):
            varied = change(varied, instance.microbatches, random, fusing=True)
        for tried in (policy, varied):
            search.best = FAR
            assert search.attempt(tried, FAR) is not None
            assert check(at, search.schedule()) == ()


@pytest.mark.parametrize("placement", ["linear", "v", "bidirectional"])
def test_none_where_not_even_one_micro_batch_fits(placement: str) -> None:
    chunks = 2 if placement == "v" else 1
    assert greedy(problem(2, 3, placement, memory={"activation": 5, "limit": chunks * 5 - 1})) is None
    assert greedy(problem(2, 3, placement, memory={"activation": 5, "limit": chunks * 5})) is not None


def test_backward_is_fused_where_its_halves_do_not_fit() -> None:
    """I leaves more than F held, so that only fused backwards fit."""
    at = problem(2, 3, memory={"activation": 5, "retained": 6, "limit": 5})
    found = greedy(at)
    assert found is not None
    assert not found.splits_backward
    assert check(at, found) == ()


def test_cheap_fused_backwards_are_used() -> None:
    at = problem(2, 8, fused=5)
    found = greedy(at)
    assert found is not None
    assert simulate(at, found).makespan <= simulate(at, one_f_one_b(at)).makespan


def test_same_schedule_every_time() -> None:
    at = row_1_5b(4, 8, 0.5, "v")
    assert greedy(at) == greedy(at)


def test_stops_at_the_target_and_at_the_deadline() -> None:
    at = row_1_5b(4, 8, 1, "v")
    full: list[int] = []
    greedy(at, on_schedule=lambda _, value: full.append(value))
    assert len(full) > 1

    def values(target: int | None, deadline: float | None) -> list[int]:
        seen: list[int] = []
        greedy(at, on_schedule=lambda _, value: seen.append(value), target=target, deadline=deadline)
        return seen

    assert values(full[0], None) == full[:1]
    assert values(None, time.monotonic()) == full[:1], "the first policy is always tried"


def test_each_reported_schedule_is_its_own() -> None:
    at = row_1_5b(4, 8, 1, "v")
    seen: list[tuple[Schedule, int]] = []
    greedy(at, on_schedule=lambda schedule, value: seen.append((schedule, value)))
    assert [simulate(at, schedule).makespan for schedule, _ in seen] == [value for _, value in seen]
