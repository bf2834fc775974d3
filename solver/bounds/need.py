"""Whether a problem has any schedule within its limits, and why not."""

from __future__ import annotations

from itertools import product

from ..core.problem import BYTES, Problem
from ..core.slices import sliced_price


def infeasible(problem: Problem, sizes: tuple[int, ...] | None = None, *, fused: bool = True) -> str:
    """Why no schedule respects the limits; empty where one does.

    When the F of a rank's last stage runs, the rank holds the activations of all its stages for that micro-batch, as
    every backward of the rank comes after it. So static memory plus these activations is needed. It also suffices: run
    one micro-batch after the other, each with fused backwards, which hold nothing beyond what the forwards took.
    Where backwards may not be fused, I may swell: it needs, beside the activations of the rank's stages before, the
    larger of what F took and what it retains. That suffices too, with each W right after its I.
    The slices of a micro-batch count together: all F's of a stage come before the micro-batch's first backward there.
    With several allowed sizes, some micro-batch is at least as large as the smallest z such that sizes up to z add up
    to the batch; a problem is called infeasible only if that micro-batch fits in no direction.

    Parameters
    ----------
    problem
        The problem.
    sizes
        Micro-batch sizes; None: any that the problem allows.
    fused
        Whether backwards may be fused.

    Returns
    -------
    str
        Rank, need, limit and the smallest limit that would do; "" where a schedule exists.

    Examples
    --------
    >>> problem = Problem.from_dict({
    ...     "pipeline": {"ranks": 2},
    ...     "batch": {"samples": 2},
    ...     "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
    ...     "memory": {"activation": [3, 5], "retained": 1, "static": 1, "limit": 5},
    ... })
    >>> print(infeasible(problem))
    rank 1 needs 6 B for one micro-batch alone (static 1 B, activations 5 B), above its limit of 5 B; the smallest
    limit with a schedule is 6 B
    """
    if sizes is not None:
        count = len(sizes)
        cases = [(problem.placement.direction_of(j, count), size) for j, size in enumerate(sizes)]
        lacks = [_lack(problem, direction, size, fused) for direction, size in sorted(set(cases))]
        return next((text for text in lacks if text), "")
    if len(problem.sizes) == 1:
        return infeasible(problem, problem.default_sizes(), fused=fused)
    largest = _smallest_largest(problem)
    lacks = [_lack(problem, direction, largest, fused) for direction in range(problem.placement.directions)]
    return lacks[0] if all(lacks) else ""


def _lack(problem: Problem, direction: int, size: int, fused: bool) -> str:
    for rank, limit in enumerate(problem.memory.limit):
        if limit is None:
            continue
        static, need = problem.static_bytes(rank), needed(problem, rank, direction, size, fused=fused)
        if need > limit:
            least = needed(problem, rank, direction, size)
            taken = "activations and what I retains" if need > least else "activations"
            unit = problem.memory.unit
            which = "one micro-batch" if len(problem.sizes) == 1 else f"one micro-batch of {size}"
            return (
                f"rank {rank} needs {exact(need, unit)} for {which} alone (static {exact(static, unit)}, "
                f"{taken} {exact(need - static, unit)}), above its limit of {exact(limit, unit)}; "
                f"the smallest limit with a schedule is {exact(need, unit)}"
                + (f", and {exact(least, unit)} where backwards may be fused" if need > least else "")
            )
    return ""


def needed(problem: Problem, rank: int, direction: int, size: int, *, fused: bool = True) -> int:
    """Bytes that a rank holds at least when it runs one micro-batch alone; `fused`: with fused backwards only."""
    row, memory = problem.placement.stages[direction], problem.memory
    taken = most = 0
    here = [stage for stage, owner in enumerate(row) if owner == rank]
    for stage, index in product(here, range(problem.slice_count)):
        before, taken = taken, taken + sliced_price(memory.activation[stage], size, problem.tokens, index)
        most = max(most, taken)
        if not fused:
            units = (memory.retained[stage],) if memory.retained_units is None else memory.retained_units[stage]
            most = max(most, before + sum(sliced_price(unit, size, problem.tokens, index) for unit in units))
    return problem.static_bytes(rank) + most


def exact(count: int, unit: str) -> str:
    """Bytes as text: in the unit where that is a whole number, else in bytes.

    Examples
    --------
    >>> exact(2048, "KiB"), exact(2049, "KiB")
    ('2 KiB', '2049 B')
    """
    whole, rest = divmod(count, BYTES[unit])
    return f"{count} B" if rest else f"{whole} {unit}"


def _smallest_largest(problem: Problem) -> int:
    """The smallest z such that allowed sizes up to z add up to the batch."""
    reach = 1
    everything = (1 << (problem.samples + 1)) - 1
    for size in problem.sizes:
        step = size
        while step <= problem.samples:
            reach |= (reach << step) & everything
            step *= 2
        if reach >> problem.samples & 1:
            return size
    raise AssertionError("a problem's sizes add up to its batch")
