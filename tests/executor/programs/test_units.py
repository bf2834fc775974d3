"""Weight units cut further: the same work in smaller pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.executor.programs.units import finer
from adaptpipe.solver import InputError, Kind, Problem, Schedule, simulate
from adaptpipe.solver.core.problem import price
from adaptpipe.solver.heuristics import one_f_one_b_split

from ...strategies import problems, schedules_of


@given(st.data(), st.floats(0.3, 20))
def test_the_schedule_takes_and_holds_what_it_did(data: st.DataObject, unit_ticks: float) -> None:
    problem = data.draw(problems(limited=False))
    schedule = data.draw(schedules_of(problem))
    cut, same = finer(problem, schedule, unit_ticks)
    before, after = simulate(problem, schedule), simulate(cut, same)
    assert after.start.tolist() == before.start.tolist()
    assert after.end.tolist() == before.end.tolist()
    if problem.memory.retained_units is not None or all(len(units) == 1 for units in problem.weight_units):
        assert after.peak_memory == before.peak_memory
    largest = max(schedule.sizes)
    for old, new in zip(problem.weight_units, cut.weight_units, strict=True):
        assert sum(price(unit, largest) for unit in old) == sum(price(unit, largest) for unit in new)
        for unit in new:
            # Two sums of rounded parts, of what is fixed and of what is not.
            assert price(unit, largest) <= unit_ticks + 1 + largest or len(new) >= 256
    for row in same.ops:
        for op in row:
            if op.kind is Kind.W and op.units is not None:
                assert op.units[1] <= len(cut.weight_units[op.stage])


def test_ranges_are_the_same_parts() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 1},
            "batch": {"samples": 1},
            "costs": {"forward": 1, "backward_input": 1, "weight_units": [4, 7, 2]},
            "memory": {"activation": 5, "retained_units": [5, 8, 3]},
        }
    )
    schedule = Schedule.parse(problem.placement, (1,), [["0F0", "0I0", "0W0[1:3]", "0W0[0:1]"]])
    cut, same = finer(problem, schedule, 3)
    assert cut.weight_units == ((2, 2, 2, 2, 3, 2),)
    assert cut.memory.retained_units == ((2, 3, 2, 3, 3, 3),)
    assert [str(op) for op in same.ops[0]] == ["0F0", "0I0", "0W0[2:6]", "0W0[0:2]"]


def test_no_time_is_refused() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 1},
            "batch": {"samples": 1},
            "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
        }
    )
    with pytest.raises(InputError, match="the time of a weight unit: 0 ticks are not above 0"):
        finer(problem, one_f_one_b_split(problem), 0)
