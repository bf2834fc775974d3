"""Schedule files: round trips, the documentation's example, and a message for each fault."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Problem, Schedule, place, simulate
from adaptpipe.solver.core.updates import Updates
from tests.solver.files.test_problem_file import blocks, edit
from tests.strategies import problems, schedules_of

SCHEDULE = Schedule.parse(place("linear", 2), [1, 1], [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])


def test_the_documentations_schedule_loads(tmp_path: Path) -> None:
    (text,) = blocks("json")
    (tmp_path / "s.json").write_text(text)
    schedule = Schedule.load(tmp_path / "s.json")
    data = {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 2},
        "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
    }
    assert simulate(Problem.from_dict(data), schedule).makespan > 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_round_trip(tmp_path: Path, data: st.DataObject) -> None:
    problem = data.draw(problems() | problems(slices=True))
    schedule = data.draw(schedules_of(problem))
    schedule.save(tmp_path / "s.json", "name")
    again = Schedule.load(tmp_path / "s.json")
    assert again == schedule
    assert again.fingerprint == problem.fingerprint
    first = (tmp_path / "s.json").read_bytes()
    again.save(tmp_path / "s.json", "name")
    assert (tmp_path / "s.json").read_bytes() == first


@pytest.mark.parametrize("updates", get_args(Updates))
def test_updates_are_kept_and_a_file_without_them_flushes(updates: Updates, tmp_path: Path) -> None:
    schedule = replace(SCHEDULE, updates=updates)
    schedule.save(tmp_path / "s.json")
    assert Schedule.load(tmp_path / "s.json") == schedule
    assert Schedule.load(saved(tmp_path, updates=...)).updates == "step"


def test_the_fingerprint_is_of_the_shape() -> None:
    data: dict[str, Any] = {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 2},
        "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
    }
    print_ = Problem.from_dict(data).fingerprint
    assert Problem.from_dict(data | {"unit": "ms", "costs": {**data["costs"], "forward": 9}}).fingerprint == print_
    assert Problem.from_dict(data | {"batch": {"samples": 3}}).fingerprint != print_
    assert Problem.from_dict(data | {"batch": {"samples": 2, "slices": 1}}).fingerprint == print_
    sliced = {Problem.from_dict(data | {"batch": {"samples": 2, "slices": k}}).fingerprint for k in (2, 3)}
    assert len(sliced | {print_}) == 3
    assert Problem.from_dict(data | {"pipeline": {"ranks": 2, "placement": [1, 0]}}).fingerprint != print_
    assert (
        Problem.from_dict(data | {"pipeline": {"ranks": 2, "placement": "loop", "stages_per_rank": 2}}).fingerprint
        != print_
    )


def saved(tmp_path: Path, **other: Any) -> Path:
    SCHEDULE.save(tmp_path / "s.json")
    data = msgspec.json.decode((tmp_path / "s.json").read_bytes()) | other
    (tmp_path / "s.json").write_bytes(msgspec.json.encode({k: v for k, v in data.items() if v is not ...}))
    return tmp_path / "s.json"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"format": "x"}, "s.json: format: 'x' is not 'adaptpipe-schedule'"),
        ({"version": 2}, "version: 2 is not 1"),
        ({"fingerprint": "0"}, "fingerprint: '0' does not belong to this placement and these sizes"),
        ({"fingerprint": ...}, "top level: object missing required field `fingerprint`"),
        ({"placement": []}, "placement: 0 directions; there are one or two"),
        ({"placement": [[0, 2]]}, r"placement\[1\]: rank 2 is not one of 0..1"),
        ({"ranks": 3}, "placement: rank 2 holds no stage"),
        ({"ranks": 0}, "ranks: 0 is below 1"),
        ({"sizes": [1, 0]}, r"sizes\[1\]: 0 is below 1"),
        ({"sizes": []}, "sizes: the list is empty"),
        ({"slices": 0}, "slices: expected `int` >= 1"),
        ({"slices": 2}, "fingerprint: '.*' does not belong to this placement and these sizes"),
        ({"slices": 3}, "sizes: 2 values, 1 of them different, for micro-batches of 3 slices"),
        ({"ops": []}, "ops: 0 lists for 2 ranks"),
        ({"ops": [["0F0", "0X0"], []]}, "rank 0, position 1: '0X0' is not an op"),
        ({"ops": [["0F0[0:1]"], []]}, r"rank 0, position 0: '0F0\[0:1\]': only a W is cut into units; write 0F0"),
        ({"ops": [["0W0[1:1]"], []]}, r"rank 0, position 0: '0W0\[1:1\]': the range of units is empty"),
        ({"ops": [["2F0"], []]}, r"rank 0, position 0: 2F0 is out of range; stages are 0..1, micro-batches 0..1"),
        ({"ops": [[1], []]}, r"ops\[0\]\[0\]: expected `str`, got `int`"),
        ({"updates": "weekly"}, "updates: 'weekly' is none of step, stash, double, newest"),
        ({"op": []}, "top level: object contains unknown field `op`"),
    ],
)
def test_every_fault_names_its_key(other: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        Schedule.load(saved(tmp_path, **other))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_random_edit_loads_or_is_refused_by_key(tmp_path: Path, data: st.DataObject) -> None:
    schedule = data.draw(schedules_of(data.draw(problems())))
    schedule.save(tmp_path / "s.json")
    spoilt = msgspec.json.decode((tmp_path / "s.json").read_bytes())
    for _ in range(data.draw(st.integers(1, 2))):
        spoilt = edit(data.draw, spoilt)
    (tmp_path / "s.json").write_bytes(msgspec.json.encode(spoilt))
    message = "ops"
    try:
        Schedule.load(tmp_path / "s.json")
    except InputError as error:
        message = str(error).removeprefix(str(tmp_path))
    assert re.search(r"format|version|problem|fingerprint|ranks?|placement|sizes|ops|updates|unknown field", message), (
        message
    )
