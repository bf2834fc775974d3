"""`adaptpipe compare --trace`: a run beside its plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adaptpipe.solver import Problem, Schedule, simulate
from adaptpipe.solver.traces.attribution import Cause
from adaptpipe.solver.traces.trace import trace_of
from adaptpipe.solver.traces.writing import save_trace
from tests.commands.cli import answer, call, write_problem, write_schedule


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    return write_problem(tmp_path, unit="ms")


@pytest.fixture
def run(tmp_path: Path, problem: Path) -> Path:
    """A folder with a run as planned, and one whose last op takes half a millisecond more."""
    plan = trace_of(simulate(Problem.load(problem), Schedule.load(write_schedule(tmp_path))))
    first, second = plan.rows
    late = replace(first[-1], end_ns=first[-1].end_ns + 500_000)
    folder = tmp_path / "run"
    folder.mkdir()
    save_trace(plan, folder / "baseline.trace.json")
    save_trace(replace(plan, rows=((*first[:-1], late), second)), folder / "schedule.trace.json")
    return folder


def test_the_causes_of_each_run(problem: Path, run: Path) -> None:
    data = answer(call("compare", problem, "--trace", run, "--json"))
    as_planned, late = data["runs"]
    assert (as_planned["name"], late["name"]) == ("baseline", "schedule")
    assert as_planned["difference_s"] == 0
    assert as_planned["charges"] == []
    assert late["measured_s"] - late["planned_s"] == pytest.approx(0.0005)
    assert late["charges"] == [{"rank": 0, "op": "0W1", "cause": "compute", "s": 0.0005}]
    assert late["causes_s"] == dict.fromkeys(map(str, Cause), 0) | {"compute": 0.0005}
    assert late["ranks"][0]["causes_s"] == late["causes_s"]
    assert late["path"][-1] == {"rank": 0, "op": "0W1"}
    for rank in late["ranks"]:
        spent = rank["work_s"] + rank["wait_s"] + rank["overhead_s"] + rank["after_s"]
        assert spent == pytest.approx(late["measured_s"])
    assert late["ranks"][0]["work_s"] - late["ranks"][0]["planned_work_s"] == pytest.approx(0.0005)


def test_the_tables(problem: Path, run: Path) -> None:
    result = call("compare", problem, "--trace", run / "schedule.trace.json")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("schedule: planned ")
    assert lines[0].endswith(": 0.50 ms more")
    cells = [line.split() for line in lines]
    assert ["rank", "0", "0.50", "0.00", "0.00", "0.00", "0.00", "0.00", "0.50"] in cells
    assert ["all", "0.50", "0.00", "0.00", "0.00", "0.00", "0.00", "0.50"] in cells
    assert "  rank 0: 0W1 took 0.50 ms longer" in lines


def test_what_is_no_run_is_refused(problem: Path, run: Path, tmp_path: Path) -> None:
    for name in ("empty", "other"):
        (tmp_path / name).mkdir()
    for words, message in (
        (("--trace", tmp_path / "empty"), "empty: holds no .trace.json file; give the folder that adaptpipe run"),
        (("--trace", tmp_path / "nowhere"), "nowhere: cannot be read: No such file"),
        (("--trace", problem), "problem.json: holds no schedule, so it is not a trace of ours"),
        (("--trace", run, "--methods", "1F1B"), "--trace compares a run with its plan: leave out --methods, "),
        (("--trace", run, "-o", tmp_path), "with its plan: leave out --methods, --output and --noise"),
    ):
        result = call("compare", problem, *words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr
    other = write_problem(tmp_path / "other", pipeline={"ranks": 3})
    result = call("compare", other, "--trace", run / "baseline.trace.json")
    assert result.exit_code == 2
    assert "baseline.trace.json: the schedule is for 2 stages on 2 ranks, the problem has 3 on 3" in result.stderr
