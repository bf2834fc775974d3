"""Tables in Markdown, one for each set, from kept results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from .instances import published
from .raw import Run, Runs
from .rivals import Rivals, rivals
from .sets import SETS, RowSet

Pairs = Sequence[tuple[str, Run]]

MARKS = (1, 10, 60)
"""Seconds at which the best value so far is told."""

NOTES = """\
- **bound**: proven; no schedule of the problem within its memory limits is better. Gaps are `value / bound - 1`, all to
  this bound, the final one. Values are ticks of the problem's unit; bubbles say of what.
- **heuristic**: the best that keeps the limits, of the hand-made schedules and the greedy policy grid (at most 10 s).
- **1 s, 10 s, 60 s**: the gap of the best schedule that one and the same run knew by then; a run told to stop earlier
  plans its time otherwise, and may do better. "–": none yet, or the run was not allowed that long.
- **proof**: seconds until the value met the bound. Each row is one run, one seed. Seconds are of the search; the
  command takes {start} s more to start.
- **zero-bubble**: gap to our bound of the best schedule within the limits by the automatic schedulers of
  [{repository}]({repository}), commit {commit}, and which. Each order was read as a schedule, and simulated as ours
  are; [rivals.json](../rivals.json) has all values.
"""


def report(runs: Runs, markdown: Path, chart: Path) -> tuple[Path, Path]:
    """Write tables and chart; returns their paths."""
    from .gap_chart import draw

    markdown.write_text(text(runs, chart.name), encoding="utf-8")
    draw([(rows.title, _of(rows, runs)) for rows in SETS if _of(rows, runs)], chart)
    return markdown, chart


def text(runs: Runs, chart: str) -> str:
    """The report, with a link to the chart.

    Parameters
    ----------
    runs
        By key; those of no set are left out.
    chart
        Name of the chart's file, beside the report.
    """
    known = rivals()
    present = [(rows, pairs) for rows in SETS if (pairs := _of(rows, runs))]
    lines = ["# How close the solver gets", "", "Made by `python -m benchmarks.solve`.", "", *_machines(present), ""]
    lines += [*_summary(present), "", f"![gap against time]({chart})", ""]
    starts = sorted({run.start_s for _, pairs in present for _, run in pairs})
    span = f"{starts[0]:.1f}" if starts[0] == starts[-1] else f"{starts[0]:.1f} to {starts[-1]:.1f}"
    lines += [
        NOTES.format(start=span, repository=known.repository, commit=known.commit[:8])
        + "".join(f"  - {sentence}\n" for sentence in known.how)
    ]
    for rows, pairs in present:
        lines += [f"## {rows.title}", "", rows.about, "", *_table(rows, pairs, known), ""]
    lines += [*_reasons(present)]
    return "\n".join(lines).rstrip() + "\n"


def percent(share: float | None) -> str:
    """A gap for a table: "0" only where it is."""
    if share is None:
        return "–"
    if share == 0:
        return "0"
    return "<0.01%" if share < 5e-5 else f"{share:.2%}"


def _of(rows: RowSet, runs: Runs) -> list[tuple[str, Run]]:
    return [(row.key, runs[row.key]) for row in rows.rows if row.key in runs]


def _machines(present: Sequence[tuple[RowSet, Pairs]]) -> Iterator[str]:
    groups: dict[tuple[str, str, float, int, int], list[str]] = {}
    for rows, pairs in present:
        for _, run in pairs:
            key = (run.date, run.machine, run.time_limit_s, run.workers, run.seed)
            if rows.name not in groups.setdefault(key, []):
                groups[key].append(rows.name)
    for (date, machine, limit, workers, seed), names in groups.items():
        start, of = ("", "") if len(groups) == 1 else ("- ", f" ({', '.join(names)})")
        yield f"{start}{date}, {machine}; at most {limit:g} s a row, {workers} workers, seed {seed}{of}."


def _summary(present: Sequence[tuple[RowSet, Pairs]]) -> Iterator[str]:
    yield "| set | rows | proven optimal | mean gap | worst gap | search time |"
    yield "|---|---|---|---|---|---|"
    for rows, pairs in present:
        gaps = [gap for _, run in pairs if (gap := run.gap(run.value)) is not None]
        mean, worst = (sum(gaps) / len(gaps), max(gaps)) if gaps else (None, None)
        time = sum(run.time_s for _, run in pairs)
        count = f"{len(pairs)}" if len(pairs) == len(rows.rows) else f"{len(pairs)} of {len(rows.rows)}"
        proven = sum(run.proven for _, run in pairs)
        yield f"| {rows.name} | {count} | {proven} | {percent(mean)} | {percent(worst)} | {time:.0f} s |"


def _table(rows: RowSet, pairs: Pairs, known: Rivals) -> Iterator[str]:
    of_span = any(run.objective == "span" for _, run in pairs)
    head = ["problem", "bound", "heuristic", *(f"{mark} s" for mark in MARKS), "value", "gap", "found by", "proof"]
    head += ["span bubble", "published ZB-V", "makespan bubble"] if of_span else ["makespan bubble"]
    head += ["zero-bubble"]
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    rates = {cell.instance: cell.span_bubble for cell in published() if cell.method == "ZB-V"}
    for _, run in pairs:
        best = run.best_heuristic
        cells = [run.instance, f"{run.bound:,}"]
        cells += ["none fits" if best is None else f"{percent(run.gap(best.value))} {best.method}"]
        cells += [percent(run.gap(run.best_at(mark))) for mark in MARKS]
        cells += ["–" if run.value is None else f"{run.value:,}", percent(run.gap(run.value)), run.found_by or "–"]
        cells += [_seconds(run.time_s) if run.proven else "–"]
        if of_span:
            rate = rates.get(run.instance)
            cells += [_rate(run.span_bubble), _rate(rate)]
        cells += [_rate(run.bubble), _rival(run, known)]
        yield "| " + " | ".join(cells) + " |"


def _rival(run: Run, known: Rivals) -> str:
    best = known.best(run.instance, run.objective)
    if best is not None:
        function, value = best
        return f"{percent(run.gap(value))} {known.functions.get(function, function)}"
    tried = any(candidate.instance == run.instance for candidate in known.candidates)
    return "none fits" if tried else "–"


def _reasons(present: Sequence[tuple[RowSet, Pairs]]) -> Iterator[str]:
    """Rows without a schedule, and why."""
    missing = [(key, run) for _, pairs in present for key, run in pairs if run.value is None]
    if missing:
        yield "## Without a schedule"
        yield ""
        yield from (f"- {key}: {run.status}, {run.reason}" for key, run in missing)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.4f}"
