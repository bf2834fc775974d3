"""How a schedule does under noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from ..core.errors import InputError, NoAnswerError
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Schedule
from . import kernel
from .noise import EVALUATION, Noise
from .scenario import Planned, Scenario
from .simulate import simulate

NORMAL = 1.959964
"""A standard normal number is within this distance of 0 in 95 of 100 cases."""


@dataclass(frozen=True, slots=True)
class Noisy:
    """Objective values of one schedule in random runs.

    Parameters
    ----------
    values
        Makespan or span of each run, in ticks.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean, in ticks."""
        return float(np.mean(self.values))

    @property
    def p95(self) -> float:
        """95th percentile, in ticks."""
        return float(np.quantile(self.values, 0.95))

    @property
    def error(self) -> float:
        """Standard error of the mean, in ticks; 0 for a single run."""
        count = len(self.values)
        return float(np.std(self.values, ddof=1)) / math.sqrt(count) if count > 1 else 0.0

    @property
    def mean_interval(self) -> tuple[float, float]:
        """95 % confidence interval of the mean, by the normal approximation, in ticks."""
        return self.mean - NORMAL * self.error, self.mean + NORMAL * self.error

    @property
    def p95_interval(self) -> tuple[float, float]:
        """95 % confidence interval of the 95th percentile, in ticks: from one of the sorted values to another.

        How many values lie below the percentile is binomial, whatever the distribution. With few runs the upper end may
        be beyond the largest value; then it is that one. Source: Conover, Practical Nonparametric Statistics, 3.2.

        Examples
        --------
        >>> Noisy(tuple(range(1, 101))).p95_interval
        (91, 100)
        """
        count = len(self.values)
        spread = NORMAL * math.sqrt(count * 0.95 * 0.05)
        low, high = math.ceil(count * 0.95 - spread), math.ceil(count * 0.95 + spread)
        ordered = sorted(self.values)
        return ordered[max(low, 1) - 1], ordered[min(high, count) - 1]

    def gain(self, over: Noisy) -> tuple[float, float]:
        """How much shorter these runs are than another schedule's of the same scenarios, and its standard error.

        Both as shares of the other's mean. The runs are paired, so the error is much smaller than those of the means.

        Raises
        ------
        InputError
            When the numbers of runs differ.

        Examples
        --------
        >>> Noisy((99.0, 118.0)).gain(Noisy((100.0, 120.0)))[0] == 3 / 220
        True
        """
        if len(self.values) != len(over.values):
            raise InputError(f"noise: {len(self.values)} runs are compared with {len(over.values)}; run the same")
        less = Noisy(tuple(b - a for a, b in zip(self.values, over.values, strict=True)))
        return (less.mean / over.mean, less.error / over.mean) if over.mean else (0.0, 0.0)

    def row(self) -> dict[str, object]:
        """The figures as plain data, in ticks."""
        return {
            "mean": round(self.mean, 3),
            "p95": round(self.p95, 3),
            "error": round(self.error, 3),
            "mean_interval": [round(end, 3) for end in self.mean_interval],
            "p95_interval": [round(end, 3) for end in self.p95_interval],
            "runs": len(self.values),
        }


def noisy(
    problem: Problem,
    schedule: Schedule,
    noise: Noise,
    objective: Objective = "makespan",
    *,
    count: int = 60,
    stream: int = EVALUATION,
) -> Noisy:
    """Run a schedule's fixed order under noise.

    Parameters
    ----------
    problem, schedule
        A valid schedule of the problem.
    noise, stream
        The scenarios. By default they differ from those that a robust search sees.
    objective
        What is counted of each run.
    count
        Number of runs.

    Raises
    ------
    InputError
        When the schedule is for another shape, or `count` is below 1.
    NoAnswerError
        When the schedule cannot run.

    Examples
    --------
    >>> from adaptpipe.solver.heuristics.one_f_one_b import one_f_one_b
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 4}, "costs":
    ...     {"forward": 100, "backward_input": 100, "backward_weight": 100}})
    >>> schedule = one_f_one_b(problem)
    >>> runs = noisy(problem, schedule, Noise(sigma=0.1))
    >>> simulate(problem, schedule).makespan < runs.mean < runs.p95
    True
    """
    if count < 1:
        raise InputError(f"noise: {count} runs are too few; run at least 1")
    return Noisy(tuple(islice(noisy_values(problem, schedule, noise, objective, stream=stream), count)))


def noisy_values(
    problem: Problem, schedule: Schedule, noise: Noise, objective: Objective = "makespan", *, stream: int = EVALUATION
) -> Iterator[float]:
    """Values of one random run after the other, without end; see `noisy`.

    Examples
    --------
    >>> from adaptpipe.solver.heuristics.one_f_one_b import one_f_one_b
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 4}, "costs":
    ...     {"forward": 100, "backward_input": 100, "backward_weight": 100}})
    >>> values = noisy_values(problem, one_f_one_b(problem), Noise())
    >>> (next(values), next(values)) == noisy(problem, one_f_one_b(problem), Noise(), count=2).values
    True
    """
    simulate(problem, schedule)
    instance = problem.instance(schedule.sizes)
    planned = Planned.of(instance, schedule)
    for scenario in noise.scenarios(instance, stream):
        yield run_value(schedule, planned, scenario, objective)


def run_value(schedule: Schedule, planned: Planned, scenario: Scenario, objective: Objective) -> float:
    """Makespan or span of one run, in ticks.

    Parameters
    ----------
    planned
        What the schedule's ops take without noise.

    Raises
    ------
    NoAnswerError
        When the schedule cannot run.
    """
    (ticks, lags), offsets = scenario.times(planned), schedule.table.offsets
    start, done = np.zeros_like(ticks), np.zeros(len(offsets) - 1, dtype=np.int64)
    run = kernel.earliest(offsets, ticks, planned.before, lags, start, done)
    if run < len(ticks):
        raise NoAnswerError(f"only {run} of {len(ticks)} ops can run in the schedule's order")
    end = start + ticks
    if objective == "makespan":
        return float(end.max() - start.min()) / scenario.parts
    spans = [int(end[b - 1] - start[a]) for a, b in pairwise(offsets) if b > a]
    return max(spans) / scenario.parts
