"""One run of a method: the parts in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ..bounds import infeasible
from ..core.errors import InputError
from ..core.granularity import NONE
from ..core.method import Method
from ..core.result import OVER_LIMIT, Result
from ..evaluate.limits import in_unit, over_limit
from ..evaluate.simulate import simulate
from ..evaluate.steady import stale
from ..evaluate.timeline import Timeline
from ..methods import METHODS
from .incumbent import Incumbent
from .parts import Parts
from .request import Clock, Progress, Request

ORDER_SHARE, ORDER_SHARE_SHORT, ORDER_SHORT_S = 0.15, 0.4, 1.0
"""The search for the best order alone, where more is to be chosen: its share of the time that is left, or a larger one
as long as that is short."""

ORDER_LEAST_S, ORDER_OPS_PER_SECOND = 0.3, 500
"""It needs no more than a second for so many ops, though something in any case."""


def run(request: Request) -> Result:
    """Run a method and put its answer together."""
    started = time.monotonic()
    reason = infeasible(request.problem, request.sizes, fused=request.granularity.fused)
    if reason:
        took = time.monotonic() - started
        return Result(request.method.name, request.objective, None, 0, took, reason=reason, infeasible=True)
    return _Run(request).result()


class _Run:
    def __init__(self, request: Request) -> None:
        self._request, self._name = request, request.method.name
        self._clock = Clock(request.time_limit, request.deterministic)
        self._reason, self._lack, self._interrupted = "", "", False
        self._at = Incumbent(request, self._clock)
        self._parts = Parts(request, self._clock, self._at)

    def result(self) -> Result:
        at, parts = self._at, self._parts
        try:
            if self._request.method.build is not None:
                self._only(self._request.method)
            else:
                self._search()
        except KeyboardInterrupt:
            self._reason, self._interrupted = "interrupted", True
        if at.best is None and not (self._reason or parts.reason):
            self._reason = "no schedule was found in the time, nor a proof that there is none"
        bound, proven_for = at.proven()
        return Result(
            self._name,
            self._request.objective,
            at.best,
            bound,
            self._clock.elapsed,
            found_by=at.found_by,
            proven_for=proven_for,
            reason="; ".join(text for text in (self._reason or parts.reason, self._chosen(proven_for)) if text),
            lack=self._lack,
            interrupted=self._interrupted,
        )

    def _chosen(self, proven_for: str) -> str:
        """How far the sizes were searched, where that leaves something open."""
        parts = self._parts
        if self._at.best is None or parts.choices is None or (proven_for == "problem" and self._at.met):
            return ""
        if parts.searched:
            return "micro-batch sizes were searched, not all tried: others may do better"
        return str(parts.choices) if parts.dividing else ""

    def _search(self) -> None:
        at, parts, name = self._at, self._parts, self._name
        parts.start()
        if name != "greedy":
            # The later ones are the better ones: where one meets the bound, the others need not be tried.
            for method in reversed(METHODS):
                if method.build is not None and method.updates == "step" and not at.met:
                    parts.heuristic(method)
        if name == "greedy" and parts.dividing:
            self._order_alone()
        if not at.met:
            parts.greedy()
        if at.best is None:
            parts.one_by_one()
        if at.best is None:
            return  # only where fused backwards, which are not to be chosen, would be needed
        if name in ("auto", "cpsat", "anneal", "ilp") and not at.met:
            self._order_alone()
        if name in ("auto", "cpsat", "anneal") and not at.met:
            if parts.dividing:
                parts.divide()
            else:
                parts.anneal()
        if name in ("auto", "cpsat") and not at.met:
            parts.tighten()
            parts.beam()
        if parts.alone and not at.met and self._request.iterations is None and not self._clock.deterministic:
            parts.anneal(1.0)
        if name in ("auto", "cpsat", "ilp") and not at.met:
            parts.prove()

    def _order_alone(self) -> None:
        """The same search with nothing to choose but the order: more freedom must not be a loss.

        It gets no more than it needs to be about done; where moves are counted, as many as the rest.
        """
        request, clock, parts = self._request, self._clock, self._parts
        if not parts.choosing:
            return
        limit = request.time_limit
        if request.iterations is None:
            left = limit if clock.deterministic else clock.left
            share = max(ORDER_SHARE * left, min(ORDER_SHORT_S, ORDER_SHARE_SHORT * left))
            limit = min(share, max(ORDER_LEAST_S, parts.ops / ORDER_OPS_PER_SECOND))
            if limit <= 0:
                return
        tell = request.on_progress
        found = run(
            replace(
                request,
                problem=NONE.restricted(request.problem),
                granularity=NONE,
                time_limit=limit,
                on_progress=None if tell is None else lambda progress: self._pass_on(progress, tell),
            )
        )
        if found.timeline is not None:
            self._at.take(found.schedule, found.found_by)
        if found.interrupted:
            raise KeyboardInterrupt

    def _pass_on(self, progress: Progress, tell: Callable[[Progress], None]) -> None:
        """Tell of progress without choices where it is progress, too; what is proven without them need not hold."""
        at = self._at
        if at.value is None or progress.value < at.value:
            at.told = progress.value
            gap = progress.value / at.floor - 1 if at.floor else None
            elapsed = self._clock.elapsed
            tell(Progress(progress.found_by, progress.value, at.floor, gap, elapsed))

    def _only(self, method: Method) -> None:
        """A heuristic by name: with its best division of the batch, or why its schedule does not fit."""
        missing: InputError | None = None
        for sizes in self._parts.divisions():
            try:
                schedule = method.schedule(self._request.problem, sizes)
            except InputError as error:
                missing = missing or error
                continue
            timeline = simulate(self._request.problem, schedule)
            found = over_limit(timeline)
            if not found:
                self._at.keep(timeline, method.name)
            elif not self._lack:
                self._lack = OVER_LIMIT
                self._reason = f"{method.name} does not keep the memory limit: {found[0].message}; {_need(timeline)}"
            if self._clock.late:
                break
        if self._at.best is not None:
            self._lack, self._reason = "", stale(self._at.best)
        elif missing is not None and not self._lack:
            raise missing


def _need(timeline: Timeline) -> str:
    peaks, memory = timeline.peak_memory, timeline.problem.memory
    rank, peak, limit = next(
        (rank, peak, limit)
        for rank, (peak, limit) in enumerate(zip(peaks, memory.limit, strict=True))
        if limit is not None and peak > limit
    )
    return f"it needs {in_unit(peak, memory.unit)} on rank {rank}, and the limit is {in_unit(limit, memory.unit)}"
