"""HiGHS through PuLP, on a thread of its own that is stopped at the deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import highspy
import pulp

from .answer import GAP, GRACE_S, NEVER_S, TOLERANCE, Answer, Task, Values

KINDS = highspy.cb.HighsCallbackType

INTERRUPTS = (KINDS.kCallbackMipInterrupt, KINDS.kCallbackSimplexInterrupt, KINDS.kCallbackIpmInterrupt)
"""Where HiGHS asks whether to stop."""

INFEASIBLE = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
"""Statuses that prove there is no solution: the objective has a lower bound, so none is unbounded."""


def highs(task: Task) -> Answer:
    """Solve with HiGHS, which starts from a known solution, tells each better one, and knows its own bound."""
    left = task.deadline - time.monotonic()
    if left <= 0:
        return Answer()
    run = _Run(task, left)
    # No daemon: an interpreter that exits while HiGHS runs is aborted. So it waits until HiGHS has seen `stop`.
    thread = Thread(target=run.solve)
    thread.start()
    try:
        run.follow(thread)
    finally:
        run.stop = True
        thread.join(GRACE_S)
    if run.error is not None:
        raise run.error
    return run.answer or Answer(bound=finite(run.bound))


def finite(bound: float) -> float | None:
    """A bound that says something, else None."""
    return bound if math.isfinite(bound) else None


class _Quiet(highspy.Highs):
    """HiGHS, silent from the start: it greets on standard output as soon as its callbacks are set."""

    def enableCallbacks(self) -> None:
        """Silence comes first."""
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]  # typed in part only


class _Solver(pulp.HiGHS):  # type: ignore[misc]  # PuLP ships no types
    """PuLP's solver, with a warm start, which PuLP has not for HiGHS, and silent."""

    def __init__(self, start: list[float] | None, called: Callable[..., None], options: dict[str, float]) -> None:
        super().__init__(msg=False)
        self._start, self._called, self._options = start, called, options

    def createAndConfigureSolver(self, lp: pulp.LpProblem) -> None:
        """A solver with our options and callbacks."""
        lp.solverModel = solver = _Quiet()  # type: ignore[no-untyped-call]  # typed in part only
        solver.setCallback(self._called, None)
        for kind in (*INTERRUPTS, KINDS.kCallbackMipImprovingSolution):
            solver.startCallback(kind)
        for name, value in self._options.items():
            solver.setOptionValue(name, value)

    def callSolver(self, lp: pulp.LpProblem) -> None:
        """Hand over the start, and run."""
        if self._start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = self._start
            lp.solverModel.setSolution(solution)
        super().callSolver(lp)


class _Run:
    """One run: `solve` on a thread of its own, `follow` on the caller's."""

    def __init__(self, task: Task, left: float) -> None:
        self.task, self.stop = task, False
        self.answer: Answer | None = None
        self.bound = -math.inf
        self.error: Exception | None = None
        self._found: SimpleQueue[list[float]] = SimpleQueue()
        self._variables = task.model.variables()
        start = [float(variable.varValue or 0) for variable in self._variables] if task.warm else None
        options = {
            "time_limit": min(left, NEVER_S),
            "mip_rel_gap": 0.0,
            "mip_abs_gap": GAP,
            "mip_feasibility_tolerance": TOLERANCE,
            "threads": task.workers,
            "random_seed": task.seed % 2**31,
        }
        self._solver = _Solver(start, self._called, options)

    def solve(self) -> None:
        """Solve; what goes wrong is kept for the thread that waits."""
        try:
            self.task.model.solve(self._solver)
            self.answer = self._read(self.task.model.solverModel)
        except Exception as error:
            # It is raised again by the thread that waits.
            self.error = error

    def follow(self, thread: Thread) -> None:
        """Pass on better solutions until the solver has ended, or should have."""
        while True:
            ended = not thread.is_alive()
            try:
                while True:
                    self.task.on_values(self._named(self._found.get(timeout=0 if ended else 0.02)))
            except Empty:
                pass
            self.stop = time.monotonic() > self.task.deadline
            if ended or time.monotonic() > self.task.deadline + GRACE_S:
                return

    def _called(self, kind: Any, _message: str, out: Any, into: Any, _data: object) -> None:
        if kind in INTERRUPTS:
            into.user_interrupt = self.stop
            if kind == KINDS.kCallbackMipInterrupt:
                self.bound = max(self.bound, float(out.mip_dual_bound))
        else:
            self._found.put(list(out.mip_solution))

    def _named(self, values: list[float]) -> Values:
        return {variable.name: value for variable, value in zip(self._variables, values, strict=True)}

    def _read(self, solver: highspy.Highs) -> Answer:
        status, info = solver.getModelStatus(), solver.getInfo()
        if status in INFEASIBLE:
            return Answer(infeasible=True)
        values = None
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            values = self._named(list(solver.getSolution().col_value))
        return Answer(values, finite(float(info.mip_dual_bound)))
