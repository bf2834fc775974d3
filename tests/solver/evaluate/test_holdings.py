"""What memory is filled with adds up to the peak, rank by rank."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import simulate
from adaptpipe.solver.evaluate.holdings import holdings
from tests.strategies import problems, schedules_of


@given(st.data())
def test_they_add_up_to_the_peak(data: st.DataObject) -> None:
    problem = data.draw(problems())
    timeline = simulate(problem, data.draw(schedules_of(problem)))
    found = holdings(timeline)
    assert tuple(each.total for each in found) == timeline.peak_memory
    assert all(min(each.static, each.activations, each.retained) >= 0 for each in found)
