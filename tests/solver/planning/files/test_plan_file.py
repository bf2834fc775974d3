"""Plan files: written and read back, and refused where their parts do not belong together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adaptpipe.solver import InputError, Measurement, Part, Profile, place, simulate
from adaptpipe.solver.core.cluster import uniform_cluster
from adaptpipe.solver.heuristics import one_f_one_b
from adaptpipe.solver.planning.files.plan_file import Layer, PlanFile, load_plan
from adaptpipe.solver.planning.plan import Plan
from adaptpipe.solver.planning.workload import Workload, split_of


def plan() -> Plan:
    """Three layers on two ranks, three samples in two micro-batches."""
    sizes = (Measurement(1, 2e-3, 2e-3, 1e-3, 3e-3, 9, 5, 4), Measurement(2, 3e-3, 3e-3, 2e-3, 5e-3, 18, 10, 8))
    parts = tuple(Part(f"layer {i}", 7, sizes, kind="block", parameters=10 + i) for i in range(3))
    cluster = uniform_cluster("two", 2, 1000, 1e-5, 1e9)
    workload = Workload("tiny", Profile("device", parts, 0.0), cluster, 3, (2,))
    split = split_of([0, 2, 3])
    problem = workload.problem(split, place("linear", 2), (1, 2))
    return Plan(workload, split, simulate(problem, one_f_one_b(problem, (1, 2))), 1, "1F1B", 0.0)


def write(folder: Path, **other: Any) -> Path:
    """A plan's file, with keys replaced."""
    path = folder / "plan.json"
    PlanFile.of(plan(), {"name": "tiny"}, {"devices": 2}, {"makespan": 12}).save(path)
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) | other))
    return path


def test_written_and_read_back(tmp_path: Path) -> None:
    made, path = plan(), tmp_path / "plan.json"
    PlanFile.of(made, {"name": "tiny"}, {"devices": 2}, {"makespan": 12}).save(path)
    found = load_plan(path)
    assert (found.schedule, found.split) == (made.timeline.schedule, made.split)
    ours = made.timeline.problem
    assert found.problem == replace(ours, overhead=(0, 0), memory=replace(ours.memory, unit="B"))
    assert found.layers == tuple(Layer(f"layer {i}", "block", 10 + i) for i in range(3))
    assert (found.model, found.cluster, found.figures) == ({"name": "tiny"}, {"devices": 2}, {"makespan": 12})
    assert simulate(found.problem, found.schedule).makespan == made.makespan


def test_one_line_for_each_key(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    PlanFile.of(plan(), {}, {}, {}).save(path)
    assert len(path.read_text().splitlines()) == 11


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"format": "else"}, r"plan.json: format: 'else' is not 'adaptpipe-plan'; this is another kind of file"),
        ({"version": 2}, r"plan.json: version: 2 is not 1, the one this release reads"),
        ({"split": [1, 1, 1]}, r"plan.json: split: 3 stages, and the problem has 2"),
        ({"split": [2, 2]}, r"plan.json: split: 4 layers in sum, and layers has 3"),
        ({"split": [3, 0]}, r"plan.json: split\[1\]: expected `int` >= 1"),
        ({"colour": 1}, r"plan.json: top level: object contains unknown field `colour`"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_plan(write(tmp_path, **other))


def test_a_schedule_of_another_problem(tmp_path: Path) -> None:
    problem = msgspec.json.decode(write(tmp_path).read_bytes())["problem"]
    problem["pipeline"]["placement"] = [1, 0]
    with pytest.raises(InputError, match=r"plan.json: stage 0 \(direction 0\) is on rank 0 in the schedule"):
        load_plan(write(tmp_path, problem=problem))
