"""A search that starts from a known schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Granularity, InputError, NoAnswerError, Problem, Schedule, check, place, simulate, solve
from adaptpipe.solver.evaluate.limits import over_limit
from adaptpipe.solver.heuristics import gpipe, one_f_one_b, zb_h1
from tests.solver.bounds.test_bounds import published
from tests.strategies import problems, schedules_of


@settings(max_examples=25)
@given(st.data())
def test_no_answer_is_worse(data: st.DataObject) -> None:
    problem = data.draw(problems(max_ranks=3, max_samples=4))
    start = data.draw(schedules_of(problem))
    objective: Any = data.draw(st.sampled_from(["makespan", "span"]))
    result = solve(problem, "greedy", objective=objective, time_limit=0.2, workers=1, start=start)
    known = simulate(problem, start)
    if not over_limit(known):
        assert result.value is not None
        assert result.value <= known.value(objective)
    if result.timeline is not None:
        assert check(problem, result.schedule) == ()


def test_a_search_goes_on_from_it() -> None:
    """The greedy has no time for an order as good as this one, and answers with it."""
    problem = published(8, 24, 1)
    start = zb_h1(problem)
    alone = solve(problem, "greedy", time_limit=1e-6)
    assert alone.value is not None
    known = simulate(problem, start).makespan
    assert alone.value > known
    found = solve(problem, "greedy", time_limit=1e-6, start=start)
    assert (found.value, found.found_by) == (known, "start")


def small(**memory: int) -> Problem:
    return Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 4, "microbatch_sizes": [1, 2]},
            "costs": {
                "forward": {"per_sample": 3},
                "backward_input": {"per_sample": 3},
                "weight_units": [{"per_sample": 1}, {"per_sample": 1}],
            },
            "memory": {"activation": {"per_sample": 1}} | memory,
        }
    )


ROWS = [["0F0", "0F1", "0I0", "0W0[0:1]", "0W0[1:2]", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]


def test_what_it_does_with_a_start_it_may_not_use() -> None:
    cut = Schedule.parse(place("linear", 2), [2, 2], ROWS)
    for granularity in ("none", "fused,sizes", "units", "all"):
        found = solve(small(), start=cut, granularity=Granularity.parse(granularity), time_limit=0.5, workers=1)
        assert found.timeline is not None
        if granularity in ("none", "fused,sizes"):
            assert found.timeline.schedule.cut_share == 0
        if granularity in ("none", "units"):
            assert found.timeline.schedule.fused_share == 0
    uneven = one_f_one_b(small(), (1, 1, 2))
    even = solve(replace(small(), sizes=(1, 2)), start=uneven, granularity=Granularity(sizes=False), time_limit=0.5)
    assert even.timeline is not None
    assert max(even.schedule.sizes) - min(even.schedule.sizes) <= 1
    tight = small(limit=2)
    over = gpipe(tight, (1, 1, 1, 1))
    assert over_limit(simulate(tight, over))
    assert check(tight, solve(tight, "greedy", start=over, time_limit=0.5).schedule) == ()


def test_a_start_that_does_not_fit_is_refused() -> None:
    start = Schedule.parse(place("linear", 2), [2, 2], ROWS)
    with pytest.raises(InputError, match=r"start: its micro-batch sizes are \(2, 2\), and sizes asks for \(1, 1, 2\)"):
        solve(small(), start=start, sizes=(1, 1, 2))
    with pytest.raises(InputError, match="the schedule is for 4 stages on 2 ranks, the problem has 2 on 2"):
        solve(small(), start=replace(start, placement=place("v", 2, 2)))
    stuck = replace(start, ops=(tuple(reversed(start.ops[0])), start.ops[1]))
    with pytest.raises(NoAnswerError, match="wait"):
        solve(small(), start=stuck)
