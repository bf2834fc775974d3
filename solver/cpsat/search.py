"""CP-SAT under a limit on wall time."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread

from ortools.sat.python import cp_model

from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Schedule
from ..evaluate.simulate import simulate
from . import constraints
from .hint import hint_times
from .model import Constraint, build
from .prices import Prices, prices
from .rebuild import schedule_of, timeline_of
from .variables import OutOfTime, Variables

OnIncumbent = Callable[[Schedule, int], None]
"""Called with each better schedule and the bound at that moment, in ticks."""

GRACE_S = 0.3
"""Seconds that the solver gets to stop after its limit, before it is left behind."""


def solve_cpsat(
    problem: Problem,
    objective: Objective = "makespan",
    hint: Schedule | None = None,
    bound: int = 0,
    deadline: float = float("inf"),
    workers: int = 2,
    seed: int = 0,
    on_incumbent: OnIncumbent | None = None,
    deterministic: bool = False,
    *,
    sizes: tuple[int, ...] | None = None,
    fifo: bool = True,
    on_note: Callable[[str], None] | None = None,
    on_bound: Callable[[int], None] | None = None,
) -> tuple[Schedule | None, int, bool]:
    """Search a schedule and a proof with CP-SAT.

    Each weight gradient is whole in the model. Where a stage has several units, cutting it might do better, so the
    solver's own bound is not passed on then.

    Parameters
    ----------
    problem
        The problem.
    objective
        What is minimised.
    hint
        A schedule to start from, which respects the limits; the answer is never worse.
    bound
        Known lower bound, in ticks.
    deadline
        Moment (`time.monotonic`) by which the answer is there, also where the solver is still in its presolve: it is
        then left behind.
    workers, seed
        Of the solver.
    on_incumbent
        Told of each better schedule.
    deterministic
        Make equal runs that are not stopped by the deadline find equal schedules.
    sizes
        Samples of each micro-batch; None: the hint's, or the problem's default.
    fifo
        Whether micro-batches that are alike pass in order, which is without loss.
    on_note
        Told why the search was left out, where it was.
    on_bound
        Told of each better lower bound, in ticks, before the schedule that is found with it.

    Returns
    -------
    tuple
        The best schedule (None: none found), the bound in ticks, and whether it is proven that there is no schedule.
    """
    sizes = sizes or (hint.sizes if hint is not None else problem.default_sizes())
    scaled = prices(problem.instance(sizes))
    search = _Search(problem, objective, scaled, hint, bound, deadline, on_incumbent, on_bound)
    parameters = _parameters(workers, seed, deterministic)
    one_class = fifo and int(scaled.group.max()) == 0
    if objective == "span" and one_class:
        # First what an order of ops can say, then, for the bound, with late first starts as well.
        search.run(parameters, fifo, (constraints.first_ops_at_once,), bounds=False, share=0.5)
    if not search.met:
        search.run(parameters, fifo, (), bounds=True, share=1.0)
    if search.note and on_note is not None:
        on_note(search.note)
    return search.best, search.bound, search.infeasible


def _parameters(workers: int, seed: int, deterministic: bool) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers, parameters.random_seed = workers, seed
    # Ctrl-C is the caller's: the library's own handler aborts the process when another thread gets the signal.
    parameters.catch_sigint_signal = False
    # Loading the hint and starting to search matter more than a presolve that takes the time limit.
    parameters.cp_model_probing_level, parameters.linearization_level, parameters.symmetry_level = 0, 0, 0
    parameters.interleave_search = deterministic
    return solver


class _Search:
    """The best schedule and bound, over one or two models."""

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        scaled: Prices,
        hint: Schedule | None,
        bound: int,
        deadline: float,
        on_incumbent: OnIncumbent | None,
        on_bound: Callable[[int], None] | None,
    ) -> None:
        self.problem, self.objective, self.prices = problem, objective, scaled
        self.best, self.bound, self.deadline, self.infeasible = hint, bound, deadline, False
        self.value = None if hint is None else simulate(problem, hint).value(objective)
        self._report, self._tell, self.note = on_incumbent, on_bound, ""
        self._bounding = False
        self.whole = scaled.instance.unit_ticks.shape[2] == 2

    @property
    def met(self) -> bool:
        """Whether the best schedule meets the bound."""
        return self.value is not None and self.value <= self.bound

    def run(
        self, solver: cp_model.CpSolver, fifo: bool, extra: tuple[Constraint, ...], bounds: bool, share: float
    ) -> None:
        """Build one model and search it, for a share of the time that is left."""
        now = time.monotonic()
        deadline = now + share * (self.deadline - now)
        step = self.prices.step
        times = None if self.best is None else hint_times(self.problem, self.prices, self.best, fifo)
        above = None if self.value is None else -(-self.value // step) if self.prices.exact else None
        try:
            # The search below gets at least as much time as the model took to build.
            model, v = build(
                self.prices,
                self.objective,
                times,
                self.bound // step,
                above,
                now + (deadline - now) / 2,
                fifo=fifo,
                extra=extra,
            )
        except OutOfTime:
            self.note = (
                f"the model of {self.prices.instance.before.shape[0]} ops takes longer to build than there is time"
            )
            return
        left = deadline - time.monotonic()
        if left <= 0:
            return
        solver.parameters.max_time_in_seconds = min(left, 1e9)
        watch = _Watch(v)
        solver.best_bound_callback = watch.raise_bound
        self._bounding = bounds and self.whole
        thread = Thread(target=watch.solve, args=(solver, model), daemon=True)
        thread.start()
        try:
            self._follow(watch, thread, v, deadline)
        finally:
            if thread.is_alive():
                solver.stop_search()
                thread.join(GRACE_S)
        if bounds and self.whole and watch.status is not None:
            self._conclude(watch, above is None)

    def _follow(self, watch: _Watch, thread: Thread, v: Variables, deadline: float) -> None:
        while True:
            ended = not thread.is_alive()
            try:
                while True:
                    self._take(watch.found.get(timeout=0 if ended else 0.02), v)
            except Empty:
                self._raise(watch.bound)
            if watch.error is not None:
                raise watch.error
            if ended or time.monotonic() > deadline + GRACE_S:
                return

    def _take(self, found: tuple[dict[int, int], float], v: Variables) -> None:
        values, bound = found
        timeline = timeline_of(self.problem, schedule_of(v, lambda variable: values[variable.index]))
        if timeline is None or (self.value is not None and timeline.value(self.objective) >= self.value):
            return
        self.best, self.value = timeline.schedule, timeline.value(self.objective)
        self._raise(bound)
        if self._report is not None:
            self._report(timeline.schedule, self.bound)

    def _raise(self, bound: float) -> None:
        """Take over a bound of the solver, where the model leaves no better schedule out."""
        if not self._bounding:
            return
        proven = round(bound) * self.prices.step
        proven = proven if self.value is None else min(proven, self.value)
        if proven > self.bound:
            self.bound = proven
            if self._tell is not None:
                self._tell(proven)

    def _conclude(self, watch: _Watch, unbounded: bool) -> None:
        if watch.status == cp_model.INFEASIBLE:
            # With a bound from above, "infeasible" only says that nothing is better.
            self.infeasible = unbounded and self.best is None
        elif watch.status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
            self._raise(watch.bound)


class _Watch(cp_model.CpSolverSolutionCallback):
    """Runs the solver on a thread of its own and queues what it finds."""

    def __init__(self, v: Variables) -> None:
        super().__init__()
        self.found: SimpleQueue[tuple[dict[int, int], float]] = SimpleQueue()
        self.status: cp_model.CpSolverStatus | None = None
        self.bound = 0.0
        self.error: Exception | None = None
        rows = [*v.forward, *v.backward, *v.weight]
        self._variables = [variable for row in rows for variable in row]
        self._variables += [literal for row in v.fused for literal in row if literal is not None]

    def solve(self, solver: cp_model.CpSolver, model: cp_model.CpModel) -> None:
        """Solve; what goes wrong is kept for the thread that waits."""
        try:
            status = solver.solve(model, self)
            self.bound = solver.best_objective_bound
            self.status = status
        except Exception as error:
            # It is raised again by the thread that waits.
            self.error = error

    def raise_bound(self, bound: float) -> None:
        """Note a better bound of the solver."""
        self.bound = max(self.bound, bound)

    def on_solution_callback(self) -> None:
        """Queue the values of a solution."""
        self.found.put(({x.index: self.value(x) for x in self._variables}, self.best_objective_bound))
