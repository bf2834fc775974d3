"""Starting ranks, and how all end when one does."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from adaptpipe.executor.errors import PeerFailed, RankFailure
from adaptpipe.executor.failures import blame
from adaptpipe.executor.launching.launcher import _PRELOADED, launch
from adaptpipe.solver import InputError

from . import jobs

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import sys
from dataclasses import dataclass

import torch
from adaptpipe.executor import launch

@dataclass
class Answer:
    rank: int
    preloaded: bool

print(f"run {__name__}\\n", end="", flush=True)  # one write, so that lines of several ranks do not mix

def work(rank, world, x):
    return Answer(rank + int(x.sum()), "wave" in sys.modules)  # of the standard library, used by nobody

print(launch(work, 2, torch.ones(3), preload=["wave"]))
print("end\\n", end="", flush=True)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def pids(folder: Path, count: int) -> list[int]:
    """Wait until so many ranks have said who they are."""
    while len(found := list(folder.glob("*.pid"))) < count:
        time.sleep(0.01)
    return [int(file.read_text()) for file in found]


def wait_for_end(processes: list[int]) -> None:
    while any(alive(pid) for pid in processes):
        time.sleep(0.01)


def python(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.timeout(60)
def test_results_come_by_rank() -> None:
    results = launch(jobs.add_up, 3, torch.tensor([1.0, 2.0]), threads=2)
    assert [rank for rank, _, _ in results] == [0, 1, 2]
    assert [threads for _, threads, _ in results] == [2, 2, 2]
    for _, _, total in results:
        assert total.tolist() == [6.0, 12.0]


@pytest.mark.timeout(60)
def test_ranks_see_the_environment_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(jobs.environment, 1, "ADAPTPIPE_TEST")  # starts the fork server
    monkeypatch.setenv("ADAPTPIPE_TEST", "here")
    assert launch(jobs.environment, 2, "ADAPTPIPE_TEST") == ("here", "here")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("job", "which", "headline"),
    [
        (jobs.fail_at, 1, "rank 1, stage 1, F of micro-batch 2, step 5: ValueError: boom"),
        (jobs.fail_plainly, 2, "rank 2: ValueError: boom"),
        (jobs.fail_in_a_row, 3, "rank 3: ValueError: boom"),
        (
            jobs.fail_while_others_lose_their_connection,
            2,
            "rank 2, stage 2, F of micro-batch 0, step 3: ConnectionResetError: Connection reset by peer",
        ),
        (jobs.kill_self, 2, "rank 2: killed by signal 9 (SIGKILL)"),
        (jobs.leave, 0, "rank 0: exited with code 7 before it returned"),
    ],
)
def test_the_first_failure_ends_all(job: Callable[[int, int, int], None], which: int, headline: str) -> None:
    with pytest.raises(RankFailure) as caught:
        launch(job, 4, which)
    assert str(caught.value).splitlines()[0] == headline == caught.value.headline
    assert caught.value.rank == which
    if "ValueError" in headline:
        assert 'raise ValueError("boom")' in str(caught.value) or job is jobs.fail_at


@pytest.mark.timeout(60)
def test_killing_a_rank_from_outside_ends_all(tmp_path: Path) -> None:
    child = python("-c", f"import tests.executor.launching.test_launch as t; t.hang({str(tmp_path)!r}, 3)")
    found = pids(tmp_path, 3)
    victim = int((tmp_path / "1.pid").read_text())
    os.kill(victim, signal.SIGKILL)
    assert "rank 1: killed by signal 9 (SIGKILL)" in child.communicate()[1]
    assert child.returncode == 1
    wait_for_end(found)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    child = python("-c", f"import tests.executor.launching.test_launch as t; t.hang({str(tmp_path)!r}, 2)")
    found = pids(tmp_path, 2)
    child.send_signal(how)
    child.communicate()
    assert child.returncode == -how
    wait_for_end(found)


@pytest.mark.timeout(60)
def test_ctrl_c_at_the_terminal_is_the_parents(tmp_path: Path) -> None:
    """A terminal sends it to every process of the group."""
    code = f"import os; os.setpgrp(); import tests.executor.launching.test_launch as t; t.hang({str(tmp_path)!r}, 2)"
    child = python("-c", code)
    found = pids(tmp_path, 2)
    os.killpg(child.pid, signal.SIGINT)
    _, errors = child.communicate()
    assert errors.count("KeyboardInterrupt") == 1
    wait_for_end(found)


@pytest.mark.timeout(60)
def test_a_rank_that_will_not_end_is_killed(tmp_path: Path) -> None:
    with pytest.raises(RankFailure, match=r"^rank 0: ValueError: boom"):
        launch(jobs.ignore_sigterm, 2, tmp_path)
    wait_for_end(pids(tmp_path, 2))


@pytest.mark.timeout(60)
def test_a_result_that_cannot_travel_is_a_failure() -> None:
    with pytest.raises(RankFailure, match=r"^rank \d: .*(pickle|local object)"):
        launch(jobs.unpicklable, 2, None)


@pytest.mark.timeout(90)
@pytest.mark.parametrize(("how", "guard"), [("file", False), ("module", True)])
def test_scripts_work_with_and_without_a_guard(tmp_path: Path, how: str, guard: bool) -> None:
    script = SCRIPT
    if guard:
        script = SCRIPT.replace("print(launch", 'if __name__ == "__main__":\n    print(launch')
    (tmp_path / "users_script.py").write_text(script)
    arguments = [tmp_path / "users_script.py"] if how == "file" else ["-m", "users_script"]
    child = python(*arguments, PYTHONPATH=f"{ROOT}:{tmp_path}")
    output, errors = child.communicate()
    assert child.returncode == 0, errors
    assert output.splitlines().count("run __main__") == 1
    assert output.splitlines().count("run __mp_main__") == 2
    assert "(Answer(rank=3, preloaded=True), Answer(rank=4, preloaded=True))" in output
    assert output.splitlines().count("end") == (3 if guard else 1)


@pytest.mark.timeout(60)
def test_functions_of_an_installed_module_do_not_run_the_main_module_again(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "print('run')\nimport tests.executor.launching.jobs as j\nfrom adaptpipe.executor import launch\n"
        "print(launch(j.environment, 2, 'PYTHONPATH')[1])\n"
    )
    output, errors = python(tmp_path / "script.py").communicate()
    assert output.splitlines() == ["run", str(ROOT)], errors


@pytest.mark.timeout(60)
def test_a_module_without_a_place_in_the_path_is_found_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import importlib.util, sys\nfrom adaptpipe.executor import launch\n"
        f"spec = importlib.util.spec_from_file_location('nowhere_jobs', {jobs.__file__!r})\n"
        "module = sys.modules['nowhere_jobs'] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "print(launch(module.environment, 2, 'NOTHING'))\n"
    )
    output, errors = python(tmp_path / "script.py").communicate()
    assert output.splitlines() == ["(None, None)"], errors


@pytest.mark.timeout(60)
def test_interactive_functions_are_refused() -> None:
    code = "from adaptpipe.executor import launch\ndef f(r, w, a): pass\nlaunch(f, 2, None)"
    _, errors = python("-c", code).communicate()
    assert "InputError: a function or class of an interactive session cannot go to other processes" in errors


def test_functions_without_a_name_are_refused() -> None:
    with pytest.raises(InputError, match=r"<lambda> and its argument must go to other processes, and cannot"):
        launch(lambda rank, world, argument: None, 2, None)


def test_no_ranks_are_refused() -> None:
    with pytest.raises(InputError, match="ranks = 0: at least 1 is needed"):
        launch(jobs.environment, 0, "")


@pytest.mark.timeout(90)
def test_under_torchrun_each_process_is_a_rank(tmp_path: Path) -> None:
    output, errors = torchrun(tmp_path, 2, "print([r[2].tolist() for r in launch(j.add_up, 2, torch.ones(1))])")
    # Processes that print at once may put both texts before both line ends.
    assert output.replace("\n", "") == "[[3.0], [3.0]]" * 2, errors


@pytest.mark.timeout(90)
def test_torchrun_is_told_the_first_failure(tmp_path: Path) -> None:
    _, errors = torchrun(tmp_path, 3, "launch(j.fail_in_a_row, 3, 2)")
    assert "rank 2: ValueError: boom" in errors
    assert "rank 1 stops because another rank failed first: rank 2: ValueError: boom" in errors
    root = errors[errors.index("Root Cause") :]
    assert "rank 2: ValueError: boom" in root


def test_torchrun_with_another_number_of_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="torchrun started 1 ranks, and 2 are needed: use --nproc-per-node"):
        launch(jobs.environment, 2, "")


def test_errors_travel() -> None:
    failure = RankFailure(1, 2, "W", 3, 4, KeyError("x"), "more")
    for error in (failure, PeerFailed(0, failure)):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))
    assert str(failure) == "rank 1, stage 2, W of micro-batch 3, step 4: KeyError: 'x'\nmore"
    assert RankFailure(0, None, None, 3, None, "x").headline == "rank 0, micro-batch 3: x"


def test_blame_without_a_process_group() -> None:
    error = blame(ValueError("boom"), 3, 1, "F", 2, 0)
    assert str(error).splitlines()[0] == "rank 3, stage 1, F of micro-batch 2, step 0: ValueError: boom"
    assert blame(error, 3) is error
    lost = blame(RuntimeError("[...] Connection closed by peer [127.0.0.1]:1"), 3, 1, "F", patience_s=0)
    assert str(lost).startswith("rank 3, stage 1, F: RuntimeError: [...] Connection closed by peer")
    assert blame(lost, 3) is lost


def hang(folder: str, ranks: int) -> None:
    """Start ranks that never end."""
    launch(jobs.write_pid_and_hang, ranks, Path(folder))


def torchrun(folder: Path, ranks: int, line: str) -> tuple[str, str]:
    script = folder / "script.py"
    script.write_text(
        f"import torch\nimport tests.executor.launching.jobs as j\nfrom adaptpipe.executor import launch\n{line}\n"
    )
    child = python("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", script)
    return child.communicate()


@pytest.mark.timeout(100)
def test_the_example_trains_on_local_ranks() -> None:
    script = ROOT / "examples" / "own_model.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    first, last = map(float, re.findall(r"loss (\S+) to (\S+) in", done.stdout)[0])
    assert last < first


def test_what_is_preloaded_is_there() -> None:
    """A fork server passes over a module that it does not find, and every rank would import it anew."""
    for name in _PRELOADED:
        assert find_spec(name) is not None, name
