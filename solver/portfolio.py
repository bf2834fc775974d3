"""The order in which the solvers are asked, and the best of what they answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from .bounds import infeasible, instance_bound, lower_bound
from .choices import Choices, Sizes
from .core.errors import InputError
from .core.ops import Kind, Op
from .core.problem import Problem
from .core.result import OVER_LIMIT, Objective, Result
from .core.schedule import Schedule
from .evaluate.limits import in_unit, over_limit
from .evaluate.simulate import simulate
from .evaluate.timeline import Timeline
from .methods import METHODS, Method

LARGEST_MODEL = 2500
"""Ops beyond which `auto` leaves CP-SAT out: it would hardly load the model in the time."""

LOOK_SHARE, HEURISTICS_SHARE = 0.05, 0.2
"""Shares of the time for choosing divisions of the batch, and until heuristics leave further divisions out."""

GREEDY_SHARE = 0.4
"""Share of the time that is left which the greedy grid may take."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A better schedule was found.

    Parameters
    ----------
    found_by
        By which part.
    value, bound
        Objective value and the bound known then, in ticks.
    gap
        `value / bound - 1`; None where the bound is 0 and the value is not.
    time_s
        Seconds since the start.
    proven_for
        What `bound` holds for, as in `Result`.
    """

    found_by: str
    value: int
    bound: int
    gap: float | None
    time_s: float
    proven_for: Literal["problem", "sizes"] = "problem"


class Portfolio:
    """One run of a method."""

    def __init__(
        self,
        problem: Problem,
        method: Method,
        objective: Objective,
        time_limit: float,
        workers: int,
        seed: int,
        on_progress: Callable[[Progress], None] | None,
        sizes: Sizes | None,
    ) -> None:
        self.problem, self.method, self.objective, self.sizes = problem, method, objective, sizes
        self.workers, self.seed, self.on_progress = workers, seed, on_progress
        self.started = time.monotonic()
        self.deadline = self.started + time_limit
        self.best: Timeline | None = None
        self.found_by, self.reason, self.lack = "", "", ""
        self.floor = 0
        self.choices: Choices | None = None
        self._bounds: dict[Sizes, int] = {}
        self._values: dict[Sizes, int] = {}

    def result(self) -> Result:
        """Run the method and put its answer together."""
        reason = infeasible(self.problem, self.sizes)
        if reason:
            return Result(self.method.name, self.objective, None, 0, self._elapsed(), reason=reason, infeasible=True)
        self.floor = lower_bound(self.problem, self.objective)
        if len(self.problem.sizes) == 1:
            self._bounds[self.problem.default_sizes()] = self.floor  # the same bound
        try:
            if self.method.build is not None:
                self._only(self.method)
            else:
                self._search()
        except KeyboardInterrupt:
            self.reason = "interrupted"
        if self.best is None and not self.reason:
            self.reason = "no schedule was found in the time, nor a proof that there is none"
        bound, proven_for = self._proven()
        return Result(
            self.method.name,
            self.objective,
            self.best,
            bound,
            self._elapsed(),
            found_by=self.found_by,
            proven_for=proven_for,
            reason="; ".join(text for text in (self.reason, self._chosen(proven_for)) if text),
            lack=self.lack,
        )

    def _chosen(self, proven_for: str) -> str:
        """How far the sizes were searched, where that leaves something open."""
        if self.best is None or self.choices is None or (proven_for == "problem" and self.met):
            return ""
        return str(self.choices) if self.sizes is None and len(self.problem.sizes) > 1 else ""

    def _search(self) -> None:
        name = self.method.name
        if name != "greedy":
            # The later ones are the better ones: where one meets the bound, the others need not be tried.
            for method in reversed(METHODS):
                if method.build is not None and not self.met:
                    self._heuristic(method)
        if not self.met:
            self._greedy()
        if self.best is None:
            self._one_by_one()
        if name != "greedy" and not self.met:
            self._cpsat()

    # What there is to choose from

    def _choices(self) -> Iterator[Sizes]:
        """Divisions of the batch to try, then those between the neighbours of the best."""
        if self.choices is None:
            until = self.started + LOOK_SHARE * (self.deadline - self.started)
            self.choices = Choices(self.problem, self.sizes, self.bound_of, until)
        yield from tuple(self.choices.first)
        yield from self.choices.near(lambda: None if self.best is None else self.best.schedule.sizes)

    def bound_of(self, sizes: Sizes) -> int:
        """Bound of the problem with these sizes."""
        if sizes not in self._bounds:
            self._bounds[sizes] = max(self.floor, instance_bound(self.problem.instance(sizes), self.objective))
        return self._bounds[sizes]

    def _hopeless(self, sizes: Sizes) -> bool:
        """Whether a schedule with these sizes cannot be better than the best."""
        return self.value is not None and self.bound_of(sizes) >= self.value

    def _promising(self) -> list[Sizes]:
        """Choices that may beat the best: first those whose schedules so far, or else bounds, are the least."""
        choices = [sizes for sizes in self._choices() if not self._hopeless(sizes)]
        return sorted(choices, key=lambda sizes: self._values.get(sizes, self.bound_of(sizes)))

    # The parts

    def _only(self, method: Method) -> None:
        """A heuristic by name: with its best division of the batch, or why its schedule does not fit."""
        assert method.build is not None
        missing: InputError | None = None
        for sizes in self._choices():
            try:
                schedule = method.build(self.problem, sizes)
            except InputError as error:
                missing = missing or error
                continue
            timeline = simulate(self.problem, schedule)
            found = over_limit(timeline)
            if not found:
                self._keep(timeline, method.name)
            elif not self.lack:
                self.lack = OVER_LIMIT
                self.reason = (
                    f"{method.name} does not keep the memory limit: {found[0].message}; {self._need(timeline)}"
                )
            if self.late:
                break
        if self.best is not None:
            self.lack = self.reason = ""
        elif missing is not None and not self.lack:
            raise missing

    def _need(self, timeline: Timeline) -> str:
        peaks, memory = timeline.peak_memory, self.problem.memory
        rank, peak, limit = next(
            (rank, peak, limit)
            for rank, (peak, limit) in enumerate(zip(peaks, memory.limit, strict=True))
            if limit is not None and peak > limit
        )
        return f"it needs {in_unit(peak, memory.unit)} on rank {rank}, and the limit is {in_unit(limit, memory.unit)}"

    def _heuristic(self, method: Method) -> None:
        """Its best schedule; the first division is tried whatever the time, so that no answer is worse than it."""
        assert method.build is not None
        until = self.started + HEURISTICS_SHARE * (self.deadline - self.started)
        for index, sizes in enumerate(self._choices()):
            if self.met or (index and (self.late or (self.best is not None and time.monotonic() > until))):
                return
            if self._hopeless(sizes):
                continue
            try:
                schedule = method.build(self.problem, sizes)
            except InputError:
                # It does not exist for this placement, or for these sizes.
                continue
            timeline = simulate(self.problem, schedule)
            if not over_limit(timeline):
                self._keep(timeline, method.name)

    def _greedy(self) -> None:
        from .heuristics.greedy import greedy

        choices = self._promising()
        until = time.monotonic() + GREEDY_SHARE * (self.deadline - time.monotonic())
        if self.method.name == "greedy":
            until = self.deadline
        for index, sizes in enumerate(choices):
            left = until - time.monotonic()
            if self.met or (left <= 0 and self.best is not None):
                return  # with nothing in hand one policy is tried, whatever the time
            if self._hopeless(sizes):
                continue
            schedule = greedy(
                self.problem,
                sizes,
                self.objective,
                time.monotonic() + max(left / 4, left / (len(choices) - index)),
                lambda found, _: self._take(found, "greedy"),
                self.bound_of(sizes),
            )
            if schedule is not None:
                self._take(schedule, "greedy")

    def _one_by_one(self) -> None:
        """One micro-batch after the other, with fused backwards: it needs the least memory that any schedule needs."""
        for sizes in self._promising()[:1]:
            count, placement = len(sizes), self.problem.placement
            rows: list[list[Op]] = [[] for _ in range(placement.ranks)]
            for j in range(count):
                for s in range(placement.stage_count):
                    rows[placement.rank_of(s, j, count)].append(Op(s, Kind.F, j))
                for s in reversed(range(placement.stage_count)):
                    rows[placement.rank_of(s, j, count)].append(Op(s, Kind.B, j))
            self._take(Schedule(placement, sizes, tuple(tuple(row) for row in rows)), "one-by-one")

    def _cpsat(self) -> None:
        from .cpsat import solve_cpsat

        best = self.best
        rest = [s for s in self._promising() if best is None or s != best.schedule.sizes]
        choices = ([] if best is None else [best.schedule.sizes]) + rest
        for index, sizes in enumerate(choices):
            left, ops = self.deadline - time.monotonic(), 3 * self.problem.stages * len(sizes)
            if left <= 0 or self.met:
                return
            if self._hopeless(sizes):
                continue
            if self.method.name == "auto" and ops > LARGEST_MODEL:
                self.reason = (
                    f"CP-SAT was left out: {ops} ops, above {LARGEST_MODEL}; --method cpsat tries all the same"
                )
                continue
            share = left if index == len(choices) - 1 else left / 2
            hint = self.best.schedule if self.best is not None and self.best.schedule.sizes == sizes else None
            schedule, bound, _ = solve_cpsat(
                self.problem,
                self.objective,
                hint,
                self.bound_of(sizes),
                time.monotonic() + share,
                self.workers,
                self.seed,
                lambda found, _: self._take(found, "cpsat"),
                sizes=sizes,
                on_note=self._note,
                on_bound=partial(self._raise, sizes),
            )
            self._raise(sizes, bound)
            if schedule is not None:
                self._take(schedule, "cpsat")

    def _raise(self, sizes: Sizes, bound: int) -> None:
        self._bounds[sizes] = max(self.bound_of(sizes), bound)

    def _note(self, text: str) -> None:
        self.reason = f"CP-SAT was left out: {text}"

    # The best so far

    @property
    def value(self) -> int | None:
        """Objective value of the best schedule."""
        return None if self.best is None else self.best.value(self.objective)

    @property
    def met(self) -> bool:
        """Whether no schedule can be better."""
        if self.best is None or self.value is None:
            return False
        fixed = self.sizes is not None or len(self.problem.sizes) == 1
        return self.value <= (self.bound_of(self.best.schedule.sizes) if fixed else self.floor)

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.deadline

    def _elapsed(self) -> float:
        return time.monotonic() - self.started

    def _take(self, schedule: Schedule, found_by: str) -> None:
        self._keep(simulate(self.problem, schedule), found_by)

    def _keep(self, timeline: Timeline, found_by: str) -> None:
        value, sizes = timeline.value(self.objective), timeline.schedule.sizes
        self._values[sizes] = min(value, self._values.get(sizes, value))
        if self.value is not None and value >= self.value:
            return
        assert not over_limit(timeline), "only schedules within the limits are kept; all else simulate has checked"
        self.best, self.found_by = timeline, found_by
        if self.on_progress is not None:
            bound, proven_for = self._proven()
            gap = value / bound - 1 if bound else (None if value else 0.0)
            self.on_progress(Progress(found_by, value, bound, gap, self._elapsed(), proven_for))

    def _proven(self) -> tuple[int, Literal["problem", "sizes"]]:
        """The bound, and what it holds for."""
        if self.best is None or self.value is None or self.value <= self.floor:
            return self.floor, "problem"
        bound = self.bound_of(self.best.schedule.sizes)
        if len(self.problem.sizes) == 1 or bound == self.floor:
            return bound, "problem"
        return bound, "sizes"
