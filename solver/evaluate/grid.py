"""Text chart of a timeline or a schedule: one row for each rank."""

from __future__ import annotations

from dataclasses import replace

from ..core.ops import Kind, Op
from ..core.schedule import Schedule
from .structure import Violation
from .timeline import Timeline

MEANING = {
    Kind.F: "F forward",
    Kind.I: "I input gradient",
    Kind.W: "W weight gradient",
    Kind.B: "B fused backward",
}


def draw(timeline: Timeline, width: int = 100) -> str:
    """Timeline as text: one row for each rank, dots where it idles.

    An op that is wide enough carries its name, `F0`, or `2F0` where a rank holds more than one stage; its letter, in
    lower case, fills the rest. A range of units has them in its name where they fit, too. A narrower op is its letter.

    Parameters
    ----------
    timeline
        What to draw.
    width
        Columns for the makespan.
    """
    makespan = max(timeline.makespan, 1)
    staged = any(len(held) > 1 for held in timeline.problem.placement.held)
    digits = len(str(timeline.problem.ranks - 1))
    lines = []
    for rank in range(timeline.problem.ranks):
        row = ["."] * width
        for op, start, end in timeline.of(rank):
            a, b = start * width // makespan, end * width // makespan
            if end > start:
                # An op narrower than a column still shows, where no later one takes the column.
                row[a : max(b, a + 1)] = _cell(op, max(b, a + 1) - a, staged)
        lines.append(f"rank {rank:<{digits}} |{''.join(row[:width])}|")
    return "\n".join(lines)


def _cell(op: Op, width: int, staged: bool) -> list[str]:
    for text in (str(op), str(replace(op, units=None))):
        text = text if staged else text[len(str(op.stage)) :]
        if len(text) <= width:
            return list(text + op.kind.name.lower() * (width - len(text)))
    return list(op.kind.name * width)


def legend(timeline: Timeline) -> str:
    """What the letters of `draw` mean, and the figures that belong to the picture."""
    used = sorted({Kind(kind) for kind in timeline.schedule.table.kind.tolist()})
    return (
        f"{', '.join(MEANING[kind] for kind in used)}, . idle; makespan {timeline.makespan:,} {timeline.problem.unit}, "
        f"bubble {timeline.bubble:.2%} of the makespan, {timeline.span_bubble:.2%} of the span"
    )


def mark(schedule: Schedule, violation: Violation, around: int = 6) -> str:
    """Grid of the op lists near a violation, with an arrow at the place.

    Parameters
    ----------
    schedule, violation
        What is wrong.
    around
        Ops shown on each side of the place, and ranks on each side of its rank.

    Examples
    --------
    >>> from adaptpipe.solver.core.placement import place
    >>> schedule = Schedule.parse(place("linear", 2), [1], [["0F0", "0B0"], ["1B0", "1F0"]])
    >>> print(mark(schedule, Violation(1, 0, "")))
      position   0   1
      rank 0   0F0 0B0
    > rank 1   1B0 1F0
               ^^^
    """
    # What is missing would have stood at the end at the latest.
    row = schedule.ops[violation.rank]
    position = len(row) if violation.position is None else violation.position
    low, high = max(0, position - around), position + around + 1
    ranks = range(max(0, violation.rank - around), min(len(schedule.ops), violation.rank + around + 1))
    cells = {rank: [str(op) for op in schedule.ops[rank][low:high]] for rank in ranks}
    if violation.position is None:
        cells[violation.rank].append("?")
    columns = range(low, low + max(map(len, cells.values())))
    wide = max(len(text) for text in [str(columns[-1]), *(cell for some in cells.values() for cell in some)])
    margin = max(len("position"), len(f"rank {ranks[-1]}"))
    lines = [f"  {'position':<{margin}} " + " ".join(f"{column:>{wide}}" for column in columns)]
    for rank, some in cells.items():
        here = rank == violation.rank
        head = f"{'>' if here else ' '} {f'rank {rank}':<{margin}} "
        lines.append(head + " ".join(f"{cell:>{wide}}" for cell in some))
        if here:
            indent = margin + 3 + (position - low) * (wide + 1)
            lines.append(" " * indent + f"{'^' * len(some[position - low]):>{wide}}")
    return "\n".join(lines)
