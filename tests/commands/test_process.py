"""The command as a process: imports, pipes, signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adaptpipe.solver import Schedule
from tests.commands.cli import write_problem, write_schedule

ADAPTPIPE = [sys.executable, "-m", "adaptpipe"]


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    return done.stdout


@pytest.mark.parametrize("module", ["adaptpipe", "adaptpipe.commands.app"])
def test_what_an_import_does_not_bring(module: str) -> None:
    heavy = "{'torch', 'numba', 'matplotlib', 'ortools', 'networkx'}"
    assert python(f"import {module}, sys; print(sorted({heavy} & set(sys.modules)))") == "[]\n"


def test_solve_and_simulate_stay_functions_however_they_are_imported() -> None:
    code = (
        "import adaptpipe as ap, adaptpipe.solver.solving, adaptpipe.solver.evaluate.check\n"
        "print(all(callable(getattr(ap, n)) for n in ('solve', 'compare', 'simulate', 'check') for _ in range(2)))"
    )
    assert python(code) == "True\n"


def test_version_as_a_process() -> None:
    done = subprocess.run([*ADAPTPIPE, "--version"], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.startswith("adaptpipe ")


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    words = [*ADAPTPIPE, "show", str(write_problem(tmp_path)), str(write_schedule(tmp_path))]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    complaint = process.stderr.read().decode()
    assert "Traceback" not in complaint
    assert "Broken" not in complaint
    assert process.wait(timeout=100) == 0


@pytest.mark.timeout(200)
def test_ctrl_c_keeps_the_best(tmp_path: Path) -> None:
    """A limit that CP-SAT cannot finish within; interrupted, the schedule found so far is written."""
    problem = Path(__file__).resolve().parents[2] / "examples" / "v-1.5b-p4-m8.toml"
    best = tmp_path / "best.json"
    words = [*ADAPTPIPE, "solve", str(problem), "--method", "cpsat", "--time-limit", "90", "-o", str(best)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if " bound " in line:
            break
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130, complaint
    assert "interrupted; this is the best so far" in complaint
    assert Schedule.load(best).placement.name == "v"
