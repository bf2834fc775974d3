"""Picture of a timeline: when every rank runs what, and the memory it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import InputError
from ..core.ops import Kind
from ..core.problem import BYTES
from .limits import amount, readable_unit
from .timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {Kind.F: "#56B4E9", Kind.I: "#F0B040", Kind.W: "#2FA37C", Kind.B: "#D9773F"}
"""From Okabe and Ito's palette, which colour-blind readers can tell apart; they differ in lightness too."""

NAMES = {Kind.F: "F forward", Kind.I: "I input gradient", Kind.W: "W weight gradient", Kind.B: "B fused backward"}
INK, GREY, FAINT, LIMIT = "#22262B", "#6B7480", "#EEF1F4", "#B3261E"

BAR, STRIP, GAP = 0.50, 0.30, 0.06
"""Heights of a rank's ops, of its memory, and of the space between them; a rank is 1 high."""

ENDINGS = (".png", ".svg")


def save_chart(timeline: Timeline, path: str | Path) -> None:
    """Write the chart of a timeline.

    Parameters
    ----------
    timeline
        What to draw.
    path
        A file that ends in .png or .svg.

    Raises
    ------
    InputError
        When the ending is another, or the file cannot be written.
    """
    if not str(path).endswith(ENDINGS):
        raise InputError(f"{path}: the ending is none of {', '.join(ENDINGS)}")
    import matplotlib

    # Text stays text, and the same timeline gives the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "adaptpipe", "font.size": 9}):
        picture = chart(timeline)
        try:
            metadata = {"Date": None} if str(path).endswith(".svg") else {}
            picture.savefig(path, dpi=150, metadata=metadata, facecolor="white")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def chart(timeline: Timeline) -> Figure:
    """Figure with one row for each rank: ops coloured by kind, below them the memory held and its limit."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ranks = timeline.problem.ranks
    row_inch = 0.62 if ranks <= 16 else 0.42 if ranks <= 32 else 0.28
    # Wide enough for the numbers of some 150 ops on a rank; beyond that the picture only shows the pattern.
    width, head, foot = min(24.0, max(13.0, 0.15 * max(map(len, timeline.schedule.ops)))), 0.8, 0.55
    height = head + foot + row_inch * ranks
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.055, foot / height, 0.835, 1 - (head + foot) / height))
    span = max(timeline.makespan, 1)
    axes.set_xlim(0, span)
    axes.set_ylim(ranks, 0)
    _ops(axes, timeline, inches=width * 0.835, row_inch=row_inch)
    _memory(axes, timeline)
    _frame(axes, timeline)
    _titles(figure, timeline, height)
    return figure


def _ops(axes: Axes, timeline: Timeline, inches: float, row_inch: float) -> None:
    from matplotlib.collections import PolyCollection

    table, span = timeline.schedule.table, max(timeline.makespan, 1)
    rank = np.repeat(np.arange(timeline.problem.ranks), np.diff(table.offsets))
    for kind, colour in COLOURS.items():
        for level in range(_levels(timeline)):
            chosen = (table.kind == kind) & (_level_of(timeline)[table.stage] == level)
            if not chosen.any():
                continue
            left, right, top = timeline.start[chosen], timeline.end[chosen], rank[chosen] + 0.06
            corners = np.stack([left, top, left, top + BAR, right, top + BAR, right, top], axis=1)
            # A white edge parts neighbours; where ops are hairlines it would be all one saw.
            thick = float(np.median(right - left)) / span * inches * 72
            axes.add_collection(
                PolyCollection(
                    list(corners.reshape(-1, 4, 2)),
                    facecolors=_shade(colour, level, _levels(timeline)),
                    edgecolors="white",
                    linewidths=0.6 if thick > 3 else 0.0,
                )
            )
    _numbers(axes, timeline, inches, row_inch)


def _numbers(axes: Axes, timeline: Timeline, inches: float, row_inch: float) -> None:
    """The micro-batch number in every op that is wide enough for it."""
    span = max(timeline.makespan, 1)
    points, digits = inches * 72 / span, len(str(timeline.schedule.microbatches - 1))
    forward = (timeline.end - timeline.start)[timeline.schedule.table.kind == Kind.F]
    # One size for all: the one at which the longest number fits an F of middling length.
    room = float(np.median(forward)) * points if len(forward) else 0.0
    size = min(8.5, row_inch * BAR * 72 * 0.62, max(5.0, (room - 1.5) / (0.62 * digits)))
    for rank in range(timeline.problem.ranks):
        for op, start, end in timeline.of(rank):
            text = str(op.microbatch)
            if (end - start) * points < 0.62 * size * len(text) + 1.5:
                continue
            axes.text(
                (start + end) / 2,
                rank + 0.06 + BAR / 2 + 0.01,
                text,
                ha="center",
                va="center",
                fontsize=size,
                color=INK,
            )


def _level_of(timeline: Timeline) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each stage, the how manyth of its rank it is, in its first direction."""
    seen: dict[int, int] = {}
    levels = []
    for rank in timeline.problem.placement.stages[0]:
        levels.append(seen.get(rank, 0))
        seen[rank] = levels[-1] + 1
    return np.array(levels, dtype=np.int64)


