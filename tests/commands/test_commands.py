"""What the commands do, print and return."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Problem, Result, Schedule, simulate
from tests.commands.cli import PROBLEM, ROWS, answer, call, write_problem, write_schedule
from tests.solver.files.test_problem_file import edit
from tests.strategies import problem_data, schedules_of

DEADLOCK = [["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]]


def test_solve_writes_a_schedule_that_the_others_read(tmp_path: Path) -> None:
    problem, best = write_problem(tmp_path), tmp_path / "best.json"
    result = call("solve", problem, "--time-limit", 10, "-o", best)
    assert result.exit_code == 0
    for word in ("OPTIMAL", "makespan bubble", "span bubble", "peak memory", "memory limit"):
        assert word in result.stdout
    assert f"schedule written to {best}" in result.stderr
    solved = answer(call("solve", problem, "--json", "--time-limit", 10))
    simulated = answer(call("simulate", problem, best, "--json"))
    assert solved["makespan"] == simulated["makespan"] == solved["bound"]
    assert solved["status"] == "OPTIMAL"
    assert call("check", problem, best).exit_code == 0


def test_solve_prints_one_line_for_each_improvement(tmp_path: Path) -> None:
    result = call("solve", write_problem(tmp_path), "--time-limit", 10)
    lines = [line for line in result.stderr.splitlines() if " bound " in line]
    assert lines
    for line in lines:
        for part in (" s ", " us ", "gap", "%"):
            assert part in line


def test_an_optimum_for_the_sizes_chosen_is_printed_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"fixed": 40, "per_sample": 10}
    names = ("forward", "backward_input", "backward_weight")
    problem = write_problem(
        tmp_path,
        costs=dict.fromkeys(names, cost),
        batch={"samples": 66, "microbatch_sizes": [1, 2, 3]},
        memory={},
    )
    result = call("solve", problem, "--method", "anneal", "--time-limit", 1)
    assert "OPTIMAL for these micro-batch sizes, by " in result.stdout
    assert ", for these micro-batch sizes\n" in result.stdout
    assert "note             micro-batch sizes were searched, not all tried" in result.stdout
    assert "; the bound is for these micro-batch sizes" in result.stderr
    result = call("compare", problem, "--methods", "anneal", "--time-limit", 1)
    assert "OPTIMAL for these micro-batch sizes" in result.stdout
    assert "; micro-batch sizes were searched" in result.stdout


def test_solve_says_why_there_is_none(tmp_path: Path) -> None:
    """The limit is below one activation: the message names rank, need and limit (google/or-tools#973)."""
    problem, best = (
        write_problem(tmp_path, memory={"unit": "MB", "activation": 3, "limit": [6, 2]}),
        tmp_path / "s.json",
    )
    result = call("solve", problem, "-o", best, "--json")
    assert result.exit_code == 1
    assert answer(result)["status"] == "INFEASIBLE"
    assert "rank 1" in result.stderr
    assert not best.exists()


def test_solve_refuses_an_unknown_method_and_a_folder_that_is_missing(tmp_path: Path) -> None:
    problem = write_problem(tmp_path)
    result = call("solve", problem, "--method", "magic")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'magic'" in result.stderr
    result = call("solve", problem, "--noise", 0.3)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--noise 0.3: it is for a search under noise; add --robust, or leave it out" in result.stderr
    result = call("solve", problem, "-o", tmp_path / "no" / "s.json")
    assert result.exit_code == 2
    assert f"the folder {tmp_path / 'no'} does not exist; make it first" in result.stderr
    result = call("solve", problem, "-o", tmp_path)
    assert (result.exit_code, result.stderr) == (2, f"adaptpipe: {tmp_path}: is a folder; give the name of a file\n")


def test_simulate_prints_the_figures(tmp_path: Path) -> None:
    result = call("simulate", write_problem(tmp_path), write_schedule(tmp_path))
    assert result.exit_code == 0
    problem = Problem.from_dict(PROBLEM)
    timeline = simulate(problem, Schedule.parse(problem.placement, [1, 1], ROWS))
    assert f"makespan         {timeline.makespan} us\n" in result.stdout
    assert f"makespan bubble  {timeline.bubble:.2%}\n" in result.stdout
    assert f"span bubble      {timeline.span_bubble:.2%}\n" in result.stdout
    assert "peak memory      6, 3 MB by rank\n" in result.stdout
    assert "memory limit     6 MB on every rank\n" in result.stdout


def test_slices_from_the_problem_to_the_check(tmp_path: Path) -> None:
    batch = {"samples": 4, "microbatch_sizes": [2], "slices": {"work": [2, 3]}}
    problem, best = write_problem(tmp_path, batch=batch), tmp_path / "best.json"
    result = call("solve", problem, "--time-limit", 10, "-o", best)
    assert result.exit_code == 0
    assert "micro-batches    2, of size 2, each in 2 slices" in result.stdout
    assert call("check", problem, best).exit_code == 0
    schedule = Schedule.load(best)
    assert schedule.slices == 2
    first, *rest = schedule.ops
    swap = {0: 1, 1: 0}
    wrong = tuple(replace(op, microbatch=swap.get(op.microbatch, op.microbatch)) for op in first)
    replace(schedule, ops=(wrong, *rest)).save(best)
    result = call("check", problem, best)
    assert result.exit_code == 1
    assert "the 2 slices of a micro-batch run first to last in the forward" in result.stdout
    result = call("solve", problem, "--method", "zb-h1")
    assert result.exit_code == 2
    assert "ZB-H1 runs whole micro-batches" in result.stderr


def test_simulate_of_an_asynchronous_schedule_says_what_it_trains_with(tmp_path: Path) -> None:
    problem = write_problem(tmp_path)
    path = tmp_path / "schedule.json"
    replace(Schedule.load(write_schedule(tmp_path)), updates="stash").save(path)
    result = call("simulate", problem, path)
    assert result.exit_code == 0
    steady = simulate(Problem.load(problem), Schedule.load(path)).steady
    assert steady is not None
    lines = dict(re.split("  +", line, maxsplit=1) for line in result.stdout.splitlines())
    assert lines["updates"].startswith("stash: an update after each micro-batch")
    assert (lines["copies of weights"], lines["updates late"]) == ("2, 1 by stage", "1, 0 by stage")
    assert lines["steady state"] == f"{float(steady.microbatch):,.6g} us for each micro-batch"
    assert lines["steady bubble"] == f"{steady.bubble:.2%}"
    assert answer(call("simulate", problem, path, "--json"))["steady_microbatch"] == float(steady.microbatch)


def test_simulate_over_a_limit_prints_and_exits_with_1(tmp_path: Path) -> None:
    problem = write_problem(tmp_path, memory={"unit": "MB", "activation": 3, "limit": 5})
    result = call("simulate", problem, write_schedule(tmp_path))
    message = "rank 0, position 1: 0F1 brings the memory to 6 MB, above the limit of 5 MB"
    assert result.exit_code == 1
    assert "makespan " in result.stdout
    assert result.stderr == message + "\n"
    data = answer(call("simulate", problem, write_schedule(tmp_path), "--json"))
    assert (data["status"], data["over_limit"]) == ("INFEASIBLE", [message])


def test_simulate_of_a_deadlock_is_no_answer(tmp_path: Path) -> None:
    result = call("simulate", write_problem(tmp_path), write_schedule(tmp_path, DEADLOCK))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("adaptpipe: deadlock: rank 0, position 1: 0B0 waits for 1B0")


@pytest.mark.parametrize("command", ["simulate", "check", "show"])
def test_a_schedule_of_another_shape_is_refused(command: str, tmp_path: Path) -> None:
    """A placement is checked before anything runs (pytorch/torchtitan#774)."""
    problem = write_problem(tmp_path, pipeline={"ranks": 2, "placement": [1, 0]})
    result = call(command, problem, write_schedule(tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "stage 0 (direction 0) is on rank 0 in the schedule and on rank 1 in the problem" in result.stderr


def test_check_marks_the_place(tmp_path: Path) -> None:
    problem = write_problem(tmp_path)
    result = call("check", problem, write_schedule(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "valid: 9 ops on 2 ranks\n")
    result = call("check", problem, write_schedule(tmp_path, DEADLOCK))
    assert result.exit_code == 1
    assert "deadlock: rank 0, position 1: 0B0 waits for 1B0 (rank 1, position 3)" in result.stdout
    assert "> rank 0   0F0 0B0 0F1 0B1\n               ^^^\n" in result.stdout
    assert result.stdout.endswith("not valid: 1 violation\n")
    data = answer(call("check", problem, write_schedule(tmp_path, DEADLOCK), "--json"))
    assert data["valid"] is False
    assert [(v["rank"], v["position"]) for v in data["violations"]] == [(0, 1)]


def test_check_counts_what_it_does_not_draw(tmp_path: Path) -> None:
    result = call("check", write_problem(tmp_path), write_schedule(tmp_path, [[], []]))
    assert result.exit_code == 1
    assert result.stdout.count("> rank") == 5
    assert result.stdout.endswith("not valid: 8 violations; the first 5 are shown\n")


def test_show(tmp_path: Path) -> None:
    problem, schedule = write_problem(tmp_path), write_schedule(tmp_path)
    result = call("show", problem, schedule)
    assert result.exit_code == 0
    assert result.stdout.startswith("rank 0 |F0")
    assert "of the makespan" in result.stdout
    for name in ("a.png", "a.svg", "a.trace.json"):
        result = call("show", problem, schedule, "-o", tmp_path / name)
        assert (result.exit_code, result.stdout) == (0, f"written to {tmp_path / name}\n")
        assert (tmp_path / name).stat().st_size > 500


def test_show_lists_the_legal_endings(tmp_path: Path) -> None:
    result = call("show", write_problem(tmp_path), write_schedule(tmp_path), "-o", tmp_path / "a.pdf")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"adaptpipe: {tmp_path / 'a.pdf'}: the ending is none of .png, .svg, .trace.json\n"


def test_bad_files(tmp_path: Path) -> None:
    schedule = write_schedule(tmp_path)
    result = call("simulate", tmp_path / "nix.toml", schedule)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"adaptpipe: {tmp_path / 'nix.toml'}: cannot be read: No such file or directory\n"
    result = call("check", write_problem(tmp_path, unit="min"), schedule)
    assert result.exit_code == 2
    assert "problem.json: unit: 'min' is none of ns, us, ms, s" in result.stderr
    result = call("check", schedule, schedule)
    assert result.exit_code == 2
    assert "contains unknown field" in result.stderr


@settings(max_examples=60)
@given(st.data())
def test_any_edit_of_the_files_is_answered_or_refused_with_2(data: st.DataObject) -> None:
    problem = data.draw(problem_data())
    with TemporaryDirectory() as name:
        folder = Path(name)
        order = folder / "schedule.json"
        data.draw(schedules_of(Problem.from_dict(problem))).save(order)
        spoilt = {"problem": problem, "schedule": msgspec.json.decode(order.read_bytes())}
        for _ in range(data.draw(st.integers(1, 3))):
            which = data.draw(st.sampled_from(["problem", "schedule"]))
            spoilt[which] = edit(data.draw, spoilt[which])
        for which, content in spoilt.items():
            (folder / f"{which}.json").write_bytes(msgspec.json.encode(content))
        result = call(data.draw(st.sampled_from(["check", "simulate"])), folder / "problem.json", order)
    assert result.exit_code in (0, 1, 2)
    assert "internal error" not in result.stderr
    assert "Traceback" not in result.stderr
    if result.exit_code == 2:
        assert result.stdout == ""
        assert result.stderr.startswith("adaptpipe: ")


def raising(error: BaseException) -> Callable[..., Any]:
    def stand_in(*_: object, **__: object) -> Any:
        raise error

    return stand_in


def test_an_interrupted_solve_keeps_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal

    problem, best = write_problem(tmp_path), tmp_path / "best.json"
    found = simulate(Problem.load(problem), Schedule.load(write_schedule(tmp_path)))

    def interrupted(*_: object, **__: object) -> Result:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("the signal did not arrive")
        except KeyboardInterrupt:
            return Result("auto", "makespan", found, 1, 0.1, reason="interrupted")

    monkeypatch.setattr("adaptpipe.solver.solving.solve", interrupted)
    before = signal.getsignal(signal.SIGINT)
    result = call("solve", problem, "-o", best)
    assert result.exit_code == 130
    assert Schedule.load(best) == found.schedule
    assert "interrupted; this is the best so far" in result.stderr
    assert "makespan" in result.stdout
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (
            RuntimeError("cannot cache function 'earliest': no locator available for file 'kernel.py'"),
            2,
            "adaptpipe: compiled code can be kept neither beside the package nor in the home folder; "
            "set NUMBA_CACHE_DIR to a folder that can be written to\n",
        ),
        (ZeroDivisionError("division by zero"), 2, "adaptpipe: internal error: ZeroDivisionError: division by zero\n"),
        (MemoryError(), 2, "adaptpipe: out of memory; try a smaller problem\n"),
        (PermissionError(13, "Permission denied", "x"), 2, "adaptpipe: [Errno 13] Permission denied: 'x'\n"),
    ],
)
def test_never_a_traceback(
    error: BaseException, code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adaptpipe.solver.solving.solve", raising(error))
    result = call("solve", write_problem(tmp_path))
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_failed_rank_exits_with_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from adaptpipe.executor.errors import RankFailure

    failure = RankFailure(1, 1, "F", 2, 0, ValueError("boom"))
    monkeypatch.setattr("adaptpipe.solver.solving.solve", raising(failure))
    result = call("solve", write_problem(tmp_path))
    assert result.exit_code == 3
    assert "rank 1, stage 1, F of micro-batch 2, step 0: ValueError: boom" in result.stderr


def test_the_traceback_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptpipe.solver.solving.solve", raising(ZeroDivisionError()))
    monkeypatch.setenv("ADAPTPIPE_DEBUG", "1")
    problem = write_problem(tmp_path)
    with pytest.raises(ZeroDivisionError):
        call("solve", problem)
