"""CBC through PuLP's files, as a process that does not outlive the call."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pulp

from ..core.errors import InputError
from .answer import GAP, GRACE_S, NEVER_S, TOLERANCE, Answer, Task

BOUND = re.compile(r"^Lower bound:\s+(\S+)", re.MULTILINE)
"""How CBC's log ends where it stopped early."""

LATE_S = 0.05
"""Seconds before its limit from which CBC may have been stopped by it."""

NOTHING = "No feasible solution found"
"""What its log says where it stopped without a solution."""


def program() -> str:
    """Path of CBC: the one on PATH, or the one that comes with PuLP.

    Raises
    ------
    InputError
        When there is none for this machine.
    """
    found = shutil.which("cbc") or shutil.which(pulp.PULP_CBC_CMD.pulp_cbc_path)
    if found is None:
        raise InputError("backend cbc: no program of that name on PATH, nor with PuLP; install it, or use highs")
    return found


def cbc(task: Task) -> Answer:
    """Solve with CBC, which starts from a known solution, and knows its own bound."""
    if task.deadline <= time.monotonic():
        return Answer()
    solver = pulp.COIN_CMD(path=program(), msg=False)
    with tempfile.TemporaryDirectory(prefix="adaptpipe-cbc-") as folder:
        model, start, solution, log = (Path(folder, name) for name in ("model.mps", "start.txt", "found.txt", "log"))
        variables, names, rows, _ = task.model.writeMPS(str(model), rename=True)
        command = [solver.path, str(model)]
        if task.warm:
            solver.writesol(str(start), task.model, variables, names, rows)
            command += ["-mips", str(start)]
        options = {
            "sec": f"{min(max(task.deadline - time.monotonic(), 0.01), NEVER_S):.2f}",
            "timeMode": "elapsed",
            "ratio": "0",
            "allow": str(GAP),
            "integerTolerance": str(TOLERANCE),
            "threads": str(task.workers),
            "randomCbcSeed": str(task.seed % 2**31),
            # With it, CBC calls some programs infeasible that are not: two micro-batches of two stages on one rank.
            "preprocess": "off",
        }
        for name, value in options.items():
            command += [f"-{name}", value]
        command += ["-solve", "-printingOptions", "all", "-solution", str(solution)]
        with log.open("w") as stream:
            _run(command, stream.fileno(), task.deadline)
        if not solution.exists() or not solution.stat().st_size:
            return Answer()
        values = solver.readsol_MPS(str(solution), task.model, variables, names, rows)[1]
        found = answer_of(solution.read_text().partition("\n")[0], log.read_text(), dict(values))
        # Stopped by its limit in the middle of a node it may say "Infeasible", too; what it says before then is true.
        late = time.monotonic() > task.deadline - LATE_S
        return replace(found, infeasible=False) if late else found


def _run(command: list[str], output: int, deadline: float) -> None:
    process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        try:
            process.wait(min(max(0.0, deadline - time.monotonic()), NEVER_S) + GRACE_S)
        except subprocess.TimeoutExpired:
            # It then stops as on Ctrl-C, and still writes what it has.
            process.send_signal(signal.SIGINT)
            process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        return
    finally:
        process.kill()
        process.wait()


def answer_of(headline: str, log: str, values: dict[str, float]) -> Answer:
    """What CBC's files say.

    Parameters
    ----------
    headline
        First line of its solution file. A stop without a solution, too, is a "Stopped ... - objective value", with
        the relaxation's values; it, or the log, then says that there is no solution.
    log
        What it printed.
    values
        The values in its solution file.

    Examples
    --------
    >>> answer_of("Optimal - objective value 7.00000000", "", {"x": 7.0})
    Answer(values={'x': 7.0}, bound=7.0, infeasible=False)
    >>> answer_of("Infeasible - objective value 7.00000000", "", {"x": 7.0})
    Answer(values=None, bound=None, infeasible=True)
    """
    told = BOUND.search(log)
    bound = float(told[1]) if told else None
    if headline.startswith("Optimal"):
        return Answer(values, float(headline.split()[-1]) if bound is None else bound)
    if headline.startswith(("Infeasible", "Integer infeasible")):
        return Answer(infeasible=True)
    if headline.startswith("Stopped") and "no integer solution" not in headline and NOTHING not in log:
        return Answer(values, bound)
    return Answer(bound=bound)
