"""What the sizes that a schedule's pieces were given are worth, and which prices make it so."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_high

from adaptpipe.solver import Affine, Granularity, Problem, Result
from adaptpipe.solver.core.granularity import ALL, NONE
from adaptpipe.solver.core.problem import Cost, price
from adaptpipe.solver.solving import solve

from .common import sizes_text

KINDS = {
    "fused backwards": Granularity(fused=True, units=False, sizes=False),
    "W in ranges": Granularity(fused=False, units=True, sizes=False),
    "sizes": Granularity(fused=False, units=False, sizes=True),
}
"""Each kind of choice by itself."""


@dataclass(frozen=True, slots=True)
class Worth:
    """Predicted objective values, in ticks.

    Parameters
    ----------
    order
        Of the best schedule whose order alone was chosen: whole micro-batches of near-equal size, every backward split.
    each
        With one kind of choice beside the order: (name, value).
    chosen
        Of the schedule itself.
    seconds
        What each search but the schedule's own was given.
    """

    order: int
    each: tuple[tuple[str, int], ...]
    chosen: int
    seconds: float


def worth(problem: Problem, result: Result, time_limit: float) -> Worth | None:
    """Solve again with fewer choices; None where the order alone gives no schedule within the limits."""
    kinds = _choices(problem)
    seconds = time_limit / (len(kinds) + 1)

    def value(granularity: Granularity) -> int | None:
        return solve(problem, objective=result.objective, time_limit=seconds, granularity=granularity).value

    order, chosen = value(NONE), result.value
    if order is None or chosen is None:
        return None
    # With one kind only, choosing it is what the schedule did.
    only = len(kinds) == 1 and result.granularity == ALL
    each = [(name, chosen if only else value(KINDS[name])) for name in kinds]
    return Worth(order, tuple((name, min(order, found)) for name, found in each if found), chosen, seconds)


def _choices(problem: Problem) -> list[str]:
    there = {
        "fused backwards": problem.backward is not None,
        "W in ranges": any(len(units) > 1 for units in problem.weight_units),
        "sizes": len(problem.sizes) > 1,
    }
    return [name for name, exists in there.items() if exists]


def lines(result: Result, found: Worth | None) -> list[str]:
    """What was chosen, what it is worth and why, for people."""
    assert result.timeline is not None
    problem, schedule = result.timeline.problem, result.timeline.schedule
    text = [
        f"granularity chosen: {schedule.microbatches} micro-batches of size {sizes_text(schedule)}, "
        f"{schedule.fused:.0%} of the backwards fused, {schedule.cut:.0%} of the weight gradients cut"
    ]
    if found is not None and found.order:
        alone = [f"{name} {found.order:,} to {value:,} ({_gain(found.order, value)})" for name, value in found.each]
        text.append(
            f"worth, predicted {result.objective} in {problem.unit}: order alone {found.order:,}, as chosen "
            f"{found.chosen:,} ({_gain(found.order, found.chosen)}); by itself: {'; '.join(alone) or 'no other choice'}"
        )
    text.append(f"because {_prices(problem, median_high(schedule.sizes))}")
    return text


def _gain(before: int, after: int) -> str:
    return f"{after / before - 1:+.1%}"


def _prices(problem: Problem, size: int) -> str:
    """The prices that decide: what fusing saves, what a further range costs, how much of an op is fixed."""
    weight = sum(price(unit, size) for units in problem.weight_units for unit in units)
    halves = sum(price(cost, size) for cost in problem.backward_input) + weight
    parts = []
    if problem.backward is not None and halves:
        whole = sum(price(cost, size) for cost in problem.backward)
        parts.append(f"a fused backward takes {whole / halves:.1%} of I + W")
    if any(len(units) > 1 for units in problem.weight_units) and weight:
        parts.append(f"a further range of W costs {sum(problem.overhead) / weight:.1%} of W")
    if len(problem.sizes) > 1:
        parts.append(
            f"{_fixed_share((*problem.forward, *problem.backward_input), size):.0%} of F and I is fixed at size {size}"
        )
    return ", ".join(parts) or "the problem has one size of everything"


def _fixed_share(costs: tuple[Cost, ...], size: int) -> float:
    fixed = sum(cost.fixed for cost in costs if isinstance(cost, Affine))
    total = sum(price(cost, size) for cost in costs)
    return fixed / total if total else 0.0
