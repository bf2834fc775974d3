"""ZB-V with floating weight gradients: valid, within memory, never behind ZB-V itself, and near what searches find."""

from __future__ import annotations

import pytest
from hypothesis import given

from adaptpipe.solver.evaluate.check import check
from adaptpipe.solver.evaluate.simulate import simulate
from adaptpipe.solver.planning.files.instance_file import load_workload
from adaptpipe.solver.planning.rivals.today import todays
from adaptpipe.solver.planning.search.floated import floated
from adaptpipe.solver.planning.workload import Workload
from benchmarks.instances import WORKLOADS
from tests.solver.planning.shapes import workloads


@given(workloads())
def test_plans_are_valid_and_as_long_as_they_say(workload: Workload) -> None:
    plans = list(floated(workload))
    for plan in plans:
        problem, schedule = plan.timeline.problem, plan.timeline.schedule
        assert problem == workload.problem(plan.split, plan.placement, plan.division)
        assert check(problem, schedule) == ()
        assert simulate(problem, schedule).makespan <= plan.makespan
        assert plan.placement.name == "v"
    if workload.layers < 2 * workload.ranks:
        assert not plans


@pytest.mark.parametrize(
    ("name", "known"),
    [("llama2-7b-p4", 3172), ("dsv3-like-p16", 9650), ("gemma2-27b-p16", 4580), ("llama3-70b-tp8-p8", 5043)],
)
def test_it_is_near_what_a_search_of_minutes_found(name: str, known: float) -> None:
    workload = load_workload(WORKLOADS, name)
    best = min(floated(workload), key=lambda plan: plan.makespan)
    assert best.makespan / 1000 <= known
    base = next(each for each in todays(workload) if each.fits)
    assert best.makespan < base.makespan


def test_where_no_rank_has_room_there_is_none() -> None:
    assert not list(floated(load_workload(WORKLOADS, "llama3-8b-p8", sizes=(4,))))
