"""Which rows of a comparison are not comparable, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..core.problem import Problem
from ..core.result import Objective
from ..evaluate.steady import stale
from .row import Row

APART = 0.005
"""A difference between the two bubbles that is worth a word."""


def notes(problem: Problem, rows: Sequence[Row], objective: Objective) -> tuple[str, ...]:
    """Sentences that name the rows which differ from the others in more than their order.

    Parameters
    ----------
    problem
        The problem as it was asked.
    rows
        Rows of one comparison.
    objective
        What was minimised.
    """
    shown = [row for row in rows if row.timeline is not None]
    return tuple(text for text in _all(problem, shown, objective) if text)


def _all(problem: Problem, rows: Sequence[Row], objective: Objective) -> Iterator[str]:
    yield _say(
        [row for row in rows if (row.copies or 1) > 1],
        "held twice: every rank has the parameters, gradients and optimizer state of two stages"
        + ("; memory.static is 0, so the second copy is not counted" if not any(problem.memory.static) else ""),
        "parameters",
    )
    yield from (
        f"{row.label}: {stale(row.timeline)}." for row in rows if row.timeline is not None and not row.synchronous
    )
    yield from _granularity(problem, rows)
    longer = [
        row for row in rows if row.timeline is not None and row.timeline.bubble - row.timeline.span_bubble > APART
    ]
    other = "span" if objective == "makespan" else "makespan"
    yield _say(
        longer,
        "ranks begin and end at different times, so the bubble of the span is the smaller one, and holds only where no "
        f"barrier ends the step; this comparison is of the {objective}, not the {other}",
    )


def _granularity(problem: Problem, rows: Sequence[Row]) -> Iterator[str]:
    fused = [row for row in rows if row.timeline is not None and row.timeline.schedule.fused_share]
    if problem.backward is not None and 0 < len(fused) < len(rows):
        yield _say(
            fused,
            "fused backwards are priced apart from I and W, so these rows do other work than the others: compare "
            "makespans, not bubbles",
        )
    sliced = [row for row in rows if row.sliced]
    assumed = problem.slices is None and any(row.method.sliced for row in sliced)
    yield _say(
        sliced,
        "micro-batches cut into slices, other work for a device than whole ones: smaller kernels, and attention that "
        "grows along the sequence" + ("; equal slices are assumed, unless batch.slices says which" if assumed else ""),
    )
    sizes = {row.timeline.schedule.sizes[:: row.timeline.schedule.slices] for row in rows if row.timeline is not None}
    if len(sizes) > 1:
        yield "Micro-batch sizes differ between rows: compare makespans, not bubbles."


def _say(rows: Sequence[Row], text: str, subject: str = "") -> str:
    if not rows:
        return ""
    names = ", ".join(row.label for row in rows)
    return f"{names}: {subject + ' ' if subject else ''}{text}."
