"""CP-SAT under a limit on wall time: one job seeks better schedules, one proves that there is none below a target."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

from ortools.sat.python import cp_model

from ..core.granularity import ALL, Granularity
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Schedule
from ..evaluate.simulate import simulate
from . import constraints
from .hint import hint_times, merged
from .job import Job, Purpose
from .model import build
from .prices import Prices, prices
from .rebuild import schedule_of, timeline_of
from .sizes import LARGEST, candidates
from .targets import Targets
from .variables import OutOfTime, Variables

OnIncumbent = Callable[[Schedule, int], None]
"""Called with each better schedule and the bound at that moment, in ticks."""

FIRST_SLICE = 1.0
"""Deterministic time of the first run that seeks; each later one gets twice as much."""


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
    granularity: Granularity = ALL,
    fifo: bool = True,
    budget: float = float("inf"),
    on_note: Callable[[str], None] | None = None,
    on_bound: Callable[[int], None] | None = None,
) -> tuple[Schedule | None, int, bool]:
    """Search a schedule and a proof with CP-SAT.

    Two kinds of jobs run side by side, or take turns where there is one worker. One *seeks*: it minimises, from the
    best schedule as a complete hint. The other *proves*: it asks for a schedule that ends by a target, without an
    objective. "None" raises the bound above the target. A target far below what is possible leaves the solver little to
    search, so this proves much more than minimising, whose only target is the best value; `Targets` chooses them.

    Which backwards are fused, and which ranges of units each weight gradient is cut into, is chosen along with the
    order. Where a stage has more units than `prices.MOST_PIECES`, some are taken together, and nothing is proved.
    The hint's own cuts are kept, unless there are too many.

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
        Make equal runs that are not stopped by the deadline find equal schedules: jobs are then limited by the solver's
        deterministic time, and tell what they found only when all have ended.
    sizes
        Samples of each micro-batch. None: chosen along with the order where `granularity` lets them, and the bound
        then holds for every division of the batch; else the hint's, or the problem's default. Where they are to be
        chosen and the model would have over `LARGEST` backwards, the search is left out.
    granularity
        What may be chosen beside the order.
    fifo
        Whether micro-batches that are alike pass in order, which is without loss; slices never do.
    budget
        Deterministic time of each kind of job in all: roughly seconds of one core.
    on_note
        Told why the search was left out, where it was.
    on_bound
        Told of each better lower bound, in ticks, before the schedule that is found with it.

    Returns
    -------
    tuple
        The best schedule (None: none found), the bound in ticks, and whether it is proven that there is no schedule.
    """
    free = sizes is None and granularity.sizes and len(problem.sizes) > 1
    if free:
        candidate, samples = candidates(problem), problem.samples
        backwards = problem.stages * len(candidate.sizes)
        if backwards > LARGEST:
            if on_note is not None:
                on_note(
                    f"sizes stay as they are: {len(candidate.sizes)} micro-batches of {problem.samples} samples may be "
                    f"there, {backwards} backwards, above {LARGEST}"
                )
            return hint, bound, False
    else:
        sizes = sizes or (hint.sizes if hint is not None else problem.default_sizes())
        candidate, samples = problem.instance(sizes), 0
    scaled = prices(candidate, granularity=granularity, schedule=hint, samples=samples)
    search = _Search(problem, objective, scaled, hint, bound, deadline, budget, on_incumbent, on_bound)
    search.workers, search.seed, search.deterministic, search.fifo = workers, seed, deterministic, fifo
    search.fifo = fifo and problem.slices is None
    search.run()
    if search.note and on_note is not None:
        on_note(search.note)
    return search.best, search.bound, search.infeasible


class _Search:
    """The best schedule and bound, over all jobs."""

    workers, seed, deterministic, fifo = 2, 0, False, True

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        scaled: Prices,
        hint: Schedule | None,
        bound: int,
        deadline: float,
        budget: float,
        on_incumbent: OnIncumbent | None,
        on_bound: Callable[[int], None] | None,
    ) -> None:
        self.problem, self.objective, self.prices = problem, objective, scaled
        self.best, self.bound, self.infeasible, self.note = hint, bound, False, ""
        self.value = None if hint is None else simulate(problem, hint).value(objective)
        self._deadline, self._report, self._tell = deadline, on_incumbent, on_bound
        # A model that takes units together says nothing about schedules that cut between them.
        self._proves = scaled.all_points
        self._left: dict[Purpose, float] = {"seek": budget, "prove": budget}
        self._sought, self._slice, self._targets = False, FIRST_SLICE, Targets()
        self._decision: tuple[cp_model.CpModel, Variables] | None = None
        self._news, self._ran = Event(), False

    @property
    def met(self) -> bool:
        """Whether the best schedule meets the bound."""
        return self.value is not None and self.value <= self.bound

    @property
    def _at_once(self) -> bool:
        """Whether seeking takes every first op to start at once; see `first_ops_at_once`."""
        return self.objective == "span" and self.fifo and int(self.prices.group.max()) == 0

    def run(self) -> None:
        """Start jobs and look at what they find, until the bound is met, nothing is to be done, or time is over."""
        running: list[Job] = []
        try:
            while not self.met and not self.infeasible and time.monotonic() < self._deadline:
                if not running or not self.deterministic:
                    self._start(running)
                if not running:
                    return
                self._news.wait(min(max(0.0, self._deadline - time.monotonic()), 0.1))
                self._news.clear()
                if not self.deterministic or all(job.ended for job in running):
                    # Not those that end while they are looked at.
                    running = [job for job in running if not self._look(job)]
        finally:
            for job in running:
                job.stop()
            if not self.deterministic:
                for job in running:
                    self._look(job)

    # Jobs

    def _start(self, running: list[Job]) -> None:
        """Start what is to be done: one job of each purpose, or, with one worker, the one that had less time so far."""
        turns: list[Purpose] = ["seek", "prove"]
        if self.workers == 1 and self._left["prove"] > self._left["seek"]:
            turns.reverse()
        for purpose in turns:
            if len(running) == min(2, self.workers) or any(job.purpose == purpose for job in running):
                continue
            try:
                job = self._seek() if purpose == "seek" else self._prove()
            except OutOfTime:
                self._left[purpose] = 0.0
                if self._ran:
                    continue
                ops = self.prices.instance.before.shape[0]
                self.note = f"the model of {ops} ops takes longer to build than there is time"
                return
            if job is not None:
                running.append(job)
                self._ran = True

    def _seek(self) -> Job | None:
        """A job that minimises, from the best schedule so far."""
        if self._sought or self._left["seek"] <= 0:
            return None
        step, times = self.prices.step, None
        if self.best is not None:
            known = merged(self.best, self.prices.points)
            times = hint_times(self.problem, self.prices, known, self.fifo)
        above = -(-self.value // step) if self.value is not None and self.prices.exact else None
        extra = (constraints.first_ops_at_once,) if self._at_once else ()
        model, v = build(
            self.prices,
            self.objective,
            times,
            self.bound // step,
            above,
            self._until(),
            fifo=self.fifo,
            extra=extra,
        )
        workers = max(1, self.workers - 1)
        # First to prove, if it is easy; then also neighbourhoods of the best schedule, which one worker takes in turns.
        taking_turns = self._slice > FIRST_SLICE or (self.deterministic and workers > 1)
        solver = self._solver("seek", workers, self._slice, taking_turns)
        self._slice *= 2
        return Job("seek", model, v, solver, above, self._news)

    def _prove(self) -> Job | None:
        """A job that asks for a schedule that ends by a target."""
        if self.value is None or not self._proves or self._left["prove"] <= 0:
            return None
        step = self.prices.step
        target = self._targets.next(self.bound // step, -(-self.value // step))
        if target is None:
            return None
        if self._decision is None:
            above = -(-self.value // step) if self.prices.exact else None
            model, v = build(self.prices, self.objective, None, 0, above, self._until(), fifo=self.fifo, minimise=False)
            self._decision = model, v
        model, v = self._decision
        domain = model.proto.variables[v.objective.index].domain
        domain.clear()
        domain.extend([self.bound // step, target])
        solver = self._solver("prove", 1, self._targets.effort, False)
        # use_dynamic_precedence_in_disjunctive halves what a proof needs, but OR-tools 9.15 aborts the whole process in
        # some: "We currently do not support adding conflicting constraint at positive level".
        return Job("prove", model, v, solver, target, self._news)

    def _until(self) -> float:
        """Moment by which a model must be built: the search after it gets at least as much time."""
        now = time.monotonic()
        return now + (self._deadline - now) / 2

    def _solver(self, purpose: Purpose, workers: int, effort: float, taking_turns: bool) -> cp_model.CpSolver:
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.num_workers, parameters.random_seed, parameters.interleave_search = workers, self.seed, taking_turns
        # Ctrl-C is the caller's: the library's own handler aborts the process when another thread gets the signal.
        parameters.catch_sigint_signal = False
        # Loading the hint and starting to search matter more than a presolve that takes the time limit.
        parameters.cp_model_probing_level, parameters.linearization_level, parameters.symmetry_level = 0, 0, 0
        parameters.max_time_in_seconds = min(max(0.0, self._deadline - time.monotonic()), 1e9)
        parameters.max_deterministic_time = min(effort, self._left[purpose])
        return solver

    # What they find

    def _look(self, job: Job) -> bool:
        """Take over what a job has found; whether it has ended."""
        ended = job.ended
        for values in job.solutions():
            self._take(values, job)
        if job.error is not None:
            raise job.error
        if job.purpose == "seek" and not self._at_once:
            self._raise(round(job.bound))
        if ended and job.status is not None:
            self._left[job.purpose] -= job.deterministic_time
            (self._conclude_seeking if job.purpose == "seek" else self._conclude_proof)(job)
        return ended

    def _conclude_seeking(self, job: Job) -> None:
        if job.status == cp_model.OPTIMAL:
            self._sought = True
        elif job.status == cp_model.INFEASIBLE:
            self._sought = True
            # With a bound from above, "infeasible" only says that nothing is better.
            self.infeasible = job.target is None and self.best is None and self._proves

    def _conclude_proof(self, job: Job) -> None:
        assert job.target is not None
        if job.status == cp_model.INFEASIBLE:
            self._raise(job.target + 1)
        elif job.status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            self._targets.reached(job.target)
        else:
            self._targets.too_hard(job.target)

    def _take(self, values: dict[int, int], job: Job) -> None:
        timeline = timeline_of(self.problem, schedule_of(job.v, lambda variable: values[variable.index]))
        if timeline is None or (self.value is not None and timeline.value(self.objective) >= self.value):
            return
        self.best, self.value = timeline.schedule, timeline.value(self.objective)
        if job.purpose == "seek" and not self._at_once:
            self._raise(round(job.bound))
        if self._report is not None:
            self._report(timeline.schedule, self.bound)

    def _raise(self, bound: int) -> None:
        """Take over a bound in steps, where the model leaves no better schedule out."""
        if not self._proves:
            return
        proven = bound * self.prices.step
        proven = proven if self.value is None else min(proven, self.value)
        if proven > self.bound:
            self.bound = proven
            if self._tell is not None:
                self._tell(proven)
