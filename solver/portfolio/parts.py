"""The parts of a run, each until the bound is met or its share of the time is over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from ..core.errors import InputError
from ..core.method import Method
from ..core.schedule import Schedule
from ..evaluate.limits import over_limit
from ..evaluate.simulate import simulate
from ..greedy.policy import fusing_helps
from ..heuristics.one_by_one import one_by_one
from .choices import Choices
from .incumbent import Incumbent
from .proofs import by_cpsat, by_ilp, prove_every_division
from .request import Clock, Request, Sizes

LARGEST_MODEL = 2500
"""Ops beyond which `auto` leaves CP-SAT out: it would hardly load the model in the time. Half as many where the batch
may be divided in several ways, as that search makes more of the time."""

LOOK_SHARE, HEURISTICS_SHARE = 0.05, 0.2
"""Shares of the time for choosing divisions of the batch, and until heuristics leave further divisions out."""

GREEDY_SHARE = 0.25
"""Share of the time that is left which the greedy grid may take."""

OVERRUN_S = 10.0
"""Seconds that hand-made schedules may take beyond the limit, so that no answer is worse than one of them: on a busy
machine those of 32 ranks and 256 micro-batches need some, and mostly none is needed."""

ANNEAL_SHARE, ANNEAL_SHARE_ALONE, OPS_PER_SECOND = 0.5, 0.4, 100
"""The annealer may take this share of the time that is left. Where CP-SAT comes after it, it gets no more than a second
for so many ops, as small problems gain nothing from more; where not, it goes on after the bound of tight memory."""

TIGHT_SHARE, TIGHT_SHARE_ALONE, WIDE_GAP = 0.4, 0.5, 0.01
"""Share of the time that is left for the bound of tight memory; where CP-SAT does not come after it, from this gap
on."""

DIVIDE_SHARE, DIVIDE_SHARE_ALONE = 0.6, 0.85
"""Share of the time that is left for the search over divisions of the batch: where CP-SAT comes after it, or not."""

DIVISION_SHARE = 0.5
"""Share of the time that is left for CP-SAT with the sizes as variables, where the problem is small enough."""

BEAM_SHARE, BEAM_OPS_PER_SECOND = 0.6, 80
"""A beam search may take this share of the time that is left, and no more than a second for so many ops. In larger
problems than CP-SAT's the annealer does better."""

RIVALS, RIVAL_SHARE = 3, 0.1
"""Divisions of the batch beside the best one that are annealed, and the share of the annealer's time for each."""

MOVES_PER_SECOND = 50_000
"""Moves of the annealer that a second of the limit stands for, where work is counted and not time."""


