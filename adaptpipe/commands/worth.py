"""What the sizes that a schedule's pieces were given are worth, and which prices make it so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from statistics import median_high

from adaptpipe.solver import Affine, Granularity, Problem, Result
from adaptpipe.solver.core.granularity import NONE
from adaptpipe.solver.core.problem import Cost, price
from adaptpipe.solver.greedy.policy import fusing_helps

from .common import sizes_text

NAMES = {"fused": "fused backwards", "units": "W in ranges", "sizes": "sizes"}
"""The kinds of choice, for people."""

Solve = Callable[[Granularity], Result]
"""Answer of the same search, in the same time, with another granularity."""


@dataclass(frozen=True, slots=True)
class Worth:
    """Objective values as planned, in ticks.

    Parameters
    ----------
    order
        Of the best schedule found whose order alone was chosen: whole micro-batches of near-equal size, every backward
        split.
    each
        With one kind of choice beside the order, by its name in `Granularity`.
    chosen
        Of the schedule itself.
    """

    order: int
    each: Mapping[str, int]
    chosen: int


def worth(problem: Problem, result: Result, solve: Solve) -> Worth | None:
    """Search again with fewer choices; None where the order alone gives no schedule within the limits."""
    kinds = choices(problem, result.granularity)
    order, chosen = solve(NONE).value, result.value
    if order is None or chosen is None:
        return None
    each = {}
    for kind in kinds:
        # The only kind that may be chosen is what the schedule did.
        found = chosen if len(kinds) == 1 else solve(Granularity.parse(kind)).value
        if found is not None:
            each[kind] = min(order, found)
    return Worth(order, each, chosen)


def choices(problem: Problem, granularity: Granularity) -> list[str]:
    """The kinds of choice that a problem offers and a granularity allows."""
    there = {
        "fused": fusing_helps(problem.instance(problem.fewest_sizes())),
        "units": any(len(units) > 1 for units in problem.weight_units),
        "sizes": len(problem.sizes) > 1,
    }
    return [each.name for each in fields(Granularity) if there[each.name] and getattr(granularity, each.name)]


def lines(result: Result, found: Worth | None) -> list[str]:
    """What was chosen, what it is worth and why, for people."""
    assert result.timeline is not None
    problem, schedule = result.timeline.problem, result.timeline.schedule
    pieces = f" in {schedule.slices} slices each" if schedule.slices > 1 else ""
    text = [
        f"granularity chosen: {schedule.microbatches // schedule.slices} micro-batches{pieces}, of size "
        f"{sizes_text(schedule.sizes)}; "
        f"{schedule.fused_share:.0%} of the backwards fused, {schedule.cut_share:.0%} of the weight gradients cut"
    ]
    if found is not None and found.order:
        alone = [
            f"{NAMES[kind]} {found.order:,} to {value:,} ({_gain(found.order, value)})"
            for kind, value in found.each.items()
        ]
        text.append(
            f"worth, planned {result.objective} in {problem.unit}: order alone {found.order:,}, as chosen "
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
        share = _fixed_share((*problem.forward, *problem.backward_input), size)
        parts.append(f"{share:.0%} of F and I is fixed at size {size}")
    return ", ".join(parts) or "the problem has one size of everything"


def _fixed_share(costs: tuple[Cost, ...], size: int) -> float:
    fixed = sum(cost.fixed for cost in costs if isinstance(cost, Affine))
    total = sum(price(cost, size) for cost in costs)
    return fixed / total if total else 0.0
