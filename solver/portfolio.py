"""The order in which the solvers are asked, and the best of what they answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from .bounds import infeasible, instance_bound, lower_bound
from .core.errors import InputError
from .core.ops import Kind, Op
from .core.problem import Problem
from .core.result import Objective, Result
from .core.schedule import Schedule
from .evaluate.check import check
from .evaluate.simulate import simulate
from .evaluate.timeline import Timeline
from .methods import METHODS, Method

LARGEST_MODEL = 2500
"""Ops beyond which `auto` leaves CP-SAT out: it would hardly load the model in the time."""

MOST_COUNTS = 16
"""Numbers of micro-batches that are tried at first, spread over all that are possible."""

GREEDY_SHARE = 0.4
"""Share of the time that is left which the greedy grid may take."""

Sizes = tuple[int, ...]


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
    """

    found_by: str
    value: int
    bound: int
    gap: float | None
    time_s: float


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
        self.found_by, self.reason = "", ""
        self.floor = 0
        self._bounds: dict[Sizes, int] = {}

    def result(self) -> Result:
        """Run the method and put its answer together."""
        reason = infeasible(self.problem, self.sizes)
        if reason:
            return Result(self.method.name, self.objective, None, 0, self._elapsed(), reason=reason, infeasible=True)
        self.floor = lower_bound(self.problem, self.objective)
        try:
            if self.method.build is not None:
                self._only(self.method)
            else:
                self._search()
        except KeyboardInterrupt:
            self.reason = "interrupted"
        bound, proven_for = self._proven()
        return Result(
            self.method.name,
            self.objective,
            self.best,
            bound,
            self._elapsed(),
            found_by=self.found_by,
            proven_for=proven_for,
            reason=self.reason,
        )

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
        """Sizes to try: near-uniform divisions, spread over all counts, then between the neighbours of the best."""
        if self.sizes is not None:
            yield self.sizes
            return
        counts = self.problem.uniform_counts()
        if len(self.problem.sizes) == 1 or not counts:
            yield self.problem.default_sizes()
            return
        last, seen = len(counts) - 1, set[int]()
        first = min(MOST_COUNTS, len(counts))
        for index in range(first):
            seen.add(round(index * last / max(first - 1, 1)))
        for index in sorted(seen):
            yield self.problem.uniform_sizes(counts[index])
        step = max(1, last // max(first - 1, 1))
        while step > 1 and self.best is not None and len(self.best.schedule.sizes) in counts:
            step = (step + 1) // 2
            centre = counts.index(len(self.best.schedule.sizes))
            for index in (centre - step, centre + step):
                if 0 <= index <= last and index not in seen:
                    seen.add(index)
                    yield self.problem.uniform_sizes(counts[index])

    def bound_of(self, sizes: Sizes) -> int:
        """Bound of the problem with these sizes."""
        if sizes not in self._bounds:
            self._bounds[sizes] = max(self.floor, instance_bound(self.problem.instance(sizes), self.objective))
        return self._bounds[sizes]

    def _promising(self) -> list[Sizes]:
        """Choices that have a schedule and may beat the best, the one with the least bound first."""
        choices = [sizes for sizes in dict.fromkeys(self._choices()) if not infeasible(self.problem, sizes)]
        if not choices:
            choices = [sizes for sizes in (self._smallest(),) if not infeasible(self.problem, sizes)]
        value = self.value
        return sorted((s for s in choices if value is None or self.bound_of(s) < value), key=self.bound_of)

    def _smallest(self) -> Sizes:
        """A division whose largest micro-batch is as small as can be."""
        for count in range(1, len(self.problem.sizes) + 1):
            try:
                return replace(self.problem, sizes=self.problem.sizes[:count]).default_sizes()
            except InputError:
                continue
        raise AssertionError("a problem's sizes add up to its batch")

    # The parts

    def _only(self, method: Method) -> None:
        """A heuristic by name: its best near-uniform count, or why its schedule does not fit."""
        assert method.build is not None
        complaint = ""
        for sizes in self._choices():
            schedule = method.build(self.problem, sizes)
            found = check(self.problem, schedule)
            if not found:
                self._take(schedule, method.name, checked=True)
            else:
                complaint = (
                    complaint
                    or f"{method.name} does not keep the memory limit: {found[0].message}; {self._need(schedule)}"
                )
            if self.late:
                break
        if self.best is None:
            self.reason = complaint

    def _need(self, schedule: Schedule) -> str:
        peaks = simulate(self.problem, schedule).peak_memory
        over = [
            (rank, peak)
            for rank, peak in enumerate(peaks)
            if (limit := self.problem.memory.limit[rank]) is not None and peak > limit
        ]
        rank, peak = over[0]
        return f"it needs {peak} B on rank {rank}, and the limit is {self.problem.memory.limit[rank]} B"

    def _heuristic(self, method: Method) -> None:
        assert method.build is not None
        for sizes in self._choices():
            if self.met or self.late:
                return
            try:
                schedule = method.build(self.problem, sizes)
            except InputError:
                # It does not exist for this placement, or for these sizes.
                continue
            if not check(self.problem, schedule):
                self._take(schedule, method.name, checked=True)

    def _greedy(self) -> None:
        from .heuristics.greedy import greedy

        choices = self._promising()
        until = time.monotonic() + GREEDY_SHARE * (self.deadline - time.monotonic())
        if self.method.name == "greedy":
            until = self.deadline
        for index, sizes in enumerate(choices):
            left = until - time.monotonic()
            if left <= 0 or self.met:
                return
            if self.value is not None and self.bound_of(sizes) >= self.value:
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
            if self.value is not None and self.bound_of(sizes) >= self.value:
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
            )
            self._bounds[sizes] = max(self._bounds[sizes], bound)
            if schedule is not None:
                self._take(schedule, "cpsat")

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

    def _take(self, schedule: Schedule, found_by: str, checked: bool = False) -> None:
        timeline = simulate(self.problem, schedule)
        value = timeline.value(self.objective)
        if self.value is not None and value >= self.value:
            return
        assert checked or not check(self.problem, schedule), "only valid schedules are taken"
        self.best, self.found_by = timeline, found_by
        if self.on_progress is not None:
            bound, _ = self._proven()
            gap = value / bound - 1 if bound else (None if value else 0.0)
            self.on_progress(Progress(found_by, value, bound, gap, self._elapsed()))

    def _proven(self) -> tuple[int, Literal["problem", "sizes"]]:
        """The bound, and what it holds for."""
        if self.best is None or self.value is None or self.value <= self.floor:
            return self.floor, "problem"
        bound = self.bound_of(self.best.schedule.sizes)
        if len(self.problem.sizes) == 1 or bound == self.floor:
            return bound, "problem"
        return bound, "sizes"
