"""`adaptpipe run --emulate`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adaptpipe.solver import Problem, Schedule
from adaptpipe.solver.traces.reading import load_trace
from tests.commands.cli import answer, call, write_problem

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    costs = {"forward": 300, "backward_input": 300, "weight_units": [100, 100]}
    problem = write_problem(tmp_path, unit="us", batch={"samples": 4}, costs=costs, memory={}, links={})
    file = tmp_path / "run.toml"
    file.write_text(f'problem = "{problem}"\nmethod = "ZB-H1"\nsteps = 2\nout = "{tmp_path / "out"}"\n')
    return file


def test_both_schedules_run_in_both_ways(run_file: Path, tmp_path: Path) -> None:
    found = answer(call("run", run_file, "--emulate", "--json", "--set", "noise=sigma=0.2", "--set", "seed=3"))
    assert [(row["schedule"], row["execution"]) for row in found["emulated"]] == [
        ("1F1B", "static"),
        ("1F1B", "adaptive"),
        ("ZB-H1", "static"),
        ("ZB-H1", "adaptive"),
    ]
    assert found["noise"] == "sigma=0.2"
    assert found["message_s"] > 0
    for row in found["emulated"]:
        assert row["shortest_step_s"] > 0.0024  # three quarters of a rank's work, of which noise may take some
        assert row["shortest_step_s"] <= row["measured_step_s"] <= row["longest_step_s"]
    assert found["emulated"][0]["units_in_waits"] == found["emulated"][2]["units_in_waits"] == 0
    problem = Problem.load(tmp_path / "out" / "problem.json")
    assert problem.links.latency[0][1] == round(found["message_s"] * 1e6)
    for stem in ("baseline-static", "baseline-adaptive", "schedule-static", "schedule-adaptive"):
        schedule = Schedule.load(tmp_path / "out" / f"{stem}.json")
        assert load_trace(tmp_path / "out" / f"{stem}.trace.json").schedule == schedule


def test_a_given_schedule_and_a_tick_of_any_length(run_file: Path, tmp_path: Path) -> None:
    call("solve", tmp_path / "problem.json", "--method", "GPipe", "-o", tmp_path / "mine.json")
    settings = [f"baseline={tmp_path / 'mine.json'}", "seconds_per_tick=2e-6", "steps=1"]
    done = call("run", run_file, "--emulate", *(word for each in settings for word in ("--set", each)))
    assert done.exit_code == 0, done.output
    for text in ("mine.json", "adaptive", "units in waits", "a message takes", "noise: none"):
        assert text in done.stdout
    # 3 steps, as 2 warm up, of two schedules in both ways: each of 4 micro-batches that take 1.6 ms, and a ramp.
    (length,) = re.findall(r"static and adaptive, in turns: about (\S+) s", done.stderr)
    assert float(length) > 3 * 2 * 2 * 4 * 1.6e-3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "problem = .*: has no model to train; add --emulate"),
        (("--emulate", "--set", "noise=sgma=1"), "noise: 'sgma=1' is none of"),
        (("--emulate", "--set", "method=PipeDream"), "method = 'PipeDream': an update after each micro-batch"),
        (("--emulate", "--set", "problem=nowhere.toml"), "nowhere.toml"),
        (("--emulate", "--set", "seconds_per_tick=0"), "seconds_per_tick"),
        (("--emulate", "--set", "problem="), "model.kind: missing"),
    ],
)
def test_what_is_refused(run_file: Path, words: tuple[str, ...], message: str) -> None:
    done = call("run", run_file, *words)
    assert done.exit_code == 2
    assert re.search(message, done.stderr), done.stderr
