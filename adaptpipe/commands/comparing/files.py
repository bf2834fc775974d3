"""The folder that `adaptpipe compare -o` writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .cells import FRONT_COLUMNS, front_cells, main_table, reasons, title

if TYPE_CHECKING:
    from adaptpipe.solver import Comparison

CHART = "pareto"
MOST_CHARTS = 6
"""Schedules that are drawn, the shortest first: a picture takes a second."""


def write_tables(folder: Path, comparison: Comparison, data: Mapping[str, object]) -> None:
    """Write the tables and the chart of bubble against memory.

    Parameters
    ----------
    folder
        An existing folder.
    comparison
        What was found.
    data
        The JSON object, with its rows.
    """
    import csv
    import io

    import msgspec

    from adaptpipe.solver.files.reading import write_text

    from .chart import save_front

    write_text(folder / "table.json", msgspec.json.format(msgspec.json.encode(data), indent=1).decode() + "\n")
    rows = data["rows"]
    assert isinstance(rows, list)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "table.csv", buffer.getvalue())
    drawn = any(row.timeline is not None for row in comparison.rows)
    write_text(folder / "table.md", markdown(comparison, f"{CHART}.png" if drawn else ""))
    if drawn:
        for ending in ("png", "svg"):
            save_front(comparison, folder / f"{CHART}.{ending}")


def write_schedules(folder: Path, comparison: Comparison) -> None:
    """Write every schedule, and pictures of the shortest ones."""
    from adaptpipe.solver.evaluate.chart import save_chart

    found = sorted(
        ((row.label.replace("/", "-").replace(" ", "-"), row.timeline) for row in comparison.rows if row.timeline),
        key=lambda pair: pair[1].value(comparison.objective),
    )
    for index, (stem, timeline) in enumerate(found):
        timeline.schedule.save(folder / f"{stem}.json", comparison.problem.name)
        if index < MOST_CHARTS:
            save_chart(timeline, folder / f"{stem}.png")


def markdown(comparison: Comparison, chart: str = "") -> str:
    """The comparison in Markdown.

    Parameters
    ----------
    comparison
        What was found.
    chart
        Name of the chart's file; "" for none.
    """
    lines = [f"# {title(comparison)}", "", *_table(*main_table(comparison))]
    lines += ["", *(f"- {line}" for line in [*comparison.notes, *reasons(comparison)])]
    if chart:
        lines += ["", f"![bubble against memory]({chart})"]
    if comparison.levels:
        lines += ["", "## The solver at the memory of the heuristics", ""]
        lines += _table(FRONT_COLUMNS, [front_cells(comparison, level) for level in comparison.levels])
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|---|" + "---:|" * (len(head) - 1)
    yield from ("| " + " | ".join(row) + " |" for row in rows)
