"""Chart of bubble against memory: every heuristic a point, the front of the heuristics, and the solver's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adaptpipe.solver import InputError

from .cells import memory_unit, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

    from adaptpipe.solver import Comparison

MARKS = {
    "linear": ("o", "#0072B2"),
    "loop": ("s", "#E69F00"),
    "v": ("v", "#009E73"),
    "wave": ("D", "#CC79A7"),
    "bidirectional": ("P", "#56B4E9"),
    "explicit": ("X", "#5B5B5B"),
}
"""Marker and colour of each placement: Okabe and Ito's palette, and no two share a shape."""

SOLVER, SLICED, INK, GREY, FAINT = "#D55E00", "#882255", "#22262B", "#6B7480", "#E4E7EB"

NEAR = ((7, 0), (-7, 0), (0, 8), (0, -8), (6, 7), (6, -7), (-6, 7), (-6, -7))
"""Where a label may stand beside its point, in points; farther away by each of `FAR`."""

FAR = (1, 2, 3.2, 4.6, 6.2, 8, 10, 12.5)


@dataclass(frozen=True, slots=True)
class Spot:
    """A schedule in the chart: memory in the chart's unit, bubble in percent; hollow where it trains otherwise."""

    label: str
    placement: str
    memory: float
    bubble: float
    sliced: bool
    hollow: bool = False


