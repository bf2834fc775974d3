"""`simulate` and `compare` under noise, and adaptive execution in `simulate`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from adaptpipe.solver import Problem, Schedule
from adaptpipe.solver.evaluate.noise import Noise
from adaptpipe.solver.floating import disturbed, simulate_adaptive
from tests.commands.cli import answer, call, write_problem, write_schedule

SPLIT = [["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"], ["1F0", "1I0", "1W0", "1F1", "1I1", "1W1"]]
WIDE = {"memory": {"activation": 3, "retained": 1, "limit": 6}}


def test_simulate_adaptive(tmp_path: Path) -> None:
    problem, schedule = write_problem(tmp_path, **WIDE), write_schedule(tmp_path, SPLIT)
    static = answer(call("simulate", problem, schedule, "--json"))
    adaptive = answer(call("simulate", problem, schedule, "--execution", "adaptive", "--json"))
    assert (static["execution"], adaptive["execution"]) == ("static", "adaptive")
    expected = simulate_adaptive(Problem.load(problem), Schedule.load(schedule))
    assert adaptive["makespan"] == expected.makespan < static["makespan"]
    assert static["under_noise"] is None
    printed = call("simulate", problem, schedule, "--execution", "adaptive").stdout
    assert f"makespan         {expected.makespan} us" in printed
    assert "execution        adaptive" in printed


def test_show_draws_what_came_out(tmp_path: Path) -> None:
    problem, schedule = write_problem(tmp_path, **WIDE), write_schedule(tmp_path, SPLIT)
    shown = answer(call("show", problem, schedule, "--execution", "adaptive", "--json"))
    assert shown["makespan"] == simulate_adaptive(Problem.load(problem), Schedule.load(schedule)).makespan
    drawn = [call("show", problem, schedule, "--execution", each).stdout for each in ("static", "adaptive")]
    assert drawn[0] != drawn[1]


def test_simulate_under_noise(tmp_path: Path) -> None:
    problem, schedule = write_problem(tmp_path, **WIDE), write_schedule(tmp_path, SPLIT)
    words = ("simulate", problem, schedule, "--noise", "sigma=0.3,slow_link=0>1:2", "--runs", "30", "--seed", "5")
    found = answer(call(*words, "--json"))["under_noise"]
    noise = Noise.parse("sigma=0.3,slow_link=0>1:2", seed=5)
    expected = disturbed(Problem.load(problem), Schedule.load(schedule), noise, count=30)
    assert found == msgspec.to_builtins(expected.row())
    assert (found["noise"], found["seed"], found["static"]["runs"]) == ("sigma=0.3,slow_link=0>1:2", 5, 30)
    assert found["gain"] > 0
    assert found["gain_interval"][0] < found["gain"] < found["gain_interval"][1]
    printed = call(*words).stdout
    assert "30 runs under noise sigma=0.3,slow_link=0>1:2, seed 5; 95 % confidence" in printed
    assert f"{expected.static.mean:,.0f} ±" in printed
    assert f"{found['gain']:.2%} ±" in printed


def test_simulate_of_a_schedule_that_floats_past_its_limit(tmp_path: Path) -> None:
    problem = write_problem(tmp_path, memory={"activation": 3, "retained": 1, "limit": 5})
    schedule = write_schedule(tmp_path, SPLIT)
    words = ("simulate", problem, schedule, "--noise", "sigma=0.3", "--runs", "5")
    result = call(*words, "--json")
    assert result.exit_code == 1
    found = answer(result)["under_noise"]
    assert (found["adaptive"], found["gain"], found["gain_interval"]) == (None, None, None)
    assert found["reason"].startswith("rank 0: 0F1 brings the memory to 6 B, above the limit of 5 B, even with")
    assert "schedule.json: no adaptive execution: rank 0: 0F1 brings" in call(*words).stdout
    refused = call("simulate", problem, schedule, "--execution", "adaptive")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "rank 0: 0F1 brings the memory to 6 B" in refused.stderr


def test_compare_under_noise(tmp_path: Path) -> None:
    problem = write_problem(tmp_path)
    words = ("compare", problem, "--methods", "1f1b-split,zb-h2,zb-v", "--noise", "sigma=0.3", "--runs", "10")
    rows = {row["method"]: row["under_noise"] for row in answer(call(*words, "--json"))["rows"]}
    assert rows["ZB-V"] is None
    for name in ("1F1B-split", "ZB-H2"):
        assert rows[name]["static"]["runs"] == rows[name]["adaptive"]["runs"] == 10
    printed = call(*words).stdout
    assert "10 runs under noise sigma=0.3, seed 0" in printed
    assert f"{rows['ZB-H2']['gain']:.2%} ±" in printed


def test_compare_writes_what_it_found_under_noise(tmp_path: Path) -> None:
    problem, folder = write_problem(tmp_path), tmp_path / "out"
    call("compare", problem, "--methods", "1f1b-split", "--noise", "link=1", "--runs", "3", "-o", folder)
    (row,) = msgspec.json.decode((folder / "table.json").read_bytes())["rows"]
    assert row["under_noise"]["noise"] == "link=1"
    assert "under_noise" in (folder / "table.csv").read_text().splitlines()[0]


@pytest.mark.parametrize("command", ["simulate", "compare"])
@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ("speed=2", "noise: 'speed=2' is none of sigma=…, link=…"),
        ("slow_rank=2:2", "noise.slow_rank: there is no rank 2; ranks are 0..1"),
    ],
)
def test_noise_that_is_none(command: str, noise: str, message: str, tmp_path: Path) -> None:
    files = [write_problem(tmp_path)] + ([write_schedule(tmp_path)] if command == "simulate" else [])
    result = call(command, *files, "--noise", noise)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    if command == "compare":
        assert message in call("solve", *files, "--robust", "--noise", noise).stderr
