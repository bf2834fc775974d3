"""Micro-batches that are sliced, in every search: valid orders, true bounds, true proofs."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Objective, Problem, Schedule, Slices, Status, check, simulate, solve
from adaptpipe.solver.bounds import infeasible, instance_bound, needed
from adaptpipe.solver.bounds.few_ranks import applies, in_equal_units
from adaptpipe.solver.bounds.tight import tight_bound
from adaptpipe.solver.core.problem import Cost, price
from adaptpipe.solver.evaluate.noise import Noise
from adaptpipe.solver.floating import simulate_adaptive
from adaptpipe.solver.greedy import greedy
from adaptpipe.solver.greedy.kernel import FAR
from adaptpipe.solver.greedy.policy import change
from adaptpipe.solver.greedy.search import Search
from adaptpipe.solver.heuristics import svpp
from adaptpipe.solver.heuristics.one_by_one import one_by_one
from tests.solver.oracle import optimum, small
from tests.strategies import problems, schedules_of

OBJECTIVES = st.sampled_from(get_args(Objective))
SLICED = problems(max_ranks=3, max_samples=3, slices=True)
TINY = problems(max_ranks=2, max_samples=2, slices=True, families=("linear", "explicit"))


@given(st.data(), OBJECTIVES)
@settings(max_examples=50)
def test_no_schedule_is_below_the_bound(data: st.DataObject, objective: Objective) -> None:
    problem = data.draw(problems(slices=True, limited=False))
    schedule = data.draw(schedules_of(problem))
    peak = simulate(problem, schedule).peak_memory
    tight = replace(problem, memory=replace(problem.memory, limit=peak))
    bound = instance_bound(tight.instance(schedule.sizes), objective)
    assert bound <= simulate(tight, schedule).value(objective)


@given(st.data(), st.integers(2, 3))
@settings(max_examples=20, deadline=None)
def test_no_schedule_is_below_the_bound_of_a_few_ranks(data: st.DataObject, slices: int) -> None:
    """It takes slices that are alike, cut into units too, for micro-batches; their messages are parts of the whole."""
    drawn = data.draw(problems(slices=True, limited=False, max_samples=3, sizes=False))
    whole = replace(
        drawn,
        slices=Slices.equal(slices),
        forward=times(drawn.forward, slices),
        backward_input=times(drawn.backward_input, slices),
        backward=None,
        weight_units=tuple(times(units, slices) for units in drawn.weight_units),
        memory=replace(
            drawn.memory,
            activation=times(drawn.memory.activation, slices),
            retained=times(drawn.memory.activation, slices),
        ),
        links=replace(drawn.links, message=times(drawn.links.message, slices)),
    )
    assert applies(whole.instance(whole.default_sizes()))
    schedule = data.draw(schedules_of(whole))
    timeline = simulate(whole, schedule)
    tight = replace(whole, memory=replace(whole.memory, limit=timeline.peak_memory))
    assert tight_bound(tight, schedule.sizes, deadline=time.monotonic() + 0.1) <= timeline.makespan


def test_equal_units_keep_the_messages_of_slices() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "unit": "ns",
            "batch": {"samples": 2, "slices": 2},
            "costs": {"forward": 4, "backward_input": 4, "weight_units": [4, 2]},
            "links": {"bandwidth": 1e9, "bytes": 100},
        }
    )
    instance = problem.instance(problem.default_sizes())
    assert int(instance.lag.max()) == 50
    assert np.array_equal(in_equal_units(instance).lag, instance.lag)


def times(costs: tuple[Cost, ...], slices: int) -> tuple[Cost, ...]:
    """What a whole micro-batch costs whose slices cost that much each, as the sum that is cut evenly."""
    return tuple(slices * price(cost, 1) for cost in costs)


@given(problems(slices=True, limited=False, max_samples=3))
@settings(max_examples=40)
def test_one_micro_batch_alone_needs_the_activations_of_all_its_slices(problem: Problem) -> None:
    """One after the other always fits there, and with a byte less on any rank nothing does."""
    size = problem.sizes[0]
    least = tuple(needed(problem, rank, 0, size) for rank in range(problem.ranks))
    tight = replace(problem, memory=replace(problem.memory, limit=least))
    assert infeasible(tight) == ""
    assert check(tight, one_by_one(tight, tight.default_sizes())) == ()
    assert simulate(tight, one_by_one(tight, tight.default_sizes())).peak_memory == least
    split = tuple(needed(problem, rank, 0, size, fused=False) for rank in range(problem.ranks))
    assert simulate(problem, one_by_one(problem, problem.default_sizes()).split()).peak_memory == split
    for rank in range(problem.ranks):
        below = replace(tight.memory, limit=(*least[:rank], least[rank] - 1, *least[rank + 1 :]))
        assert f"rank {rank} needs" in infeasible(replace(tight, memory=below))


@pytest.mark.timeout(300)
@given(TINY, OBJECTIVES)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_searches_prove_what_trying_every_order_finds(problem: Problem, objective: Objective) -> None:
    sizes = problem.default_sizes()
    assume(small(problem, sizes))
    best = optimum(problem.instance(sizes), objective)
    found = solve(problem, "cpsat", objective=objective, time_limit=5, workers=1)
    assert found.infeasible == (best is None)
    if best is None:
        return
    assert found.value is not None
    assert found.bound <= best <= found.value
    assert found.status is not Status.OPTIMAL or found.value == best
    assert check(problem, found.schedule) == ()


@given(SLICED, st.sampled_from(["auto", "anneal", "cpsat", "greedy"]), OBJECTIVES)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_every_search_gives_a_valid_order(problem: Problem, method: str, objective: Objective) -> None:
    found = solve(problem, method, objective=objective, time_limit=0.3, workers=1)
    if found.timeline is None:
        assert found.reason
        return
    assert check(problem, found.schedule) == ()
    assert found.schedule.slices == problem.slice_count
    assert found.value is not None
    assert found.value >= found.bound


@given(st.data(), st.integers(0, 99))
@settings(max_examples=15)
def test_orders_under_noise_and_floating_units_keep_the_turns(data: st.DataObject, seed: int) -> None:
    """A search for robust orders, and runs that fill waits with weight gradients, move no slice past another."""
    problem = data.draw(problems(max_ranks=3, slices=True, limited=False))
    schedule = data.draw(schedules_of(problem))
    noise = Noise(sigma=0.3, seed=seed)
    ran = simulate_adaptive(problem, schedule, noise.scenario(problem.instance(schedule.sizes), 0, parts=1))
    assert check(problem, ran.schedule) == ()
    found = solve(problem, "anneal", time_limit=0.3, workers=1, robust=noise, start=schedule)
    assert check(problem, found.schedule) == ()


def test_a_method_for_whole_micro_batches_is_refused() -> None:
    data = {"pipeline": {"ranks": 2}, "costs": {"forward": 3, "backward_input": 3, "backward_weight": 2}}
    problem = Problem.from_dict(data | {"batch": {"samples": 2, "slices": 2}})
    for name in ("ilp", "1F1B", "GPipe", "ZB-H1"):
        with pytest.raises(
            InputError, match=rf"batch.slices: {name} runs whole micro-batches, and these are cut into 2"
        ):
            solve(problem, name)


@given(problems(max_ranks=4, max_samples=5, slices=True, limited=False), st.integers(0, 6), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_no_greedy_policy_gets_stuck(problem: Problem, more: int, seed: int) -> None:
    """However little memory there is beyond what one micro-batch needs alone."""
    least = tuple(needed(problem, rank, 0, problem.sizes[0]) + more for rank in range(problem.ranks))
    tight = replace(problem, memory=replace(problem.memory, limit=least))
    instance = tight.instance(tight.default_sizes())
    search, random = Search(instance, "makespan"), Random(seed)
    for policy in random.sample(list(search.grid()), 3):
        for tried in (policy, change(policy, instance.microbatches, random, fusing=True)):
            search.best = FAR
            assert search.attempt(tried, FAR) is not None
            assert check(tight, search.schedule()) == ()


def test_the_greedy_search_beats_hand_made_orders_and_needs_less_memory() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 4},
            "batch": {"samples": 4, "slices": 4},
            "costs": {"forward": 24, "backward_input": 20, "backward_weight": 16},
            "memory": {"activation": 4, "retained": 4},
        }
    )
    assert simulate(problem, greedy(problem) or svpp(problem)).makespan < simulate(problem, svpp(problem)).makespan
    tight = replace(problem, memory=replace(problem.memory, limit=(4,) * 4))
    found = greedy(tight)
    assert found is not None
    assert check(tight, found) == ()
    assert simulate(tight, found).makespan < simulate(tight, one_by_one(tight, tight.default_sizes())).makespan


def test_a_slice_is_not_an_own_micro_batch() -> None:
    """Backwards go against the order of the forwards: two slices end later than two micro-batches of half the work."""
    costs = {"forward": 4, "backward_input": 4, "backward_weight": 4}
    memory = {"activation": 2, "retained": 1, "limit": 4}
    sliced = Problem.from_dict(
        {"pipeline": {"ranks": 2}, "batch": {"samples": 1, "slices": 2}, "costs": costs, "memory": memory}
    )
    whole = Schedule.parse(sliced.placement, (1, 1), [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]], 2)
    assert len(check(sliced, whole)) == 2
    result = solve(sliced, time_limit=10)
    assert result.status is Status.OPTIMAL
    assert result.value == optimum(sliced.instance((1, 1)))
