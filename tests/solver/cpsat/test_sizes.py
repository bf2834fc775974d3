"""Micro-batch sizes as variables: equal to trying every division of the batch."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from adaptpipe.solver import Kind, Problem, Schedule, check, simulate
from adaptpipe.solver.core.granularity import Granularity
from adaptpipe.solver.cpsat import solve_cpsat
from adaptpipe.solver.cpsat.hint import hint_times
from adaptpipe.solver.cpsat.model import build
from adaptpipe.solver.cpsat.prices import prices
from adaptpipe.solver.cpsat.rebuild import schedule_of
from adaptpipe.solver.cpsat.sizes import candidates
from adaptpipe.solver.greedy import greedy
from tests.solver.oracle import optimum_of_any_division, sequences, small
from tests.strategies import problem_data, problems, schedules_of

AFFINE = st.fixed_dictionaries({"fixed": st.integers(0, 9), "per_sample": st.integers(0, 5)})


def soon(seconds: float = 60.0) -> float:
    return time.monotonic() + seconds


@settings(max_examples=40)
@given(
    problem_data(max_ranks=2, max_samples=4),
    st.sampled_from(([1, 2], [1, 3], [1, 2, 3])),
    st.fixed_dictionaries(dict.fromkeys(("forward", "backward_input", "backward"), AFFINE)),
    st.lists(AFFINE, min_size=1, max_size=2),
    st.sampled_from((1, 2, 3, 9)),
    st.sampled_from(("all", "sizes", "fused,sizes", "units,sizes")),
)
def test_equal_to_trying_every_division(
    data: dict[str, Any], allowed: list[int], costs: Any, units: list[Any], room: int, choice: str
) -> None:
    """Sizes, fused backwards, ranges and orders at once; with two directions, also who takes which."""
    data["batch"]["microbatch_sizes"] = allowed
    data["costs"] = costs | {"weight_units": units, "overhead": 1}
    data["memory"] |= {"activation": {"fixed": 1, "per_sample": 3}, "retained": {"fixed": 0, "per_sample": 2}}
    data["memory"] |= {"unit": "B", "static": 0, "weights": 0, "reserve": 0, "limit": 4 * room + 3}
    if "bytes" in data["links"]:
        data["links"]["bytes"] = {"fixed": 0, "per_sample": 2}
    problem, granularity = Problem.from_dict(data), Granularity.parse(choice)
    assume(all(small(problem, sizes) for sizes in sequences(problem)))
    best = optimum_of_any_division(problem, granularity=granularity)
    schedule, bound, none = solve_cpsat(problem, deadline=soon(), workers=1, granularity=granularity)
    assert none == (best is None)
    if best is not None:
        assert schedule is not None
        assert not check(problem, schedule)
        assert simulate(problem, schedule).makespan == bound == best


@settings(max_examples=15)
@given(problems(max_ranks=2, max_samples=3, families=("linear", "v", "bidirectional"), units=False))
def test_span_of_any_division_is_bounded_from_both_sides(problem: Problem) -> None:
    assume(len(problem.sizes) > 1 and all(small(problem, sizes) for sizes in sequences(problem)))
    best = optimum_of_any_division(problem, "span")
    assume(best is not None)
    assert best is not None
    schedule, bound, _ = solve_cpsat(problem, "span", deadline=soon(), workers=1)
    assert schedule is not None
    assert not check(problem, schedule)
    assert bound <= best <= simulate(problem, schedule).span


@settings(max_examples=50)
@given(problems(max_ranks=3, max_samples=4), st.sampled_from(("makespan", "span")), st.data())
def test_every_variable_is_hinted_and_the_hint_is_a_solution(
    problem: Problem, objective: Any, data: st.DataObject
) -> None:
    """Of any division: the micro-batches that are not there have their values, too."""
    schedule = data.draw(schedules_of(problem))
    assume(not check(problem, schedule))
    scaled = prices(candidates(problem), samples=problem.samples)
    times = hint_times(problem, scaled, schedule, True)
    assert times is not None
    value = simulate(problem, schedule).value(objective) // scaled.step
    model, v = build(scaled, objective, times, 0, value, soon())
    hinted = set(model.proto.solution_hint.vars)
    names = [variable.name for variable in model.proto.variables]
    assert [name for index, name in enumerate(names) if index not in hinted] == []
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    solver.parameters.num_workers = 1
    assert solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    again = schedule_of(v, solver.value)
    assert sorted(again.sizes) == sorted(schedule.sizes)
    assert simulate(problem, again).value(objective) <= value * scaled.step


def ramp(samples: int, allowed: list[int], ranks: int = 2, placement: str = "linear") -> Problem:
    """Costs with a fixed part of 30 % of an op of four samples; memory for two micro-batches of four on each rank."""

    def cost(ticks: int) -> dict[str, int]:
        return {"fixed": 3 * ticks, "per_sample": 7 * ticks // 4}

    return Problem.from_dict(
        {
            "pipeline": {"ranks": ranks, "placement": placement},
            "batch": {"samples": samples, "microbatch_sizes": allowed},
            "costs": {"forward": cost(24), "backward_input": cost(20), "backward_weight": cost(12)},
            "links": {"latency": 5},
            "memory": {
                "activation": {"fixed": 0, "per_sample": 10},
                "retained": {"fixed": 0, "per_sample": 4},
                "limit": 40 * ranks,
            },
        }
    )


@pytest.mark.parametrize("placement", ["linear", "bidirectional"])
def test_free_sizes_are_as_good_as_the_best_of_all_divisions(placement: str) -> None:
    """Each division of the batch solved on its own; from a schedule of one of them."""
    problem = ramp(6, [1, 2, 3], placement=placement)
    values = {}
    for sizes in sequences(problem):
        schedule, bound, _ = solve_cpsat(problem, deadline=soon(), sizes=sizes)
        assert schedule is not None
        values[sizes] = simulate(problem, schedule).makespan
        assert values[sizes] == bound
    start = greedy(problem, (1,) * 6, deadline=soon(0.1))
    schedule, bound, _ = solve_cpsat(problem, hint=start, deadline=soon())
    assert schedule is not None
    assert simulate(problem, schedule).makespan == bound == min(values.values())
    assert values[schedule.sizes if schedule.sizes in values else tuple(sorted(schedule.sizes))] == bound


def test_where_sizes_are_not_to_be_chosen_they_are_the_hints() -> None:
    problem = ramp(6, [1, 2, 3])
    fixed = Granularity.parse("fused,units")
    start = greedy(problem, (1, 2, 3), deadline=soon(0.1))
    assert start is not None
    for arguments in ({"granularity": fixed}, {"sizes": (1, 2, 3)}):
        schedule, _, _ = solve_cpsat(problem, hint=start, deadline=soon(), **arguments)
        assert schedule is not None
        assert schedule.sizes == (1, 2, 3)
    schedule, _, _ = solve_cpsat(problem, deadline=soon(), granularity=fixed)
    assert schedule is not None
    assert schedule.sizes == problem.default_sizes()


def test_a_model_with_too_many_micro_batches_is_left_out() -> None:
    problem, notes = ramp(96, [1, 2, 3, 4], ranks=4), list[str]()
    assert solve_cpsat(problem, bound=7, deadline=soon(), on_note=notes.append) == (None, 7, False)
    assert notes == ["sizes stay as they are: 200 micro-batches of 96 samples may be there, 800 backwards, above 200"]


def test_only_as_many_of_a_size_as_fit_into_a_division() -> None:
    assert candidates(ramp(7, [2, 3])).sizes == (2, 2, 3)
    assert candidates(ramp(7, [3, 4], placement="bidirectional")).sizes == (3, 4, 3, 4)
    assert candidates(ramp(6, [4, 6])).sizes == (6,)


def test_names_follow_the_order_of_the_first_stage() -> None:
    """Sizes in a file say what is run when; absent micro-batches have no number."""
    problem = ramp(5, [1, 2, 4])
    rows = [[f"{s}{name}" for name in ("F1", "F0", "I0", "W0", "I1", "W1")] for s in range(2)]
    schedule = Schedule.parse(problem.placement, (4, 1), rows)
    scaled = prices(candidates(problem), samples=5)
    model, v = build(scaled, "makespan", hint_times(problem, scaled, schedule, True), 0, None, soon())
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    solver.solve(model)
    again = schedule_of(v, solver.value)
    assert again.sizes == (1, 4)
    assert [op.microbatch for op in again.ops[0] if op.kind is Kind.F] == [0, 1]
    assert simulate(problem, again).makespan == simulate(problem, schedule).makespan
