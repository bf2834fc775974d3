"""Hints: complete, true, and kept, whatever the schedule."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from adaptpipe.solver import Problem, Schedule, check, simulate
from adaptpipe.solver.core.granularity import Granularity
from adaptpipe.solver.cpsat import solve_cpsat
from adaptpipe.solver.cpsat.hint import hint_times, merged
from adaptpipe.solver.cpsat.model import build
from adaptpipe.solver.cpsat.prices import MOST_PIECES, prices
from adaptpipe.solver.cpsat.rebuild import schedule_of
from tests.strategies import problems, schedules_of


@settings(max_examples=80)
@given(problems(max_ranks=3, max_samples=4), st.sampled_from(("makespan", "span")), st.booleans(), st.data())
def test_every_variable_is_hinted_and_the_hint_is_a_solution(
    problem: Problem, objective: Any, fifo: bool, data: st.DataObject
) -> None:
    """A hint that leaves out a literal, or contradicts another, is worth next to nothing on larger problems. Here all
    variables are fixed to it: fused, split and cut backwards in any order, under limits that the schedule keeps."""
    schedule = data.draw(schedules_of(problem))
    assume(not check(problem, schedule))
    scaled = prices(problem.instance(schedule.sizes))
    times = hint_times(problem, scaled, schedule, fifo)
    assert times is not None
    value = simulate(problem, schedule).value(objective) // scaled.step
    model, v = build(scaled, objective, times, 0, value, time.monotonic() + 60, fifo=fifo)
    hinted = dict(zip(model.proto.solution_hint.vars, model.proto.solution_hint.values, strict=True))
    names = [variable.name for variable in model.proto.variables]
    assert [name for index, name in enumerate(names) if index not in hinted] == []
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    solver.parameters.num_workers = 1
    assert solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    again = schedule_of(v, solver.value)
    assert simulate(problem, again).value(objective) <= value * scaled.step


def test_a_schedule_with_ranges_is_kept() -> None:
    """Ranges in an order of their own, around the op that would otherwise wait; no better one is found in no time."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 1},
            "batch": {"samples": 2},
            "costs": {"forward": 4, "backward_input": 3, "weight_units": [1, 2, 3], "overhead": 1},
            "memory": {"activation": 9, "retained": 6, "limit": 15},
        }
    )
    rows = [["0F0", "0I0", "0W0[1:3]", "0F1", "0W0[0:1]", "0I1", "0W1[2:3]", "0W1[0:2]"]]
    schedule = Schedule.parse(problem.placement, (1, 1), rows)
    assert not check(problem, schedule)
    found, _, _ = solve_cpsat(problem, hint=schedule, deadline=time.monotonic() - 1)
    assert found == schedule
    scaled = prices(problem.instance((1, 1)))
    times = hint_times(problem, scaled, schedule, True)
    assert times is not None
    assert times.first[0].tolist() == [[0, 1, 1], [0, 0, 2]]
    assert times.start[0].tolist() == [[17, 7, 7], [25, 25, 21]]
    assert times.done[0].tolist() == [18, 28]


def test_too_many_cuts_of_the_hint_are_merged() -> None:
    """Every unit of W(0, 0) is a range; what the model has not runs whole, and the search is no worse for it."""
    problem = many_units(40)
    ranges = [f"0W0[{2 * k}:{2 * k + 1}]" for k in range(20)] + [f"0W0[{2 * k + 1}:{2 * k + 2}]" for k in range(20)]
    rows = [["0F0", "0F1", "0I0", *ranges, "0I1", "0W1[0:1]", "0W1[1:40]"], ["1F0", "1B0", "1F1", "1B1"]]
    schedule = Schedule.parse(problem.placement, (1, 1), rows)
    assert not check(problem, schedule)
    scaled = prices(problem.instance((1, 1)), schedule=schedule)
    assert scaled.units == (2 * MOST_PIECES, MOST_PIECES)
    assert 1 in scaled.points[0]  # the only one that is used twice over
    assert hint_times(problem, scaled, schedule, True) is None
    known = merged(schedule, scaled.points)
    assert [str(op) for op in known.ops[0]] == ["0F0", "0F1", "0I0", "0W0", "0I1", "0W1[0:1]", "0W1[1:40]"]
    assert merged(known, scaled.points) is known
    assert hint_times(problem, scaled, known, True) is not None
    found, _, _ = solve_cpsat(problem, hint=schedule, deadline=time.monotonic() + 3, workers=1)
    assert found is not None
    assert simulate(problem, found).makespan <= simulate(problem, schedule).makespan


def many_units(count: int) -> Problem:
    """One micro-batch on two ranks."""
    return Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 2},
            "costs": {"forward": [5, 1], "backward_input": 1, "weight_units": [[1] * count, [1] * count]},
            "links": {"latency": 3},
        }
    )


def test_cuts_that_the_model_has_not_are_no_hint() -> None:
    problem = many_units(3)
    rows = [["0F0", "0F1", "0I0", "0W0[2:3]", "0W0[0:2]", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    schedule = Schedule.parse(problem.placement, (1, 1), rows)
    instance, whole = problem.instance((1, 1)), Granularity.parse("fused")
    assert hint_times(problem, prices(instance, granularity=whole), schedule, True) is None
    assert hint_times(problem, prices(instance), schedule, True) is not None


def test_where_there_are_many_units_the_cuts_of_the_hint_are_kept_and_nothing_is_proven() -> None:
    problem = many_units(20)
    rows = [["0F0", "0F1", "0I0", "0W0[1:20]", "0W0[0:1]", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    schedule = Schedule.parse(problem.placement, (1, 1), rows)
    scaled = prices(problem.instance((1, 1)), schedule=schedule)
    assert scaled.points == ((0, 1, 2, 5, 7, 10, 12, 15, 17, 20), (0, 2, 5, 7, 10, 12, 15, 17, 20))
    assert not scaled.all_points
    assert hint_times(problem, scaled, schedule, True) is not None
    found, bound, _ = solve_cpsat(problem, hint=schedule, bound=3, deadline=time.monotonic() + 3, workers=1)
    assert found is not None
    assert bound == 3
    assert simulate(problem, found).makespan < simulate(problem, schedule).makespan