class Parts:
    """What can be tried, and what is tried with: every part hands what it finds to the incumbent.

    Parameters
    ----------
    request, clock
        What is asked, and the time for it.
    at
        The best so far.

    Attributes
    ----------
    choices
        Divisions of the batch that were looked at; None before any part has run.
    searched
        Whether other divisions than those were, too.
    reason
        What a part left open.
    """

    def __init__(self, request: Request, clock: Clock, at: Incumbent) -> None:
        self.request, self.problem, self.name = request, request.problem, request.method.name
        self.clock, self.at = clock, at
        self.choices: Choices | None = None
        self.searched, self.reason = False, ""

    @property
    def choosing(self) -> bool:
        """Whether anything but the order is to be chosen."""
        problem, free = self.problem, self.request.granularity
        instance = problem.instance(self.request.sizes or problem.default_sizes())
        cut = any(len(units) > 1 for units in problem.weight_units)
        return (free.fused and fusing_helps(instance)) or (free.units and cut) or (free.sizes and self.dividing)

    @property
    def dividing(self) -> bool:
        """Whether there is more than one way to divide the batch, and none is given."""
        return self.request.sizes is None and len(self.problem.sizes) > 1

    def divisions(self) -> Iterator[Sizes]:
        """Divisions of the batch to try, then those between the neighbours of the best."""
        at = self.at
        if self.choices is None:
            until, granularity = self.clock.point(LOOK_SHARE), self.request.granularity
            self.choices = Choices(self.problem, self.request.sizes, at.bound_of, until, granularity)
            self.conclude()
        yield from tuple(self.choices.first)
        yield from self.choices.near(lambda: None if at.best is None else at.best.schedule.sizes)

    def conclude(self) -> None:
        """What is proven for each division holds for the problem, where all that may be chosen were looked at.

        With two directions the order of the sizes matters, too.
        """
        choices = self.choices
        if self.dividing and choices is not None and choices.complete and self.problem.placement.directions == 1:
            self.at.raise_floor(min((self.at.bound_of(sizes) for sizes in choices.first), default=0))

    def promising(self) -> list[Sizes]:
        """Choices that may beat the best: first those whose schedules so far, or else bounds, are the least."""
        return sorted((sizes for sizes in self.divisions() if not self.at.hopeless(sizes)), key=self.at.value_of)

    def heuristic(self, method: Method) -> None:
        """Its best schedule; the first division is tried when others would be late, so that no answer is worse."""
        at, until = self.at, self.clock.point(HEURISTICS_SHARE)
        for index, sizes in enumerate(self.divisions()):
            if at.met or (index and (self.clock.late or (at.best is not None and time.monotonic() > until))):
                return
            if at.hopeless(sizes) or (at.best is not None and self.clock.left < -OVERRUN_S):
                continue
            try:
                schedule = method.schedule(self.problem, sizes)
            except InputError:
                # It does not exist for this placement, or for these sizes or slices.
                continue
            self.offer(schedule, method.name)

    def start(self) -> None:
        """Take over the schedule that the caller has, if it keeps the limits and to what may be chosen."""
        start, free = self.request.start, self.request.granularity
        if start is None or (start.cut_share and not free.units):
            return
        if free.sizes or max(start.sizes) - min(start.sizes) <= 1:
            self.offer(start if free.units else _whole(start), "start")

    def offer(self, schedule: Schedule, name: str) -> None:
        """Take over a schedule by construction, if it keeps the limits."""
        timeline = simulate(self.problem, self.at.allowed(schedule))
        if not over_limit(timeline):
            self.at.keep(timeline, name)

    def greedy(self) -> None:
        from ..greedy import greedy

        at, choices = self.at, self.promising()
        until = self.clock.part(1.0 if self.name == "greedy" else GREEDY_SHARE / 2 if self.dividing else GREEDY_SHARE)
        for index, sizes in enumerate(choices):
            left = until - time.monotonic()
            if at.met or (left <= 0 and at.best is not None):
                return  # with nothing in hand one policy is tried, whatever the time
            if at.hopeless(sizes):
                continue
            schedule = greedy(
                self.problem,
                sizes,
                self.request.objective,
                time.monotonic() + max(left / 4, left / (len(choices) - index)),
                lambda found, _: at.take(found, "greedy"),
                at.bound_of(sizes),
                granularity=self.request.granularity,
            )
            if schedule is not None:
                at.take(schedule, "greedy")

    def one_by_one(self) -> None:
        """One micro-batch after the other, with the division that promises most."""
        for sizes in self.promising()[:1]:
            self.offer(one_by_one(self.problem, sizes), "one-by-one")

    def divide(self) -> None:
        """Other divisions of the batch, with the order and all else that may be chosen."""
        from ..sizes import search_sizes

        at, request = self.at, self.request
        assert at.best is not None, "one micro-batch after the other is always found"
        self.searched, moves = True, request.iterations
        if moves is None and request.deterministic:
            moves = round(MOVES_PER_SECOND * request.time_limit)
        until = self.clock.part(1.0 if self.name == "anneal" else DIVIDE_SHARE_ALONE if self.alone else DIVIDE_SHARE)
        for schedule in search_sizes(
            self.problem,
            request.objective,
            start=at.best.schedule,
            iterations=moves,
            deadline=None if until == float("inf") else until,
            seed=request.seed,
            workers=request.workers,
            granularity=request.granularity,
            target=at.floor,
            on_schedule=lambda found, _: at.take(found, "sizes"),
        ):
            at.take(schedule, "sizes")

    def anneal(self, share: float | None = None) -> None:
        """Orders, and pieces, of the best and of some rivals; by default for its usual share of the time."""
        share = self._anneal_share() if share is None else share
        assert self.at.best is not None, "one micro-batch after the other is always found"
        until, moves = self.clock.part(share), self.request.iterations
        if moves is None and self.request.deterministic:
            moves = round(MOVES_PER_SECOND * self.request.time_limit)
        others = [sizes for sizes in self.promising() if sizes != self.at.best.schedule.sizes]
        for sizes in others[:RIVALS]:
            now = time.monotonic()
            self._anneal_one(
                sizes,
                now + (until - now) * RIVAL_SHARE,
                None if moves is None else round(moves * RIVAL_SHARE),
            )
        self._anneal_one(self.at.best.schedule.sizes, until, moves)

    @property
    def ops(self) -> int:
        """Ops of the best schedule, were none fused and every weight gradient cut into its units."""
        return self._ops_of(self.at.best.schedule.microbatches) if self.at.best else 0

    def _ops_of(self, microbatches: int) -> int:
        return microbatches * sum(2 + len(units) for units in self.problem.weight_units)

    @property
    def alone(self) -> bool:
        """Whether CP-SAT is left out, for the problem's size."""
        return self.name == "auto" and self.ops > self._largest

    @property
    def _largest(self) -> int:
        return LARGEST_MODEL // 2 if self.dividing else LARGEST_MODEL

    def _anneal_share(self) -> float:
        if self.name == "anneal":
            return 1.0
        if self.alone:
            return ANNEAL_SHARE_ALONE if self.problem.limited else 1.0
        ops = self.ops
        return min(ANNEAL_SHARE, ops / OPS_PER_SECOND / max(self.clock.left, 1e-9))

    def _anneal_one(self, sizes: Sizes, until: float, moves: int | None) -> None:
        from ..anneal import anneal

        at, start = self.at, self.at.schedule_of(sizes)
        if start is None or at.met or at.hopeless(sizes):
            return
        better = anneal(
            self.problem,
            start,
            self.request.objective,
            iterations=moves,
            deadline=None if until == float("inf") else until,
            seed=self.request.seed,
            workers=self.request.workers,
            target=at.bound_of(sizes),
            on_schedule=lambda found, _: at.take(found, "anneal"),
            granularity=self.request.granularity,
        )
        at.take(better, "anneal")

    def tighten(self) -> None:
        """A better bound for the sizes of the best schedule, where memory is what keeps it from the bound so far."""
        from ..bounds.tight import tight_bound

        at = self.at
        if at.best is None or not self.problem.limited or self.request.deterministic:
            return
        sizes, objective = at.best.schedule.sizes, self.request.objective
        if self.alone and at.value is not None and at.value < (1 + WIDE_GAP) * at.bound_of(sizes):
            return
        deadline = self.clock.part(TIGHT_SHARE_ALONE if self.alone else TIGHT_SHARE)
        at.raise_bound(sizes, tight_bound(self.problem, sizes, objective, deadline=deadline, known=at.value))

    def beam(self) -> None:
        """A beam search for the sizes of the best schedule."""
        from ..beam import beam

        at, memory = self.at, self.problem.limited and self.request.objective == "makespan"
        if at.best is None or at.met or not memory or self.alone or self.request.deterministic:
            return
        deadline = min(self.clock.part(BEAM_SHARE), time.monotonic() + self.ops / BEAM_OPS_PER_SECOND)
        found = beam(self.problem, at.best.schedule.sizes, deadline=deadline, known=at.value)
        if found is not None:
            at.take(found, "beam")

    def prove(self) -> None:
        """CP-SAT or the ILP, which go on from the best schedules and can prove that there is no better one."""
        if self.dividing and self.request.granularity.sizes and self.name != "ilp" and not self.clock.late:
            prove_every_division(self.request, self.at, self.clock.part(DIVISION_SHARE), DIVISION_SHARE)
        at, best = self.at, self.at.best
        rest = [sizes for sizes in self.promising() if best is None or sizes != best.schedule.sizes]
        choices = ([] if best is None else [best.schedule.sizes]) + rest
        if self.clock.deterministic:  # time does not end it
            choices = choices[: 1 + RIVALS]
        for index, sizes in enumerate(choices):
            ops = self._ops_of(len(sizes))
            if at.met:
                return
            if at.hopeless(sizes):
                continue
            if self.name == "auto" and ops > self._largest:
                self.reason = (
                    f"CP-SAT was left out: {ops} ops, above {self._largest}; --method cpsat tries all the same"
                )
                continue
            if self.clock.late:
                return
            deadline = self.clock.part(1.0 if index == len(choices) - 1 else 0.5)
            if self.name == "ilp":
                by_ilp(self.request, at, sizes, deadline, self._note)
            else:
                by_cpsat(self.request, at, sizes, deadline, 1 / len(choices), self._note)
            self.conclude()

    def _note(self, text: str) -> None:
        self.reason = text


def _whole(schedule: Schedule) -> Schedule:
    """A schedule that cuts no W, without the ranges that name all units of one: the problem may have them joined."""
    rows = tuple(tuple(op if op.units is None else replace(op, units=None) for op in row) for row in schedule.ops)
    return replace(schedule, ops=rows)
