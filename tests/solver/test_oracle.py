"""The oracle itself: no schedule is below it, some schedule reaches it, and more freedom never costs."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Problem, check, simulate
from adaptpipe.solver.core.granularity import Granularity
from adaptpipe.solver.core.result import Objective
from tests.solver.oracle import optimum, optimum_of_any_division, sequences, small
from tests.strategies import problems, schedules_of, sizes_of

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


@settings(max_examples=60)
@given(problems(max_ranks=2, max_samples=3), st.sampled_from(OBJECTIVES), st.data())
def test_no_schedule_is_below_the_optimum(problem: Problem, objective: Objective, data: st.DataObject) -> None:
    schedule = data.draw(schedules_of(problem))
    assume(small(problem, schedule.sizes) and not check(problem, schedule))
    best = optimum(problem.instance(schedule.sizes), objective)
    assert best is not None
    assert best <= simulate(problem, schedule).value(objective)


@settings(max_examples=40)
@given(problems(max_ranks=2, max_samples=3), st.sampled_from(OBJECTIVES), st.data())
def test_more_freedom_never_costs(problem: Problem, objective: Objective, data: st.DataObject) -> None:
    sizes = data.draw(sizes_of(problem))
    assume(small(problem, sizes))
    instance = problem.instance(sizes)
    values = [
        optimum(instance, objective, Granularity.parse(text)) for text in ("none", "fused", "units", "fused,units")
    ]
    ranked = [float("inf") if value is None else value for value in values]
    assert ranked[3] <= min(ranked[1:3]) <= max(ranked[1:3]) <= ranked[0]


@pytest.mark.parametrize(
    ("overhead", "granularity", "value"),
    [(0, "all", 23), (1, "all", 23), (2, "all", 24), (3, "all", 25), (0, "none", 25)],
)
def test_a_unit_fills_the_wait_for_a_message(overhead: int, granularity: str, value: int) -> None:
    """Rank 1 waits for 3 ticks, the time of one of its two units. Else it runs both there, which holds up the gradient
    by 2, or both at the end."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 2},
            "costs": {
                "forward": [5, 1],
                "backward_input": 1,
                "weight_units": [[4], [3, 2]],
                "overhead": overhead,
            },
            "links": {"latency": 3},
        }
    )
    assert optimum(problem.instance((1, 1)), granularity=Granularity.parse(granularity)) == value


@given(problems(max_ranks=2, max_samples=3, families=("linear",)))
@settings(max_examples=20)
def test_numbers_of_micro_batches_are_names_in_one_direction(problem: Problem) -> None:
    assume(problem.stages * problem.samples <= 6)
    for sizes in sequences(problem):
        assert len({optimum(problem.instance(order)) for order in set(permutations(sizes))}) == 1


def test_every_sequence_of_sizes_is_tried_where_numbers_say_the_direction() -> None:
    data = {
        "pipeline": {"ranks": 2, "placement": "bidirectional"},
        "batch": {"samples": 7, "microbatch_sizes": [2, 3]},
        "costs": {
            "forward": [{"fixed": 1, "per_sample": 2}, {"fixed": 0, "per_sample": 1}],
            "backward_input": [{"fixed": 0, "per_sample": 3}, {"fixed": 2, "per_sample": 0}],
            "backward_weight": {"fixed": 0, "per_sample": 1},
        },
        "links": {"latency": 2},
    }
    problem = Problem.from_dict(data)
    assert list(sequences(problem)) == [(2, 2, 3), (2, 3, 2), (3, 2, 2)]
    values = [optimum(problem.instance(sizes)) for sizes in sequences(problem)]
    assert optimum_of_any_division(problem) == min(value for value in values if value is not None)
    assert len(set(values)) > 1
