"""Grid and chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Problem, Schedule, Timeline, Violation, simulate
from adaptpipe.solver.evaluate.chart import save_chart
from adaptpipe.solver.evaluate.grid import draw, legend, mark
from tests.strategies import problems, schedules_of

DATA: dict[str, Any] = {
    "name": "tiny",
    "pipeline": {"ranks": 2},
    "batch": {"samples": 2},
    "costs": {"forward": 3, "backward_input": 4, "backward_weight": 2},
    "memory": {"unit": "MB", "activation": 3, "retained": 1, "limit": 6},
    "links": {"latency": 5},
}
ROWS = [["0F0", "0F1", "0B0", "0I1", "0W1"], ["1F0", "1F1", "1B0", "1B1"]]


def tiny(**other: Any) -> Timeline:
    problem = Problem.from_dict(DATA | other)
    return simulate(problem, Schedule.parse(problem.placement, [1, 1], ROWS))


def test_grid() -> None:
    timeline = tiny()
    assert timeline.makespan == 37
    first, second = draw(timeline, width=37).splitlines()
    assert first.startswith("rank 0 |F0fF1f....")
    assert second.startswith("rank 1 |........F0fF1fB0bbbb")
    assert len(first) == len(second) == len("rank 0 ||") + 37
    assert "F forward, I input gradient, W weight gradient, B fused backward, . idle" in legend(timeline)
    assert "of the makespan" in legend(timeline)
    assert "of the span" in legend(timeline)


def test_ranges_of_units_are_told_apart_where_their_names_are_too_long() -> None:
    costs = {"forward": 4, "backward_input": 4, "weight_units": [4, 7]}
    problem = Problem.from_dict({"pipeline": {"ranks": 1}, "batch": {"samples": 1}, "costs": costs})
    timeline = simulate(problem, Schedule.parse(problem.placement, [1], [["0F0", "0I0", "0W0[0:1]", "0W0[1:2]"]]))
    assert draw(timeline, width=19) == "rank 0 |F0ffI0iiW0wwW0[1:2]|"


@given(st.data(), st.integers(1, 60))
def test_a_grid_row_shows_idle_where_the_rank_idles(data: st.DataObject, width: int) -> None:
    problem = data.draw(problems())
    timeline = simulate(problem, data.draw(schedules_of(problem)))
    lines = draw(timeline, width=width).splitlines()
    assert len(lines) == problem.ranks
    for rank, line in enumerate(lines):
        cells = line[line.index("|") + 1 : -1]
        assert len(cells) == width
        assert set(cells) <= set(".FIWBfiwb0123456789[:]")
        if timeline.work[rank] == 0:
            assert set(cells) == {"."}
        if timeline.work[rank] == timeline.makespan > 0:
            assert "." not in cells


def test_mark_puts_the_arrow_under_the_op() -> None:
    schedule = tiny().schedule
    text = mark(schedule, Violation(0, 3, ""), around=2)
    assert text == (
        "  position   1   2   3   4\n"
        "> rank 0   0F1 0B0 0I1 0W1\n"
        "                   ^^^\n"
        "  rank 1   1F1 1B0 1B1"
    )  # fmt: skip


def test_mark_of_something_missing_points_behind_the_row() -> None:
    text = mark(tiny().schedule, Violation(1, None, ""), around=2)
    assert "> rank 1   1B0 1B1   ?\n                     ^" in text


@given(st.data())
def test_mark_never_fails_and_the_arrow_points_at_the_op(data: st.DataObject) -> None:
    problem = data.draw(problems())
    schedule = data.draw(schedules_of(problem))
    rank = data.draw(st.integers(0, problem.ranks - 1))
    size = len(schedule.ops[rank])
    position = data.draw(st.none() | st.integers(0, size - 1)) if size else None
    lines = mark(schedule, Violation(rank, position, "")).splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("> "))
    arrow = lines[at + 1]
    expected = "?" if position is None else str(schedule.ops[rank][position])
    assert lines[at][arrow.index("^") : len(arrow)] == expected


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_chart_is_written(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"chart.{ending}"
    save_chart(tiny(), path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG" if ending == "png" else b"<?xml")
    if ending == "svg":
        text = content.decode()
        for word in ("rank 0", "rank 1", "of the makespan", "of the span", "limit", "6 / 6 MB", "F forward"):
            assert word in text


@settings(max_examples=8)
@given(st.data())
def test_every_timeline_can_be_drawn(data: st.DataObject) -> None:
    from adaptpipe.solver.evaluate.chart import chart

    problem = data.draw(problems())
    figure = chart(simulate(problem, data.draw(schedules_of(problem))))
    figure.canvas.draw()
    assert len(figure.axes[0].get_yticklabels()) == problem.ranks


def test_chart_refuses_other_endings_and_folders_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"c\.pdf: the ending is none of \.png, \.svg"):
        save_chart(tiny(), tmp_path / "c.pdf")
    with pytest.raises(InputError, match="cannot be written: No such file"):
        save_chart(tiny(), tmp_path / "missing" / "c.png")
