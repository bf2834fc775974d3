"""Chart of gap against time: one panel for each set, one line for each row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .raw import Run

FIRST_S = 0.05
"""Left end of the time axis; what is known earlier is drawn there."""

LINEAR, TOP = 0.1, 30.0
"""Gaps in percent: the axis is linear up to the first, so that 0 can be shown, and ends at the second."""

LAST_S, ROOM = 60.0, 70.0
"""Right end of the time axis, and the factor that makes room for names beyond it."""

LABELS = 6
"""Rows of a panel that are named: those with the widest gap at the end."""

PROVEN, OPEN, GREY = "#2a7f62", "#c2571a", "#555555"


def draw(panels: Sequence[tuple[str, Sequence[tuple[str, Run]]]], path: Path) -> None:
    """Write the chart.

    Parameters
    ----------
    panels
        Title, and runs by key.
    path
        The file; its ending says the format.
    """
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    with rc_context({"svg.hashsalt": "adaptpipe", "font.size": 8.5, "svg.fonttype": "none"}):
        figure = Figure(figsize=(4.6 * columns, 3.5 * lines + 0.5), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for axes, (title, runs) in zip(grid.flat, panels, strict=False):
            _panel(axes, title, [run for _, run in runs])
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        figure.suptitle(
            "Gap of the best schedule so far to the final bound. Green: proven optimal, dot where proven; "
            "orange: open at the end",
            fontsize=9.5,
        )
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def curve(run: Run) -> tuple[list[float], list[float]]:
    """Seconds and gaps in percent of a run, each gap holding until the next second.

    Empty where the run found nothing, or the bound is 0.
    """
    known: dict[float, float] = {}
    for step in run.steps:
        gap = run.gap(step.value)
        if gap is not None:
            known[max(step.time_s, FIRST_S)] = 100 * gap
    if known:
        known.setdefault(max(run.time_s, FIRST_S), min(known.values()))
    return list(known), list(known.values())


def _panel(axes: Axes, title: str, runs: Sequence[Run]) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.6)
    axes.set_xlim(FIRST_S * 0.9, LAST_S * ROOM)
    axes.set_ylim(-LINEAR / 6, TOP)
    axes.set_yticks([0, 0.1, 0.3, 1, 3, 10, 30], ["0", "0.1", "0.3", "1", "3", "10", "30"])
    axes.set_xticks([0.1, 1, 10, 60], ["0.1", "1", "10", "60"])
    axes.minorticks_off()
    axes.axvline(LAST_S, color="#cccccc", linewidth=0.6)
    axes.grid(True, color="#e4e4e4", linewidth=0.6)
    axes.set_xlabel("seconds", loc="left")
    axes.set_ylabel("gap, %")
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)
    ends = []
    for run in runs:
        seconds, gaps = curve(run)
        if not gaps:
            continue
        colour = PROVEN if run.proven else OPEN
        axes.step(seconds, gaps, where="post", color=colour, linewidth=1, alpha=0.75)
        if run.proven:
            axes.plot(seconds[-1], gaps[-1], "o", color=colour, markersize=3)
        else:
            ends.append((gaps[-1], run))
    _name(axes, ends)


def _name(axes: Axes, ends: Sequence[tuple[float, Run]]) -> None:
    """Names of the rows with the widest gaps at their ends, apart from each other."""
    to_panel = axes.transAxes.inverted()
    height = float("inf")
    for gap, run in sorted(ends, key=lambda end: -end[0])[:LABELS]:
        x, y = to_panel.transform(axes.transData.transform((LAST_S * 1.1, gap)))
        height = min(height - 0.05, y)
        text = f"{run.instance.removeprefix('zb-')} {gap:.2f}%"
        axes.annotate(text, (x, height), xycoords="axes fraction", va="center", fontsize=6.5, color=GREY)
