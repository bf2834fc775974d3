"""What a plan's gain is worth when costs turn out otherwise: the costs that it was made for are never right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, get_args

import numpy as np

from ...core.errors import InputError, NoAnswerError
from ...evaluate.noisy import NORMAL, Noisy, run_value
from ...evaluate.scenario import Planned
from ...evaluate.timeline import Timeline
from ...floating import FloatingPlan, Runs
from ..plan import Plan, saved
from ..workload import Split, Workload
from .wrong_costs import SOURCES, Draw, Source, WrongCosts

Execution = Literal["fixed", "adaptive", "adaptive over fixed"]
"""How plan and base run: both in their own orders; both with weight gradients that float within the memory limits, as
this project's executor runs either; or the plan so, and the base in its order, as elsewhere."""

EXECUTIONS: Final[tuple[Execution, ...]] = get_args(Execution)

ERRORS: Final = (0.0, 0.1, 0.2)
"""Relative errors of a usual look."""


class Simulated(Protocol):
    """A split with its timeline: a `Plan`, or one of today's schedules."""

    @property
    def split(self) -> Split:
        """Layers of each stage."""

    @property
    def timeline(self) -> Timeline:
        """The schedule, simulated on the problem of that split."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How much shorter a plan's step is than that of the best base, in the same draws of one source of error.

    Parameters
    ----------
    source, error
        What the error belongs to, and its relative size.
    execution
        Of the two.
    plan, base
        Makespans, in ticks.
    rival
        Which of the bases it is: the one with the least mean here.
    """

    source: Source
    error: float
    execution: Execution
    plan: Noisy
    base: Noisy
    rival: int = 0

    @property
    def values(self) -> tuple[float, ...]:
        """`1 - plan / base` of each draw."""
        return tuple(saved(ours, theirs) for ours, theirs in zip(self.plan.values, self.base.values, strict=True))

    @property
    def mean(self) -> float:
        """Mean over the draws."""
        return float(np.mean(self.values))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean; 0 for a single draw."""
        count = len(self.values)
        return float(np.std(self.values, ddof=1)) / math.sqrt(count) if count > 1 else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the mean, by the normal approximation."""
        half = NORMAL * self.standard_error
        return self.mean - half, self.mean + half

    @property
    def spread(self) -> tuple[float, float]:
        """5th and 95th percentile of the draws."""
        low, high = np.quantile(self.values, [0.05, 0.95])
        return float(low), float(high)

    def row(self) -> dict[str, object]:
        """The figures as plain data; shares."""
        return {
            "source": self.source,
            "error": self.error,
            "execution": self.execution,
            "gain": round(self.mean, 6),
            "interval": [round(end, 6) for end in self.interval],
            "spread": [round(end, 6) for end in self.spread],
            "draws": len(self.values),
        }


@dataclass(frozen=True, slots=True)
class Robustness:
    """A plan's gains over the best of some bases under wrong costs.

    Parameters
    ----------
    gains
        One for each source of error, size and execution.
    reason
        Why there is no adaptive execution, "" where there is.
    """

    gains: tuple[Gain, ...]
    reason: str = ""

    def gain(self, error: float, source: Source = "all", execution: Execution = "adaptive") -> Gain:
        """The gain of a source and a size of error that were looked at.

        Raises
        ------
        InputError
            When they were not.
        """
        for each in self.gains:
            if (each.error, each.source, each.execution) == (error, source, execution):
                return each
        raise InputError(
            f"robustness: nothing is known of {execution} execution under an error of {error:g} by {source}; "
            f"{self.reason or 'look at it first'}"
        )

    def outcome(self, error: float = 0.1) -> Gain:
        """The gain under an error of all sources that a recommendation rests on.

        Plan and base both run adaptively, where they can: the base could be run by the same executor.

        Raises
        ------
        InputError
            When that error was not looked at.
        """
        return self.gain(error, "all", "fixed" if self.reason else "adaptive")

    def survives(self, error: float = 0.1) -> bool:
        """Whether that gain lasts: the lower end of its mean's interval is above 0."""
        return self.outcome(error).interval[0] > 0


