"""Chart of the gains: one panel for each set, one group of bars for each case."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .cases import CaseSet
from .raw import Study
from .report import NAMES, gain

COLOURS = {"fused": "#c2571a", "units": "#8a6fb0", "sizes": "#3b7dbd", "all": "#2a7f62"}
"""Of the bars, by kind."""


def draw(panels: Sequence[tuple[CaseSet, Sequence[Study]]], path: Path) -> None:
    """Write the chart; the file's ending says the format."""
    if not panels:
        return
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    with rc_context({"svg.hashsalt": "adaptpipe", "font.size": 8, "svg.fonttype": "none"}):
        figure = Figure(figsize=(6.4 * columns, 3.2 * lines + 0.5), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes, (rows, found) in zip(grid.flat, panels, strict=False):
            _panel(axes, rows, found)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        figure.suptitle(
            "Gain of the makespan over the best order of whole, split, near-uniform pieces, %", fontsize=9.5
        )
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(axes: Axes, rows: CaseSet, found: Sequence[Study]) -> None:
    axes.set_title(rows.title, fontsize=9, loc="left")
    width = 0.8 / len(rows.kinds)
    for index, kind in enumerate(rows.kinds):
        gains = [gain(study, kind) for study in found]
        there = [(place, 100 * value) for place, value in enumerate(gains) if value is not None]
        at = [place + (index - (len(rows.kinds) - 1) / 2) * width for place, _ in there]
        axes.bar(at, [height for _, height in there], width * 0.92, color=COLOURS[kind], label=NAMES[kind])
    names = [study.case.removeprefix("linear ").replace(" fused", "\nfused") for study in found]
    axes.set_xticks(range(len(found)), names, fontsize=5.5, rotation=25, ha="right")
    axes.axhline(0, color="#555555", linewidth=0.6)
    axes.grid(True, axis="y", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize=7, frameon=False, ncols=len(rows.kinds))
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)
