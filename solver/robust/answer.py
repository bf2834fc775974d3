"""From the best schedule as planned to one that is short under noise, with the figures of both."""

from __future__ import annotations

import time
from dataclasses import replace

from ..core.problem import Problem
from ..core.result import Figures, Objective, Result, Robustness
from ..core.schedule import Schedule
from ..evaluate.noise import Noise
from ..evaluate.noisy import noisy
from ..evaluate.simulate import simulate
from .search import robust

RUNS = 60
"""Random runs that the figures are of."""


def hardened(
    problem: Problem, plain: Result, noise: Noise, *, iterations: int | None, deadline: float | None, seed: int
) -> Result:
    """The answer with a robust schedule in the place of the best one as planned.

    Parameters
    ----------
    problem, plain
        The problem, and its answer without noise; one without a schedule is returned as it is.
    noise
        Model of the random runs.
    iterations, deadline, seed
        As for `robust`.
    """
    if plain.timeline is None or (deadline is not None and time.monotonic() >= deadline):
        return plain
    started, reason = time.monotonic(), plain.reason
    try:
        schedule = robust(
            problem,
            plain.schedule,
            plain.objective,
            noise,
            iterations=iterations,
            deadline=deadline,
            seed=seed,
        )
    except KeyboardInterrupt:
        schedule, reason = plain.schedule, "interrupted"
    before, after = (_figures(problem, each, noise, plain.objective) for each in (plain.schedule, schedule))
    kept = after.mean >= before.mean
    return replace(
        plain,
        timeline=plain.timeline if kept else simulate(problem, schedule),
        time_s=plain.time_s + time.monotonic() - started,
        found_by=plain.found_by if kept else "robust",
        reason=reason,
        robustness=Robustness(noise, RUNS, before, before if kept else after),
    )


def _figures(problem: Problem, schedule: Schedule, noise: Noise, objective: Objective) -> Figures:
    found = noisy(problem, schedule, noise, objective, count=RUNS)
    return Figures(simulate(problem, schedule).value(objective), found.mean, found.error, found.p95)