def robustness(
    plan: Plan,
    bases: Sequence[Simulated],
    errors: Sequence[float] = ERRORS,
    draws: int = 40,
    seed: int = 0,
    sources: Sequence[Source] = SOURCES,
) -> Robustness:
    """Run a plan and some bases under the same wrong costs, in their own orders and adaptively.

    Partition, placement and order stay as they were planned. The memory limits hold: the fixed order's peak does not
    depend on times, and adaptive execution keeps them by itself.

    Parameters
    ----------
    plan
        The plan.
    bases
        What it is compared with, of the same workload: some of today's schedules, or plans. For each source and size of
        error, and each execution, the one with the least mean counts.
    errors
        Relative errors, each within 0 and 1; 0 takes one draw.
    draws
        How many for each error.
    seed
        Of the draws. The same draw scales with the error.
    sources
        What errors belong to.

    Raises
    ------
    InputError
        When an error or the number of draws is out of range, or there is no base.
    """
    _check(errors, draws)
    if not bases:
        raise InputError("robustness: nothing to compare the plan with; give one base at least")
    ours, *theirs = (_Runner(plan.workload, each) for each in (plan, *bases))
    numbers = [Draw.of(plan.workload, seed, number) for number in range(draws)]
    reason = next((each.reason for each in (ours, *theirs) if each.reason), "")
    found = []
    for error in errors:
        for source in sources:
            (fixed, floating), *rows = (each.values(numbers, source, error) for each in (ours, *theirs))
            as_planned, afloat = zip(*rows, strict=True)
            found.append(_gain(source, error, "fixed", fixed, as_planned))
            if not reason:
                found.append(_gain(source, error, "adaptive", floating, afloat))
                found.append(_gain(source, error, "adaptive over fixed", floating, as_planned))
    return Robustness(tuple(found), reason)


def _gain(source: Source, error: float, execution: Execution, plan: Noisy, bases: Sequence[Noisy]) -> Gain:
    """Over the base with the least mean."""
    rival = min(range(len(bases)), key=lambda number: bases[number].mean)
    return Gain(source, error, execution, plan, bases[rival], rival)


def ranked(
    plans: Sequence[Plan], error: float = 0.1, draws: int = 40, seed: int = 0, source: Source = "all"
) -> tuple[tuple[Plan, Noisy], ...]:
    """Plans of one workload with their makespans under the same wrong costs, the least mean first.

    Each runs adaptively where it can.

    Raises
    ------
    InputError
        When the error or the number of draws is out of range.
    """
    _check([error], draws)
    found = []
    for plan in plans:
        runner = _Runner(plan.workload, plan)
        numbers = [Draw.of(plan.workload, seed, number) for number in range(draws)]
        fixed, floating = runner.values(numbers, source, error)
        found.append((plan, fixed if runner.reason else floating))
    return tuple(sorted(found, key=lambda pair: pair[1].mean))


def _check(errors: Sequence[float], draws: int) -> None:
    for error in errors:
        if not 0 <= error <= 1:
            raise InputError(f"robustness: an error of {error:g} is not within 0..1; 0.1 is usual")
    if draws < 1:
        raise InputError(f"robustness: {draws} draws are too few; take at least 1")


class _Runner:
    """Runs of one schedule; what they share is worked out once."""

    def __init__(self, workload: Workload, simulated: Simulated) -> None:
        self.schedule = simulated.timeline.schedule
        problem = simulated.timeline.problem
        self._costs = WrongCosts(workload, simulated.split, problem, self.schedule)
        self._planned = Planned.of(problem.instance(self.schedule.sizes), self.schedule)
        self._runs: Runs | None = None
        self.reason = ""
        try:
            self._runs = Runs(FloatingPlan.of(problem, self.schedule))
        except NoAnswerError as error:
            self.reason = str(error)

    def values(self, draws: Sequence[Draw], source: Source, error: float) -> tuple[Noisy, Noisy]:
        """Makespans of the draws, in ticks, in the fixed order and adaptively: none where that was refused.

        Without an error all draws are the same, and one is made.
        """
        fixed: list[float] = []
        floating: list[float] = []
        for draw in draws if error else draws[:1]:
            scenario = self._costs.scenario(draw, source, error)
            fixed.append(run_value(self.schedule, self._planned, scenario, "makespan"))
            if self._runs is not None:
                floating.append(self._runs.value(scenario))
        return Noisy(tuple(fixed)), Noisy(tuple(floating))
