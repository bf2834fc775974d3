"""A comparison as tables of text: for the terminal, Markdown and CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common import sizes_text

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


def short_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """The table for a screen: rows that have a schedule, and the columns that a hundred letters have room for."""
    unit, memory = comparison.problem.unit, memory_unit(comparison)
    head = [
        "method", f"makespan\n{unit}", "bubble of\nmakespan", "bubble of\nspan", f"memory\n{memory}",
        "weights", "messages", f"bytes\n{memory}", "gap",
    ]  # fmt: skip
    rows = [_short_cells(comparison, row) for row in comparison.rows if row.timeline is not None]
    kept = [index for index in range(len(head)) if any(row[index] != "–" for row in rows)]
    return [head[index] for index in kept], [[row[index] for index in kept] for row in rows]


def _short_cells(comparison: Comparison, row: Row) -> list[str]:
    timeline = row.timeline
    assert timeline is not None
    more = [(row.copies or 1, "copies"), (row.versions or 1, "versions")]
    return [
        row.label,
        f"{timeline.makespan:,}",
        f"{timeline.bubble:.2%}",
        f"{timeline.span_bubble:.2%}",
        _number(row.memory, comparison),
        ", ".join(f"{count} {what}" for count, what in more if count > 1) or "1",
        f"{timeline.messages:,}",
        "–" if timeline.message_bytes is None else _number(timeline.message_bytes, comparison),
        share(row.gap) if row.fits else "over",
    ]


def short_front(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """The solver's front for a screen: the levels of memory at which it finds something else than at the one before."""
    from adaptpipe.solver.comparing import where_text

    unit, memory = comparison.problem.unit, memory_unit(comparison)
    head = [
        f"limit\n{memory}", f"memory\n{memory}", "placement", f"makespan\n{unit}", "bubble of\nmakespan",
        "bubble of\nspan", "gap", "found by",
    ]  # fmt: skip
    rows: list[list[str]] = []
    for level in comparison.levels:
        timeline = level.best.timeline
        if timeline is None:
            continue
        known = [limit for limit in level.limits if limit is not None]
        limit = "none" if not known else _number(min(known), comparison)
        cells = [
            limit + (" (own)" if level.own and known else ""),
            _number(max(timeline.peak_memory), comparison),
            where_text(timeline.problem),
            f"{timeline.makespan:,}",
            f"{timeline.bubble:.2%}",
            f"{timeline.span_bubble:.2%}",
            share(level.best.gap),
            level.best.found_by,
        ]
        if level.own or not rows or cells[1:4] != rows[-1][1:4]:
            rows.append(cells)
    return head, rows


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
        elif row.method.build is None:
            lines.append("; ".join(text for text in (f"{row.label}: {row.result.standing}", row.result.reason) if text))
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


def _number(count: int, comparison: Comparison) -> str:
    from adaptpipe.solver.core.problem import BYTES
    from adaptpipe.solver.evaluate.limits import amount

    return amount(count / BYTES[memory_unit(comparison)], 4)


def _bytes(count: int, comparison: Comparison) -> str:
    return f"{_number(count, comparison)} {memory_unit(comparison)}"
