"""Text chart of a timeline or a schedule: one row for each rank."""

from __future__ import annotations

from ..core.schedule import Schedule
from .structure import Violation
from .timeline import Timeline


def draw(timeline: Timeline, width: int = 100) -> str:
    """Timeline as text: one row for each rank, a letter for the op that runs at each moment, a dot where none does.

    Parameters
    ----------
    timeline
        What to draw.
    width
        Columns for the makespan. Where every op of a rank lasts long enough, its name (`2F0`) is written out.
    """
    makespan, ranks = max(timeline.makespan, 1), timeline.problem.ranks
    lines = []
    for rank in range(ranks):
        row = ["."] * width
        for op, start, end in timeline.of(rank):
            a, b = start * width // makespan, end * width // makespan
            if b == a and end > start:
                b = a + 1
            text = f"{op.kind.name}{op.microbatch}"
            label = text if b - a > len(text) else op.kind.name if b > a else ""
            row[a:b] = (
                list((label + op.kind.name.lower() * (b - a))[: b - a])
                if len(label) > 1
                else list(op.kind.name * (b - a))
            )
        lines.append(f"rank {rank:<{len(str(ranks - 1))}} |{''.join(row[:width])}|")
    return "\n".join(lines)


def mark(schedule: Schedule, violation: Violation, around: int = 6) -> str:
    """Grid of the op lists near a violation, with an arrow at the place.

    Parameters
    ----------
    schedule, violation
        What is wrong.
    around
        Ops shown on each side of the place.
    """
    position = violation.position
    centre = len(schedule.ops[violation.rank]) if position is None else position
    low, high = max(0, centre - around), centre + around + 1
    cells = [[str(op) for op in row[low:high]] for row in schedule.ops]
    wide = max((len(cell) for row in cells for cell in row), default=3)
    lines = [" " * 10 + " ".join(f"{index:>{wide}}" for index in range(low, low + max(len(row) for row in cells)))]
    for rank, row in enumerate(cells):
        lines.append(f"rank {rank:<4} " + " ".join(f"{cell:>{wide}}" for cell in row))
        if rank == violation.rank and position is not None:
            lines.append(" " * (10 + (position - low) * (wide + 1) + wide - 1) + "^")
    return "\n".join(lines)