def _levels(timeline: Timeline) -> int:
    return int(_level_of(timeline).max()) + 1


def _shade(colour: str, level: int, levels: int) -> tuple[float, float, float]:
    """Later stages of a rank are paler."""
    from matplotlib.colors import to_rgb

    pale = 0.0 if levels == 1 else 0.55 * level / (levels - 1)
    r, g, b = (channel + (1 - channel) * pale for channel in to_rgb(colour))
    return r, g, b


def _memory(axes: Axes, timeline: Timeline) -> None:
    """Bytes held, as a filled line below each rank's ops; one scale for all ranks."""
    problem, offsets = timeline.problem, timeline.schedule.table.offsets
    limits = [limit for limit in problem.memory.limit if limit is not None]
    peaks = timeline.peak_memory
    # A limit far above what is used would press every line flat.
    top = max([*peaks, *(limit for limit in limits if limit <= 4 * max(peaks))])
    if top == 0:
        return
    unit = readable_unit(top, problem.memory.unit)
    for rank in range(problem.ranks):
        rows = slice(offsets[rank], offsets[rank + 1])
        floor = rank + 0.06 + BAR + GAP + STRIP
        x = np.stack([timeline.start[rows], timeline.end[rows]], axis=1).reshape(-1)
        y = np.stack([timeline.during[rows], timeline.after[rows]], axis=1).reshape(-1)
        x, y = np.concatenate([[0], x, [timeline.makespan]]), np.concatenate([[timeline.static[rank]], y, y[-1:]])
        held = floor - STRIP * y / top
        axes.fill_between(x, floor, held, step="post", color="#C9CFD6", linewidth=0)
        axes.step(x, held, where="post", color=GREY, linewidth=0.8)
        limit = problem.memory.limit[rank]
        over = limit is not None and peaks[rank] > limit
        text = amount(peaks[rank] / BYTES[unit])
        if limit is not None:
            if limit <= top:
                axes.axhline(floor - STRIP * limit / top, color=LIMIT, linewidth=0.8, linestyle=(0, (4, 2)))
            text += f" / {amount(limit / BYTES[unit])}"
        axes.annotate(
            f"{text} {unit}",
            (1, floor - STRIP / 2),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8 if problem.ranks <= 16 else 6,
            color=LIMIT if over else GREY,
            fontweight="bold" if over else "normal",
        )


def _frame(axes: Axes, timeline: Timeline) -> None:
    ranks = timeline.problem.ranks
    for rank in range(0, ranks, 2):
        axes.axhspan(rank, rank + 1, color=FAINT, zorder=-2, linewidth=0)
    axes.set_yticks([rank + 0.06 + BAR / 2 for rank in range(ranks)], [f"rank {rank}" for rank in range(ranks)])
    axes.tick_params(axis="y", length=0, labelsize=9 if ranks <= 16 else 6, labelcolor=INK)
    axes.tick_params(axis="x", color=GREY, labelcolor=GREY, labelsize=8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(f"time, {timeline.problem.unit}", fontsize=8.5, color=GREY)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GREY)


def _titles(figure: Figure, timeline: Timeline, height: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    problem = timeline.problem
    figure.text(
        0.055, 1 - 0.16 / height, problem.name or "schedule", fontsize=13, fontweight="bold", color=INK, va="top"
    )
    figure.text(
        0.055,
        1 - 0.45 / height,
        f"makespan {timeline.makespan:,} {problem.unit},  bubble {timeline.bubble:.2%} of the makespan, "
        f"{timeline.span_bubble:.2%} of the span" + (";  paler: a rank's later stage" if _levels(timeline) > 1 else ""),
        fontsize=10,
        color=INK,
        va="top",
    )
    used = sorted({Kind(kind) for kind in timeline.schedule.table.kind.tolist()})
    handles: list[Patch | Line2D] = [Patch(color=COLOURS[kind], label=NAMES[kind]) for kind in used]
    if max(timeline.peak_memory):
        handles.append(Patch(facecolor="#C9CFD6", edgecolor=GREY, label="memory held (at right: peak)"))
        if problem.limited:
            handles.append(Line2D([], [], color=LIMIT, linewidth=0.9, linestyle=(0, (4, 2)), label="limit"))
    figure.legend(
        handles=handles,
        loc="upper right",
        bbox_to_anchor=(0.985, 1 - 0.08 / height),
        ncols=len(handles),
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        handlelength=1.4,
        columnspacing=1.2,
    )
