"""What binds a schedule: shares of the step that add up, and the ranks whose memory is full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import simulate
from adaptpipe.solver.planning.binding import binding
from tests.strategies import problems, schedules_of


@given(st.data())
def test_shares_add_up(data: st.DataObject) -> None:
    problem = data.draw(problems())
    timeline = simulate(problem, data.draw(schedules_of(problem)))
    found = binding(timeline)
    assert found.work == max(timeline.work) / (timeline.makespan or 1)
    if timeline.makespan:
        assert found.work + found.fill + found.drain + found.waits == pytest.approx(1)
    assert min(found.fill, found.drain, found.waits) >= 0
    for rank, limit in enumerate(problem.memory.limit):
        if limit is None:
            assert rank not in found.full
        elif rank in found.full:
            assert (
                timeline.peak_memory[rank] + max(timeline.problem.instance(timeline.schedule.sizes).activation.max(), 1)
                > limit
            )