def save_front(comparison: Comparison, path: Path) -> None:
    """Write the chart; the ending says the format.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    import matplotlib

    # Text stays text, and the same comparison gives the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "adaptpipe", "font.size": 9}):
        figure = draw(comparison)
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {}, facecolor="white")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def draw(comparison: Comparison) -> Figure:
    """The chart."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from adaptpipe.solver.core.problem import BYTES

    unit = memory_unit(comparison)
    scale = BYTES[unit]
    spots = list(_spots(comparison, scale))
    solver = [*_solver(comparison, scale, sliced=False), *_solver(comparison, scale, sliced=True)]
    figure = Figure(figsize=(10.5, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    memories, bubbles = zip(*((each.memory, each.bubble) for each in [*spots, *solver]), strict=True)
    right, top, low = 1.06 * max(1e-9, *memories), 1.08 * max(1.0, *bubbles), min(0.0, *bubbles)
    axes.set_xlim(0, right)
    axes.set_ylim(1.08 * low if low < 0 else 0, top)
    _frame(axes, comparison, unit, scale)
    for sliced, colour, what in ((False, SOLVER, ""), (True, SLICED, ", slices")):
        plain = [each for each in spots if each.sliced == sliced and not each.hollow]
        best = [each for each in solver if each.sliced == sliced]
        _staircase(axes, plain, GREY, f"front of the heuristics{what}", ":" if sliced else "--", right)
        _staircase(axes, best, colour, f"front of the solver{what}", "-", right)
        axes.plot(
            [each.memory for each in best], [each.bubble for each in best], "*", color=colour, markersize=10,
            markeredgecolor="white", zorder=5,
        )  # fmt: skip
    for placement, hollow in dict.fromkeys((each.placement, each.hollow) for each in spots):
        marker, colour = MARKS[placement]
        points = [each for each in spots if (each.placement, each.hollow) == (placement, hollow)]
        axes.plot(
            [each.memory for each in points], [each.bubble for each in points], marker, color=colour, markersize=6,
            label=placement + (", stale weights, steady state" if hollow else ""), linestyle="none", zorder=4,
            markeredgecolor=colour if hollow else "white", markerfacecolor="white" if hollow else colour,
        )  # fmt: skip
    figure.legend(loc="outside lower center", frameon=False, ncols=5)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    _name(axes, spots, solver)
    return figure


def _spots(comparison: Comparison, scale: int) -> Iterator[Spot]:
    for row in comparison.rows:
        if row.timeline is not None and row.value is not None and row.method.build is not None:
            place = row.timeline.schedule.placement.name
            steady = row.timeline.steady
            bubble = comparison.bubble(row.value) if steady is None else steady.bubble
            yield Spot(row.label, place, row.memory / scale, 100 * bubble, row.sliced, not row.synchronous)


def _solver(comparison: Comparison, scale: int, sliced: bool) -> list[Spot]:
    """The solver's schedules, those that no other one of them beats in memory and value; named by their placements."""
    from adaptpipe.solver.comparing import pareto, where_text

    found = {
        (max(timeline.peak_memory), timeline.value(comparison.objective)): timeline.problem
        for level in comparison.levels
        if (timeline := level.best.timeline) is not None and (timeline.schedule.slices > 1) == sliced
    }
    return [
        Spot(
            where_text(found[pair]),
            found[pair].placement.name,
            pair[0] / scale,
            100 * comparison.bubble(pair[1]),
            sliced,
        )
        for pair in pareto(found)
    ]


def _staircase(axes: Axes, spots: Sequence[Spot], colour: str, label: str, style: str, right: float) -> None:
    """Line below which no spot lies: from each of the best on, no more than its bubble is had."""
    front: list[Spot] = []
    for each in sorted(spots, key=lambda spot: (spot.memory, spot.bubble)):
        if not front or each.bubble < front[-1].bubble:
            front.append(each)
    if front:
        xs, ys = [each.memory for each in front], [each.bubble for each in front]
        axes.step([*xs, right], [*ys, ys[-1]], where="post", color=colour, linestyle=style, label=label, zorder=2)


def _frame(axes: Axes, comparison: Comparison, unit: str, scale: int) -> None:
    objective = comparison.objective
    axes.set_title(f"{title(comparison)}: bubble against memory", loc="left", color=INK)
    axes.set_xlabel(f"peak memory of the fullest rank, {unit}")
    axes.set_ylabel(f"bubble of the {objective}, %  (of ranks × {objective}, without F, I or W)")
    axes.grid(True, color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)
    limits = {limit for limit in comparison.problem.memory.limit if limit is not None}
    if limits and min(limits) / scale <= axes.get_xlim()[1]:
        axes.axvline(min(limits) / scale, color=INK, linewidth=0.9, linestyle=":", label="memory limit", zorder=1)


def _name(axes: Axes, spots: Sequence[Spot], solver: Sequence[Spot]) -> None:
    """A name beside each point, where it hides no other name and no point; farther away with a line."""
    from matplotlib.transforms import Bbox

    figure = axes.get_figure()
    assert figure is not None
    half = 4 * figure.dpi / 72
    taken: list[Bbox] = []
    for each in [*spots, *solver]:
        x, y = axes.transData.transform((each.memory, each.bubble))
        taken.append(Bbox.from_extents(x - half, y - half, x + half, y + half))
    kinds = [([each for each in solver if each.sliced == sliced], NEAR[3:] + NEAR[:3]) for sliced in (False, True)]
    for group, places in (*kinds, (spots, NEAR)):
        names: dict[tuple[float, float], list[Spot]] = {}  # schedules in the same place have one name
        for each in group:
            names.setdefault((round(each.memory, 6), round(each.bubble, 3)), []).append(each)
        named = ""
        for point, those in sorted(names.items()):
            if group is not spots and those[0].label == named:
                continue  # the same placement as with less memory
            named = those[0].label
            colour = INK if group is spots else SLICED if those[0].sliced else SOLVER
            _settle(axes, point, ", ".join(each.label for each in those), colour, places, taken)


def _settle(
    axes: Axes,
    point: tuple[float, float],
    name: str,
    colour: str,
    places: Sequence[tuple[int, int]],
    taken: list[Bbox],
) -> None:
    """Write a name at the first of the places where there is room."""
    inside = axes.get_window_extent()
    text = axes.annotate(name, point, (0, 0), textcoords="offset points", fontsize=7.5, color=colour, zorder=6)
    text.set_bbox({"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.4})  # lines pass behind it
    for far in FAR:
        for dx, dy in places:
            text.set_horizontalalignment("left" if dx > 0 else "right" if dx < 0 else "center")
            text.set_verticalalignment("bottom" if dy > 0 else "top" if dy < 0 else "center")
            text.set_position((dx * far, dy * far))
            box = text.get_window_extent()
            within = box.x0 >= inside.x0 and box.x1 <= inside.x1 and box.y0 >= inside.y0 and box.y1 <= inside.y1
            if within and not any(box.overlaps(each) for each in taken):
                taken.append(box)
                if far > FAR[0]:
                    line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
                    axes.annotate(
                        "", point, (dx * far, dy * far), textcoords="offset points", arrowprops=line, zorder=3
                    )
                return
    taken.append(text.get_window_extent())
