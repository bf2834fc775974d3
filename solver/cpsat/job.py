"""One run of CP-SAT, on a thread of its own."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Literal

from ortools.sat.python import cp_model

from .variables import Variables

Purpose = Literal["seek", "prove"]

GRACE_S = 0.3
"""Seconds that the solver gets to stop after its limit, before it is left behind."""


class Job(cp_model.CpSolverSolutionCallback):
    """Runs the solver and queues what it finds.

    Parameters
    ----------
    purpose
        `seek` minimises; `prove` asks whether there is a solution.
    model, v
        What to solve. While the job runs, the model is the solver's.
    solver
        With its parameters set.
    target
        The most that the objective may be in the model, in steps; None: no limit.
    news
        Set whenever there is something to look at.
    """

    def __init__(
        self,
        purpose: Purpose,
        model: cp_model.CpModel,
        v: Variables,
        solver: cp_model.CpSolver,
        target: int | None,
        news: Event,
    ) -> None:
        super().__init__()
        self.purpose, self.v, self.target = purpose, v, target
        self.status: cp_model.CpSolverStatus | None = None
        self.bound = 0.0
        self.error: Exception | None = None
        self._model, self._solver, self._news = model, solver, news
        self._found: SimpleQueue[dict[int, int]] = SimpleQueue()
        self._variables = v.decisions
        solver.best_bound_callback = self._raise_bound
        # Not a daemon: an interpreter that ends while the solver runs aborts. It waits for the solver to notice.
        self._thread = Thread(target=self._solve)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the solver has returned."""
        return not self._thread.is_alive()

    @property
    def deterministic_time(self) -> float:
        """What the solver counts instead of seconds, after its end."""
        return float(self._solver.deterministic_time) if self.status is not None else 0.0

    def solutions(self) -> list[dict[int, int]]:
        """Values of the variables in each solution since the last call."""
        found = []
        try:
            while True:
                found.append(self._found.get_nowait())
        except Empty:
            return found

    def stop(self) -> None:
        """Ask the solver to stop, and wait for it no longer than `GRACE_S`: in its presolve it looks rarely."""
        if self._thread.is_alive():
            self._solver.stop_search()
            self._thread.join(GRACE_S)

    def _solve(self) -> None:
        try:
            status = self._solver.solve(self._model, self)
            if status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
                self.bound = self._solver.best_objective_bound
            self.status = status
        except Exception as error:
            # It is raised again by the thread that waits.
            self.error = error
        finally:
            self._news.set()

    def _raise_bound(self, bound: float) -> None:
        self.bound = max(self.bound, bound)
        self._news.set()

    def on_solution_callback(self) -> None:
        """Queue the values of a solution."""
        self._found.put({x.index: self.value(x) for x in self._variables})
        self._news.set()
