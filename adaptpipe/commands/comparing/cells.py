"""A comparison as tables of text: for the terminal, Markdown and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..common import sizes_text, table_width

if TYPE_CHECKING:
    from adaptpipe.solver import Comparison
    from adaptpipe.solver.comparing import Level, Row

COLUMNS = (
    "method", "placement", "status", "makespan", "bubble of makespan", "bubble of span", "peak memory",
    "parameter copies", "weight versions", "messages", "message bytes", "stages per rank", "sizes", "fused", "cut",
    "gap", "gap over placements", "steady state", "time",
)  # fmt: skip
FRONT_COLUMNS = (
    "memory limit", "peak memory", "placement", "makespan", "bubble of makespan", "bubble of span", "gap", "found by",
    "time",
)  # fmt: skip


SPARE = (
    "time", "cut", "fused", "stages per rank", "sizes", "message bytes", "messages", "status", "weight versions",
    "steady state", "found by", "gap over placements", "parameter copies", "placement", "gap", "bubble of span",
    "bubble of makespan",
)  # fmt: skip
"""Columns that a narrow screen can do without, the first ones first."""


def fitting(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> tuple[list[str], list[list[str]], list[str]]:
    """A table without the columns for which a screen has no room, and the names of those.

    Parameters
    ----------
    head, rows
        The table.
    width
        Characters of the screen.

    Examples
    --------
    >>> fitting(["method", "makespan", "cut", "time"], [["1F1B", "130 us", "0%", "0.10 s"]], 30)
    (['method', 'makespan', 'cut'], [['1F1B', '130 us', '0%']], ['time'])
    """
    kept, out = list(range(len(head))), []
    for name in SPARE:
        if table_width([head[i] for i in kept], [[row[i] for i in kept] for row in rows]) <= width:
            break
        if name in head:
            kept.remove(head.index(name))
            out.append(name)
    return [head[i] for i in kept], [[row[i] for i in kept] for row in rows], out


def main_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Names and cells of the table, without the columns that are empty."""
    rows = [_row_cells(comparison, row) for row in comparison.rows]
    kept = [index for index in range(len(COLUMNS)) if any(row[index] != "–" for row in rows)]
    return [COLUMNS[index] for index in kept], [[row[index] for index in kept] for row in rows]


def _row_cells(comparison: Comparison, row: Row) -> list[str]:
    timeline, result = row.timeline, row.result
    if timeline is None:
        return [row.label, "–", result.standing, *["–"] * (len(COLUMNS) - 4), f"{result.time_s:.2f} s"]
    return [
        row.label,
        row.placement,
        result.standing if row.fits else "over limit",
        f"{timeline.makespan:,} {timeline.problem.unit}",
        f"{timeline.bubble:.2%}",
        f"{timeline.span_bubble:.2%}",
        _bytes(row.memory, comparison),
        str(row.copies),
        str(row.versions),
        f"{timeline.messages:,}",
        "–" if timeline.message_bytes is None else _bytes(timeline.message_bytes, comparison),
        str(row.stages_per_rank),
        sizes_text(timeline.schedule.sizes, 1),
        f"{timeline.schedule.fused_share:.0%}",
        f"{timeline.schedule.cut_share:.0%}",
        share(row.gap),
        share(comparison.gap(row)) if row.fits else "–",
        "–" if timeline.steady is None else f"{float(timeline.steady.microbatch):,.0f} {timeline.problem.unit} each",
        f"{result.time_s:.2f} s",
    ]


def front_cells(comparison: Comparison, level: Level) -> list[str]:
    """The solver at one level of memory."""
    from adaptpipe.solver.comparing import where_text

    result = level.best
    known = [limit for limit in level.limits if limit is not None]
    limit = "none" if not known else ("" if len(set(level.limits)) == 1 else "from ") + _bytes(min(known), comparison)
    timeline = result.timeline
    if timeline is None:
        return [limit, "–", result.standing, *["–"] * (len(FRONT_COLUMNS) - 4), f"{result.time_s:.2f} s"]
    return [
        limit + (" (the problem's)" if level.own and known else ""),
        _bytes(max(timeline.peak_memory), comparison),
        where_text(timeline.problem),
        f"{timeline.makespan:,} {timeline.problem.unit}",
        f"{timeline.bubble:.2%}",
        f"{timeline.span_bubble:.2%}",
        share(result.gap),
        result.found_by,
        f"{sum(each.time_s for each in level.results):.2f} s",
    ]


def reasons(comparison: Comparison) -> list[str]:
    """Which rows are over the limit, why others have no schedule, and what searches left open, in sentences."""
    over = [row for row in comparison.rows if row.timeline is not None and not row.fits]
    limits = set(comparison.problem.memory.limit)
    limit = next(iter(limits)) if len(limits) == 1 else None
    lines: list[str] = []
    if over:
        needs = ", ".join(f"{row.label} ({_bytes(row.memory, comparison)})" for row in over)
        lines.append("Over the memory limit" + (f" of {_bytes(limit, comparison)}" if limit else "") + f": {needs}.")
    missing: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.timeline is None:
            reason = row.result.reason or "no schedule was found"
            missing.setdefault(reason.removeprefix(row.label).lstrip(": "), []).append(row.label)
        elif row.method.build is None and row.result.reason:
            lines.append(f"{row.label}: {row.result.reason}")
    return lines + [f"{', '.join(labels)}: {reason}" for reason, labels in missing.items()]


def title(comparison: Comparison) -> str:
    """Of tables and chart."""
    problem = comparison.problem
    return f"{problem.name}: {problem.ranks} ranks, {problem.samples} samples"


def share(value: float | None) -> str:
    """A gap as text."""
    return "unknown" if value is None else f"{value:.2%}"


def memory_unit(comparison: Comparison) -> str:
    """The unit in which a comparison's memory is told: one for all rows."""
    from adaptpipe.solver.evaluate.limits import readable_unit

    return readable_unit(max((row.memory for row in comparison.rows), default=0), comparison.problem.memory.unit)


def _bytes(count: int, comparison: Comparison) -> str:
    from adaptpipe.solver.core.problem import BYTES
    from adaptpipe.solver.evaluate.limits import amount

    unit = memory_unit(comparison)
    return f"{amount(count / BYTES[unit], 4)} {unit}"
