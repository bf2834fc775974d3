"""Where a timeline passes the memory limits."""

from __future__ import annotations

import numpy as np

from ..core.problem import BYTES, Problem
from ..core.schedule import Array, Schedule
from ..core.stream import weight_copies
from .structure import Violation
from .timeline import Timeline


def over_limit(timeline: Timeline) -> tuple[Violation, ...]:
    """For each rank that ever holds more than its limit, the first op that does; empty when none does."""
    return memory_violations(timeline.problem, timeline.schedule, timeline.during)


def memory_violations(problem: Problem, schedule: Schedule, during: Array) -> tuple[Violation, ...]:
    """The same from the bytes held while each op runs, shape (n,)."""
    offsets, unit = schedule.table.offsets, problem.memory.unit
    copies = weight_copies(schedule)
    found = []
    for rank, limit in enumerate(problem.memory.limit):
        if limit is None:
            continue
        static, one = problem.static_bytes(rank, copies), problem.static_bytes(rank)
        over = np.flatnonzero(during[offsets[rank] : offsets[rank + 1]] > limit)
        if static > limit:
            more = f", {in_unit(static - one, unit)} of it for more copies of the weights," if static > one else ""
            text = (
                f"rank {rank}: static memory {in_unit(static, unit)}{more} is above the limit of {in_unit(limit, unit)}"
            )
            found.append(Violation(rank, None, text))
        elif len(over):
            position = int(over[0])
            text = (
                f"rank {rank}, position {position}: {schedule.ops[rank][position]} brings the memory to "
                f"{in_unit(int(during[offsets[rank] + position]), unit)}, above the limit of {in_unit(limit, unit)}"
            )
            found.append(Violation(rank, position, text))
    return tuple(found)


def in_unit(count: int, unit: str) -> str:
    """Bytes as text in a memory unit; in a larger one where the unit is B, which measured problems use.

    Examples
    --------
    >>> in_unit(3 * 2**20, "MiB"), in_unit(3 * 2**20, "B"), in_unit(100, "B")
    ('3 MiB', '3 MiB', '100 B')
    """
    unit = readable_unit(count, unit)
    return f"{amount(count / BYTES[unit])} {unit}"


def amount(value: float, digits: int = 6) -> str:
    """A number as text with so many digits, or all those before the point: never with an exponent.

    Examples
    --------
    >>> amount(1234567.8), amount(115000.0, 4), amount(1.23456, 4)
    ('1,234,568', '115,000', '1.235')
    """
    return f"{value:,.0f}" if value >= 10 ** (digits - 1) else f"{value:,.{digits}g}"


def readable_unit(count: int, unit: str) -> str:
    """The unit itself, unless it is B: then the largest that leaves a number of at least 1."""
    if unit != "B":
        return unit
    return next((each for each in ("GiB", "MiB") if count >= BYTES[each]), unit)
