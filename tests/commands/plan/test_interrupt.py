"""Ctrl-C, in a process: the best plan so far is written; of many cases those that are finished."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adaptpipe.commands.plan.cases import read_lines
from adaptpipe.solver.planning.files.plan_file import load_plan

from .tiny import write_instance


def interrupted(words: list[str], sign: str) -> str:
    """Standard error of a command that gets Ctrl-C once a line of it says so."""
    command = [sys.executable, "-m", "adaptpipe", "plan", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    text = ""
    for line in process.stderr:
        text += line
        if sign in line:
            break
    process.send_signal(signal.SIGINT)
    text += process.communicate(timeout=100)[1]
    assert process.returncode == 130, text
    assert "Traceback" not in text
    return text


@pytest.mark.timeout(300)
def test_the_best_plan_is_kept(tmp_path: Path) -> None:
    words = ["--instance", write_instance(tmp_path), "--time-limit", "100", "-o", str(tmp_path / "plan.json")]
    assert "interrupted; this is the best so far" in interrupted(words, " bound ")
    assert len(load_plan(tmp_path / "plan.json").layers) == 6


@pytest.mark.timeout(300)
def test_finished_cases_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    options = ["--instance", write_instance(tmp_path), "--time-limit", "30", "--jobs", "2", "-o", str(path)]
    interrupted(["--what-if", "memory=0.01,0.1", "ranks=1,2", *options], "1 of 4")
    found = read_lines(path)
    assert 1 <= len(found) < 4
    assert found[0].case["memory"] == "0.01"
