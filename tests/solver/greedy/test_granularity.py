"""The greedy with fused backwards and ranges of weight units to choose."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Kind, Objective, Problem, Schedule, check, simulate
from adaptpipe.solver.bounds import infeasible, instance_bound
from adaptpipe.solver.core.granularity import NONE, Granularity
from adaptpipe.solver.greedy import greedy
from tests.strategies import problems, sizes_of

EVERY = [Granularity(fused, units) for fused in (False, True) for units in (False, True)]


def kinds(schedule: Schedule) -> set[Kind]:
    return {op.kind for row in schedule.ops for op in row}


def ranges(schedule: Schedule) -> int:
    return sum(op.units is not None for row in schedule.ops for op in row)


@settings(max_examples=40, deadline=None)
@given(problems(max_ranks=3, max_samples=4), st.sampled_from(("makespan", "span")), st.data())
def test_only_what_is_free_is_chosen_and_more_freedom_is_no_loss(
    problem: Problem, objective: Objective, data: st.DataObject
) -> None:
    sizes = data.draw(sizes_of(problem))
    found = {}
    for granularity in EVERY:
        at = granularity.restricted(problem)
        schedule = greedy(at, sizes, objective, granularity=granularity)
        assert schedule is not None or infeasible(problem, sizes) or not granularity.fused
        if schedule is None:
            continue
        assert check(problem, schedule) == ()
        assert granularity.fused or Kind.B not in kinds(schedule)
        assert granularity.units or ranges(schedule) == 0
        found[granularity] = simulate(problem, schedule).value(objective)
        assert simulate(at, schedule).value(objective) == found[granularity]
        assert found[granularity] >= instance_bound(at.instance(sizes), objective)
    coarse = found.get(EVERY[0])
    assert coarse is None or all(value <= coarse for value in found.values())


def one_stage(**memory: int) -> Problem:
    """Two ranks; while the second waits for an input there is room for a unit of 3 ticks, not for a whole W of 6."""
    return Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 4},
            "costs": {"forward": 4, "backward_input": 4, "weight_units": [3, 3]},
            "links": {"latency": 1},
            "memory": {"activation": 4, "retained": 4} | memory,
        }
    )


def test_a_range_makes_just_the_room_that_an_input_waits_for() -> None:
    """Each unit frees 2 B of 4. With 10 B a second F waits for one unit only."""
    problem = one_stage(limit=10)
    cut, whole = greedy(problem), greedy(problem, granularity=Granularity(units=False))
    assert cut is not None
    assert whole is not None
    assert ranges(cut) > 0
    assert simulate(problem, cut).makespan < simulate(problem, whole).makespan


def test_a_dear_range_is_not_chosen() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 4},
            "costs": {"forward": 4, "backward_input": 4, "weight_units": [3, 3], "overhead": 50},
        }
    )
    found = greedy(problem)
    assert found is not None
    assert ranges(found) == 0


def test_none_where_only_fused_backwards_fit_and_they_are_not_to_be_chosen() -> None:
    """I would leave 6 B where 5 are free, whatever runs before."""
    problem = one_stage(activation=5, retained=6, limit=5)
    assert greedy(problem) is not None
    assert greedy(problem, granularity=NONE) is None
    assert greedy(problem, granularity=Granularity(fused=False), deadline=0.0) is None


def test_a_split_order_is_found_where_weight_gradients_make_the_room_for_the_next() -> None:
    """I swells to 6 B: with 10 B, it fits beside one activation only once the last W is done."""
    problem = one_stage(activation=4, retained=6, limit=10)
    found = greedy(problem, granularity=NONE)
    assert found is not None
    assert check(problem, found) == ()
    assert kinds(found) == {Kind.F, Kind.I, Kind.W}


@pytest.mark.parametrize("granularity", EVERY, ids=str)
def test_same_arguments_same_schedule(granularity: Granularity) -> None:
    problem = one_stage(limit=10)
    assert greedy(problem, granularity=granularity) == greedy(problem, granularity=granularity)


def test_a_deadline_in_the_past_leaves_a_schedule_of_either_search() -> None:
    problem = one_stage(activation=5, retained=6, limit=5)
    found = greedy(problem, deadline=0.0)
    assert found is not None, "no split schedule fits; the first policy that fuses is tried all the same"
    assert check(problem, found) == ()
