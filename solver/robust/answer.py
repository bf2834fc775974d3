"""From the best schedule as planned to one that is short under noise, with the figures of both."""

from __future__ import annotations

import time
from dataclasses import replace

from ..core.problem import Problem
from ..core.result import Figures, Result, Robustness
from ..core.schedule import Schedule
from ..evaluate.check import check
from ..evaluate.noise import Noise
from ..evaluate.noisy import Noisy, noisy_values
from ..evaluate.simulate import simulate
from .search import robust

RUNS, FEWEST_RUNS = 60, 10
"""Random runs that the figures are of, and the fewest that figures are given of."""

ENDING = 6
"""The end of a search checks what it found: that takes as long as so many runs."""

MARGIN_S = 0.05
"""Seconds that a search may end late before the figures are of fewer runs."""

FIGURES_SHARE = 0.1
"""Share of the time that is left which the runs of either schedule may take."""

NO_FIGURES = "the time was too short to try it under noise"
NO_SEARCH = "the time was too short to search under noise"
"""Why an answer is the best schedule as planned."""


def hardened(
    problem: Problem, plain: Result, noise: Noise, *, iterations: int | None, deadline: float | None, seed: int
) -> Result:
    """The answer with a robust schedule in the place of the best one as planned.

    The search decides, by runs of its own, whether there is a better one. The figures come from further runs, and
    change nothing: they may say that nothing was gained.

    Parameters
    ----------
    problem, plain
        The problem, and its answer without noise; one without a schedule is returned as it is.
    noise
        Model of the random runs.
    iterations, seed
        As for `robust`.
    deadline
        Value of `time.monotonic()` at which all is over, figures included. Where little time is left the figures are of
        fewer runs, or the best schedule as planned stays, and `reason` says so.

    Returns
    -------
    Result
        After Ctrl-C with the best schedule so far, "interrupted" as reason, and the figures as far as they go.
    """
    if plain.timeline is None:
        return plain
    started, work = time.monotonic(), _Hardening(problem, plain, noise)
    try:
        work.run(iterations, deadline, seed)
    except KeyboardInterrupt:
        work.interrupt()
    changed = work.schedule != plain.schedule
    assert not changed or not check(problem, work.schedule), "a search keeps a schedule valid"
    return replace(
        plain,
        timeline=simulate(problem, work.schedule) if changed else plain.timeline,
        time_s=plain.time_s + time.monotonic() - started,
        found_by="robust" if changed else plain.found_by,
        reason="; ".join(text for text in (work.reason, plain.reason) if text),
        robustness=work.robustness(),
        interrupted=plain.interrupted or work.interrupted,
    )


class _Hardening:
    """What is known so far: whenever Ctrl-C comes, this is the answer."""

    def __init__(self, problem: Problem, plain: Result, noise: Noise) -> None:
        self.problem, self.noise, self.objective = problem, noise, plain.objective
        self.plain = self.schedule = plain.schedule
        self.reason, self.interrupted = "", False
        self.before: list[float] = []
        self.after: list[float] = []

    def interrupt(self) -> None:
        """Note that Ctrl-C came."""
        self.reason, self.interrupted = "interrupted", True

    def run(self, iterations: int | None, deadline: float | None, seed: int) -> None:
        """Do it all, but for what the time is too short for."""
        began = time.monotonic()
        until = None if deadline is None else began + FIGURES_SHARE * (deadline - began)
        self._try(self.plain, self.before, RUNS, until, 1)
        if len(self.before) < FEWEST_RUNS:
            self.reason = NO_FIGURES
            return
        if deadline is not None:
            each = (time.monotonic() - began) / len(self.before)
            until = deadline - each * (len(self.before) + ENDING) - MARGIN_S
        try:
            self._search(iterations, until, seed)
        except KeyboardInterrupt:
            self.interrupt()  # what it found still deserves its figures; the next Ctrl-C ends them
        if self.schedule is not self.plain:
            self._try(self.schedule, self.after, len(self.before), deadline, FEWEST_RUNS)

    def _search(self, iterations: int | None, deadline: float | None, seed: int) -> None:
        self.reason = NO_SEARCH

        def keep(schedule: Schedule, _: float) -> None:
            self.reason, self.schedule = "", schedule

        robust(
            self.problem, self.plain, self.objective, self.noise,
            iterations=iterations, deadline=deadline, seed=seed, on_schedule=keep,
        )  # fmt: skip

    def _try(self, schedule: Schedule, values: list[float], count: int, until: float | None, fewest: int) -> None:
        """Run a schedule so many times; fewer, but not below `fewest`, where the time is over."""
        for value in noisy_values(self.problem, schedule, self.noise, self.objective):
            values.append(value)
            done = len(values)
            if done == count or (until is not None and done >= fewest and time.monotonic() >= until):
                return

    def robustness(self) -> Robustness | None:
        """The figures of both, of as many runs as either had."""
        pairs = [(self.plain, self.before), (self.schedule, self.before if self.schedule is self.plain else self.after)]
        runs = min(len(values) for _, values in pairs)
        if runs < FEWEST_RUNS:
            return None
        plain, hard = (self._figures(schedule, Noisy(tuple(values[:runs]))) for schedule, values in pairs)
        return Robustness(self.noise, runs, plain, hard)

    def _figures(self, schedule: Schedule, found: Noisy) -> Figures:
        return Figures(simulate(self.problem, schedule).value(self.objective), found.mean, found.error, found.p95)
