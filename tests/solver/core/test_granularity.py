"""What a search may choose, and what is left of a problem without it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Kind, Problem, Schedule, check, simulate, solve
from adaptpipe.solver.core.granularity import ALL, NONE, Granularity
from tests.strategies import problems, schedules_of


def test_text_and_back() -> None:
    for fused in (False, True):
        for units in (False, True):
            for sizes in (False, True):
                one = Granularity(fused, units, sizes)
                assert Granularity.parse(str(one)) == one
    assert (Granularity.parse("ALL"), Granularity.parse(" none ")) == (ALL, NONE)


@pytest.mark.parametrize("text", ["", "size", "fused;units", "fused,,units"])
def test_unknown_names_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is none of fused, units, sizes, all, none"):
        Granularity.parse(text)


@pytest.mark.parametrize("text", ["none,fused", "all,none"])
def test_all_and_none_stand_alone(text: str) -> None:
    with pytest.raises(InputError, match=r"'(all|none)' stands alone; write it, or some of fused, units, sizes"):
        Granularity.parse(text)


@given(st.data())
def test_what_is_not_chosen_costs_the_same_without_it(data: st.DataObject) -> None:
    problem = data.draw(problems())
    schedule = data.draw(schedules_of(problem)).split()
    whole = tuple(
        tuple(op if op.kind is not Kind.W else type(op)(op.stage, op.kind, op.microbatch) for op in row)
        for row in schedule.ops
    )
    coarse = Schedule(schedule.placement, schedule.sizes, tuple(tuple(dict.fromkeys(row)) for row in whole))
    restricted = NONE.restricted(problem)
    here, there = simulate(problem, coarse), simulate(restricted, coarse)
    assert here.start.tolist() == there.start.tolist()
    assert here.end.tolist() == there.end.tolist()
    assert here.peak_memory == there.peak_memory
    assert here.after.tolist() == there.after.tolist()
    assert ALL.restricted(problem) is problem


def test_split_keeps_what_is_not_fused() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 4},
            "costs": {"forward": 4, "backward_input": 4, "backward": 6, "weight_units": [2, 2], "overhead": 1},
        }
    )
    fine, coarse = (solve(problem, time_limit=2, granularity=each) for each in (ALL, NONE))
    assert fine.schedule.fused_share > 0
    assert (coarse.schedule.fused_share, coarse.schedule.cut_share) == (0, 0)
    assert check(problem, coarse.schedule) == ()
    assert fine.value is not None
    assert coarse.value is not None
    assert fine.value < coarse.value
    assert fine.schedule.split().fused_share == 0
    assert check(problem, fine.schedule.split()) == ()
