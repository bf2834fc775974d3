"""HiGHS and CBC: what they answer when stopped, where they start, and that they leave nothing behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pulp
import pytest

from adaptpipe.solver import InputError, Problem, Schedule, simulate
from adaptpipe.solver.bounds import lower_bound
from adaptpipe.solver.cpsat.prices import prices
from adaptpipe.solver.heuristics import one_f_one_b_split
from adaptpipe.solver.ilp import cbc, highs, solve_ilp
from adaptpipe.solver.ilp.answer import Answer, Backend, Task, Values
from adaptpipe.solver.ilp.model import build
from adaptpipe.solver.ilp.rebuild import schedule_of
from adaptpipe.solver.ilp.sets import Sets
from adaptpipe.solver.ilp.variables import Variables
from adaptpipe.solver.ilp.warm_start import order_of, warm_start
from tests.solver.bounds.test_bounds import published

BACKENDS = pytest.mark.parametrize("backend", [highs.highs, cbc.cbc])


def soon(seconds: float = 60.0) -> float:
    return time.monotonic() + seconds


def formulation(problem: Problem, start: Schedule | None = None) -> Variables:
    sets = Sets(prices(problem.instance(problem.default_sizes())))
    v = build(sets, "makespan", 0, sets.prices.horizon)
    assert v is not None
    if start is not None:
        order = order_of(sets, start)
        assert order is not None
        warm_start(v, order)
    return v


@BACKENDS
def test_a_small_model_is_proven(backend: Backend) -> None:
    v = formulation(published(2, 3, 1))
    answer = backend(Task(v.model, False, soon()))
    assert answer.values is not None
    assert answer.values["value"] == pytest.approx(1674)
    assert answer.bound == pytest.approx(1674)


@BACKENDS
def test_no_values_without_a_solution(backend: Backend) -> None:
    """A model without a solution had values, and the objective 0, all the same (coin-or/pulp#517, or-tools#5141)."""
    v = formulation(published(2, 3, 1))
    v.model += v.value <= 1600
    assert backend(Task(v.model, False, soon())) == Answer(infeasible=True)


@BACKENDS
def test_stopped_before_a_solution_is_neither_optimal_nor_infeasible(backend: Backend) -> None:
    """Stopped before any incumbent a feasible model was "Infeasible", or "Optimal" (coin-or/pulp#711, #876)."""
    v = formulation(published(8, 12, 0.6))
    answer = backend(Task(v.model, False, soon(0.3)))
    assert answer.values is None
    assert not answer.infeasible
    assert answer.bound is None or answer.bound < 1e4


def test_highs_starts_from_the_known_schedule() -> None:
    """The warm start is used, not only accepted: it is the first solution that is told."""
    problem = published(3, 6, 1)
    start = one_f_one_b_split(problem)
    v, seen = formulation(problem, start), list[Values]()
    highs.highs(Task(v.model, True, soon(), on_values=seen.append))
    values = [values["value"] for values in seen]
    assert values[0] == pytest.approx(simulate(problem, start).makespan)
    assert simulate(problem, schedule_of(v, seen[0])).makespan == simulate(problem, start).makespan
    assert values[-1] == pytest.approx(3348)


def test_cbc_starts_from_the_known_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log says what the start was worth to it."""
    logs: list[str] = []

    def logged(command: list[str], output: int, deadline: float) -> None:
        run(command, output, deadline)
        logs.append(Path(command[1]).with_name("log").read_text())

    run = cbc._run
    monkeypatch.setattr(cbc, "_run", logged)
    problem = published(3, 4, 1)
    start = one_f_one_b_split(problem)
    v = formulation(problem, start)
    assert cbc.cbc(Task(v.model, True, soon())).bound == pytest.approx(lower_bound(problem))
    assert f"MIPStart provided solution with cost {simulate(problem, start).makespan}" in logs[0]


@BACKENDS
def test_a_deadline_in_the_past_is_not_solved(backend: Backend) -> None:
    assert backend(Task(formulation(published(2, 2, 1)).model, False, soon(-1))) == Answer()


@pytest.mark.parametrize(
    ("headline", "log", "answer"),
    [
        ("Optimal - objective value 7.0", "", Answer({"x": 1.0}, 7.0)),
        ("Stopped on time - objective value 9.0", "Lower bound:       5.5\n", Answer({"x": 1.0}, 5.5)),
        ("Stopped on time - objective value 9.0", "", Answer({"x": 1.0})),
        ("Stopped on time (no integer solution - continuous used) - objective value 5.0", "", Answer()),
        ("Stopped on time - objective value 5.0", f"Result - {cbc.NOTHING}\nLower bound: 5", Answer(bound=5)),
        ("Infeasible - objective value 5.0", "", Answer(infeasible=True)),
        ("Integer infeasible - objective value 5.0", "", Answer(infeasible=True)),
        ("Unbounded - objective value 5.0", "", Answer()),
    ],
)
def test_what_cbc_s_files_mean(headline: str, log: str, answer: Answer) -> None:
    assert cbc.answer_of(headline, log, {"x": 1.0}) == answer


def test_an_interrupt_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Process] = []

    class Process(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

        def wait(self, timeout: float | None = None) -> int:
            if len(started) == 1 and timeout is not None:
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Process)
    with pytest.raises(KeyboardInterrupt):
        solve_ilp(published(4, 12, 0.75), deadline=soon(), backend="cbc")
    (process,) = started
    assert process.returncode is not None


def test_an_interrupt_stops_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    monkeypatch.setattr(highs._Run, "follow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        solve_ilp(published(4, 12, 0.75), deadline=soon(100), workers=1)
    until = soon(20)
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.05)
    assert threading.active_count() == before


def test_a_cbc_that_does_not_stop_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cbc, "program", lambda: "/bin/sh")
    monkeypatch.setattr(cbc, "GRACE_S", 0.1)
    real = subprocess.Popen

    def deaf(_: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return real(["/bin/sh", "-c", "trap '' INT; while :; do sleep 0.05; done"], **options)

    monkeypatch.setattr(subprocess, "Popen", deaf)
    v = formulation(published(2, 2, 1))
    assert cbc.cbc(Task(v.model, False, soon(0.2))) == Answer()


def test_a_highs_that_does_not_stop_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(pulp.LpProblem, "solve", lambda *_: released.wait())
    v = formulation(published(2, 2, 1))
    try:
        assert highs.highs(Task(v.model, False, soon(0.2))) == Answer()
    finally:
        released.set()


def test_a_process_that_ends_while_highs_still_runs_is_not_aborted() -> None:
    """Its threads, left running at exit, end the process with SIGABRT."""
    program = """
import time
from adaptpipe.solver.ilp import solve_ilp
from tests.solver.bounds.test_bounds import published
assert not solve_ilp(published(4, 12, 0.75), deadline=time.monotonic() + 1.5, workers=1)[2]
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_what_goes_wrong_in_highs_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(pulp.LpProblem, "solve", broken)
    with pytest.raises(MemoryError, match="no room"):
        solve_ilp(published(2, 3, 1), deadline=soon())


def test_without_cbc_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(InputError, match="backend cbc: no program of that name on PATH, nor with PuLP; install it"):
        solve_ilp(published(2, 3, 1), deadline=soon(), backend="cbc")


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_solvers_print_nothing(backend: Any, capfd: pytest.CaptureFixture[str]) -> None:
    solve_ilp(published(2, 3, 1), hint=one_f_one_b_split(published(2, 3, 1)), deadline=soon(), backend=backend)
    assert capfd.readouterr() == ("", "")
