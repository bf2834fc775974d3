"""The integer linear program under a limit on wall time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Literal

from ..core.errors import InputError
from ..core.granularity import ALL, Granularity
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Schedule
from ..cpsat.prices import prices
from ..cpsat.rebuild import timeline_of
from ..evaluate.simulate import simulate
from .answer import Answer, Backend, Task, Values
from .model import binaries, build
from .rebuild import schedule_of
from .sets import Sets
from .variables import Variables
from .warm_start import order_of, warm_start

OnIncumbent = Callable[[Schedule, int], None]
"""Called with each better schedule and the bound at that moment, in ticks."""

LONGEST = 2**22
"""Longest horizon, in steps: times the solvers' tolerance it is far below one step."""

LARGEST, MOST_OPS = 2000, 3000
"""Binaries, and ops, beyond which the program is not built. In 20 s HiGHS proved an optimum at 336 binaries (4 ranks, 8
micro-batches) and found one at 792; at 1,600 to 2,000 it found nothing without a start, and no better than it."""


def backend_of(name: str) -> Backend:
    """Back end of a name.

    Raises
    ------
    InputError
        When there is none.
    """
    if name == "highs":
        from .highs import highs

        return highs
    if name == "cbc":
        from .cbc import cbc

        return cbc
    raise InputError(f"backend: {name!r} is none of highs, cbc")


def solve_ilp(
    problem: Problem,
    objective: Objective = "makespan",
    hint: Schedule | None = None,
    bound: int = 0,
    deadline: float = float("inf"),
    workers: int = 2,
    seed: int = 0,
    on_incumbent: OnIncumbent | None = None,
    *,
    sizes: tuple[int, ...] | None = None,
    granularity: Granularity = ALL,
    backend: Literal["highs", "cbc"] = "highs",
    on_note: Callable[[str], None] | None = None,
) -> tuple[Schedule | None, int, bool]:
    """Search a schedule and a proof with an integer linear program: a reference for small problems.

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
        Moment (`time.monotonic`) by which the answer is there.
    workers, seed
        Of the solver.
    on_incumbent
        Told of each better schedule.
    sizes
        Samples of each micro-batch; None: the hint's, or the problem's default.
    granularity
        Whether backwards may be fused; units and sizes are not the program's to choose.
    backend
        "highs", or "cbc".
    on_note
        Told why the search was left out, where it was, or what it leaves open.

    Returns
    -------
    tuple
        The best schedule (None: none found), the bound in ticks, and whether it is proven that there is no schedule.

    Raises
    ------
    InputError
        When the back end is unknown, or not installed.
    """
    run = backend_of(backend)
    sizes = sizes or (hint.sizes if hint is not None else problem.default_sizes())
    search = _Search(problem, objective, sizes, granularity, hint, bound, on_incumbent)
    note = search.run(run, deadline, workers, seed)
    if note and on_note is not None:
        on_note(note)
    return search.best, search.bound, search.infeasible


class _Search:
    """The best schedule and bound."""

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        sizes: tuple[int, ...],
        granularity: Granularity,
        hint: Schedule | None,
        bound: int,
        on_incumbent: OnIncumbent | None,
    ) -> None:
        self.problem, self.objective = problem, objective
        free = Granularity(fused=granularity.fused, units=False, sizes=False)
        self.sets = Sets(prices(problem.instance(sizes), LONGEST, free))
        self.best, self.bound, self.infeasible = hint, bound, False
        self.value = None if hint is None else simulate(problem, hint).value(objective)
        self._report = on_incumbent
        self._whole = self.sets.prices.instance.unit_ticks.shape[2] == 2

    def run(self, backend: Backend, deadline: float, workers: int, seed: int) -> str:
        """Build the program and solve it; returns why not, or what is left open."""
        if self.value is not None and self.value <= self.bound:
            return ""
        size = self._size()
        if size:
            return f"the ILP is a reference for small problems, and this one has {size}; use cpsat or auto"
        if time.monotonic() > deadline:
            return ""
        step, exact = self.sets.prices.step, self.sets.prices.exact
        order = None if self.best is None else order_of(self.sets, self.best)
        v = build(self.sets, self.objective, self.bound // step, self._latest(order is not None), deadline)
        if v is None:
            return f"the program of {self.sets.count} ops takes longer to build than there is time"
        if order is not None:
            warm_start(v, order)
        task = Task(v.model, order is not None, deadline, workers, seed, lambda values: self._take(v, values))
        answer = backend(task)
        self._conclude(v, answer, capped=self.best is not None)
        return "" if exact else f"durations were rounded down to {step} ticks in the model; schedules are timed exactly"

    def _size(self) -> str:
        if self.sets.count > MOST_OPS:
            return f"{self.sets.count} ops, above {MOST_OPS}"
        count = binaries(self.sets, self.objective)
        return "" if count <= LARGEST else f"{count} binaries ({self.sets.count} ops), above {LARGEST}"

    def _latest(self, modelled: bool) -> int:
        """A moment, in steps, at which some best schedule has ended: the known one's makespan, or all in a row.

        A schedule of the least span may end late, and one that cuts its weight gradients is not one of the model's:
        then the known one is no limit.
        """
        horizon = self.sets.prices.horizon
        if self.value is None or self.objective == "span" or not modelled:
            return horizon
        return min(horizon, -(-self.value // self.sets.prices.step))

    def _take(self, v: Variables, values: Values) -> None:
        timeline = timeline_of(self.problem, schedule_of(v, values))
        if timeline is None or (self.value is not None and timeline.value(self.objective) >= self.value):
            return
        self.best, self.value = timeline.schedule, timeline.value(self.objective)
        if self._report is not None:
            self._report(timeline.schedule, self.bound)

    def _conclude(self, v: Variables, answer: Answer, capped: bool) -> None:
        if answer.values is not None:
            self._take(v, answer.values)
        if answer.infeasible:
            # With a known schedule there is one: then the solver is not believed.
            self.infeasible = not capped
        elif answer.bound is not None and self._whole:
            # A whole number of steps that a solver's arithmetic may have missed by a little.
            proven = math.ceil(answer.bound - 0.01) * self.sets.prices.step
            proven = proven if self.value is None else min(proven, self.value)
            self.bound = max(self.bound, proven)
