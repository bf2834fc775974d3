"""One run of a method: the parts in turn."""

from __future__ import annotations

import time

from ..bounds import infeasible
from ..core.errors import InputError
from ..core.result import OVER_LIMIT, Result
from ..evaluate.limits import in_unit, over_limit
from ..evaluate.simulate import simulate
from ..evaluate.timeline import Timeline
from ..methods import METHODS, Method
from .incumbent import Incumbent
from .parts import Parts
from .request import Clock, Request


def run(request: Request) -> Result:
    """Run a method and put its answer together."""
    started = time.monotonic()
    reason = infeasible(request.problem, request.sizes)
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
        return str(parts.choices) if parts.dividing else ""

    def _search(self) -> None:
        at, parts, name = self._at, self._parts, self._name
        if name != "greedy":
            # The later ones are the better ones: where one meets the bound, the others need not be tried.
            for method in reversed(METHODS):
                if method.build is not None and not at.met:
                    parts.heuristic(method)
        if not at.met:
            parts.greedy()
        if at.best is None:
            parts.one_by_one()
        if at.best is None:
            return  # only where fused backwards, which are not to be chosen, would be needed
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

    def _only(self, method: Method) -> None:
        """A heuristic by name: with its best division of the batch, or why its schedule does not fit."""
        assert method.build is not None
        missing: InputError | None = None
        for sizes in self._parts.divisions():
            try:
                schedule = method.build(self._request.problem, sizes)
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
            self._lack = self._reason = ""
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
