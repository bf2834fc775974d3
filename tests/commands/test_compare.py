"""`adaptpipe compare`: tables, files and chart."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.commands.comparing.cells import short_table
from adaptpipe.commands.comparing.chart import draw
from adaptpipe.commands.comparing.files import markdown
from adaptpipe.solver import Granularity, Problem, Schedule, check, compare
from adaptpipe.solver.heuristics import LITERATURE
from benchmarks.instances import load
from tests.commands.cli import PROBLEM, answer, call, write_problem
from tests.strategies import problems


def test_a_table_with_reasons_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    result = call("compare", write_problem(tmp_path), "--methods", "GPipe, zbh1, ZB-V", "-o", folder)
    assert result.exit_code == 0
    for word in ("makespan", "bubble of", "span", "memory", "messages", "weights", "gap", "ZB-H1"):
        assert word in result.stdout
    assert "parameter copies" in (folder / "table.md").read_text()
    assert "ZB-V: needs placement v: pipeline.layers_per_stage: the 2 stages have 2 layers in all" in result.stdout
    assert "UNKNOWN" not in result.stdout
    assert "| ZB-V | – | n/a |" in (folder / "table.md").read_text()
    assert {path.name for path in folder.iterdir()} == {
        "table.json", "table.csv", "table.md", "pareto.png", "pareto.svg", "GPipe.json", "GPipe.png", "ZB-H1.json",
        "ZB-H1.png",
    }  # fmt: skip
    problem = Problem.from_dict(PROBLEM)
    assert check(problem, Schedule.load(folder / "ZB-H1.json")) == ()
    rows = msgspec.json.decode((folder / "table.json").read_bytes())["rows"]
    with (folder / "table.csv").open() as file:
        assert [row["makespan"] for row in csv.DictReader(file)] == [str(row.get("makespan") or "") for row in rows]
    markdown = (folder / "table.md").read_text()
    lines = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in lines] == ["| method", "| GPipe", "| ZB-H1", "| ZB-V"]
    assert len({line.count("|") for line in lines}) == 1
    assert "![bubble against memory](pareto.png)" in markdown


def test_placements_of_the_same_layers(tmp_path: Path) -> None:
    problem = write_problem(tmp_path, pipeline={"ranks": 2, "layers_per_stage": 4})
    data = answer(call("compare", problem, "--methods", "interleaved,zbv,1f1b", "--json"))
    assert [(row["label"], row["placement"], row["stages_per_rank"]) for row in data["rows"]] == [
        ("1F1B", "linear", 1),
        ("Interleaved1F1B v=2", "loop", 2),
        ("Interleaved1F1B v=4", "loop", 4),
        ("ZB-V", "v", 2),
    ]
    assert data["front"] == []


def test_the_solver_at_every_memory(tmp_path: Path) -> None:
    problem = write_problem(tmp_path, pipeline={"ranks": 2, "layers_per_stage": 2}, batch={"samples": 4})
    folder = tmp_path / "out"
    result = call("compare", problem, "--time-limit", 1, "-o", folder, "--json")
    data = answer(result)
    rows = {row["label"]: row for row in data["rows"]}
    best = min(row["makespan"] for row in data["rows"] if row["fits"])
    auto = [row for label, row in rows.items() if label.startswith("auto on")]
    assert min(row["makespan"] for row in auto) == best
    front = data["front"]
    assert [(each["own"], each["slices"] > 1) for each in front if each["own"]] == [(True, False), (True, True)]
    for each in front:
        for row in data["rows"]:
            same = row["makespan"] is not None and (row["slices"] > 1) == (each["slices"] > 1)
            if same and max(row["peak_memory"]) <= min(each["limit"]):
                assert each["makespan"] <= row["makespan"]
    assert (folder / "pareto.svg").stat().st_size < 200_000
    assert "the problem's" in (folder / "table.md").read_text()
    assert ", 6 MB\n" in result.stderr, "progress says on which placement, within which memory"
    text = call("compare", problem, "--time-limit", 0.5).stdout
    assert text.count("the solver at the memory of the heuristics") == 1


def test_the_chart_names_every_point_once() -> None:
    problem = Problem.from_dict(
        PROBLEM | {"pipeline": {"ranks": 4, "layers_per_stage": 4}, "batch": {"samples": 8}, "name": "chart"}
    )
    found = compare(problem, time_limit=0.5)
    figure = draw(found)
    (axes,) = figure.axes
    named = ", ".join(text.get_text() for text in axes.texts)
    for row in found.rows:
        if row.timeline is not None and row.method.build is not None:
            assert row.label in named
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:index])
    assert axes.get_xlim()[0] == 0
    assert axes.get_ylim()[0] <= 0
    assert "chart: 4 ranks, 8 samples" in axes.get_title("left")
    assert "MB" in axes.get_xlabel()


@settings(max_examples=8)
@given(st.data())
def test_any_problem_is_compared_told_and_drawn(data: st.DataObject) -> None:
    problem = data.draw(problems(max_ranks=3, max_samples=4))
    problem = replace(problem, layers=tuple(data.draw(st.integers(1, 3)) for _ in range(problem.stages)))
    granularity = Granularity.parse(data.draw(st.sampled_from(["all", "none", "units"])))
    found = compare(problem, time_limit=0.1, workers=1, granularity=granularity)
    text = markdown(found)
    for row in found.rows:
        assert f"| {row.label} |" in text
    if any(row.timeline is not None for row in found.rows):
        draw(found)


def test_a_screen_has_room_for_the_tables() -> None:
    """Every method beside each other, in a table of 120 letters."""
    problem = load("zb-table5-6.2b-p8-m24")
    found = compare(problem, [method.name for method in LITERATURE])
    head, rows = short_table(found)
    assert len(rows) == len(found.rows)
    widths = [
        max(max(map(len, name.splitlines())), *(len(row[index]) for row in rows)) for index, name in enumerate(head)
    ]
    assert sum(widths) + 2 * len(widths) <= 120


def test_a_schedule_over_the_limit_is_marked(tmp_path: Path) -> None:
    problem = write_problem(tmp_path, memory={"unit": "MB", "activation": 3, "limit": 5})
    result = call("compare", problem, "--methods", "GPipe,greedy")
    assert result.exit_code == 0
    assert re.search(r"^ *GPipe .* over *$", result.stdout, re.MULTILINE)
    assert "Over the memory limit of 5 MB: GPipe (6 MB)." in result.stdout
    result = call("compare", problem, "--methods", "GPipe")
    assert result.exit_code == 1
    assert "tiny: none of the methods has a schedule within the limits" in result.stderr


def test_what_several_methods_lack_is_said_once(tmp_path: Path) -> None:
    result = call("compare", write_problem(tmp_path), "--methods", "1f1b,interleaved,bfs,seq1f1b,zbv")
    assert "Interleaved1F1B, LoopedBFS: needs several stages on each rank" in result.stdout
    assert result.stdout.count("needs several stages") == 1
    costs = {key: {"per_sample": 3} for key in ("forward", "backward_input", "backward_weight")}
    batch = {"samples": 2, "microbatch_sizes": [1, 2]}
    problem = write_problem(tmp_path, batch=batch, costs=costs, memory={}, links={"latency": 1})
    result = call("compare", problem, "--methods", "1f1b,seq1f1b")
    assert "Seq1F1B k=2, Seq1F1B k=4: batch.slices: given while 2 micro-batch sizes are allowed" in result.stdout
    assert "divisions of the batch" not in result.stdout


def test_nothing_to_compare(tmp_path: Path) -> None:
    problem = write_problem(tmp_path)
    result = call("compare", problem, "--methods", "ZB-V", "-o", tmp_path / "none")
    assert result.exit_code == 1
    assert "tiny: none of the methods has a schedule" in result.stderr
    assert not (tmp_path / "none" / "pareto.png").exists()
    result = call("compare", problem, "--methods", ",")
    assert result.exit_code == 2
    assert "--methods: no method is named; write --methods 1F1B,ZB-H1, or leave it out for all" in result.stderr
    result = call("compare", problem, "--methods", "magic")
    assert result.exit_code == 2
    (tmp_path / "file").write_text("")
    result = call("compare", problem, "--methods", "GPipe", "-o", tmp_path / "file")
    assert result.exit_code == 2
    assert "cannot be made" in result.stderr


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("adaptpipe.commands.common.TemporaryFile", refused)
    result = call("compare", write_problem(tmp_path), "-o", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--output: the folder {tmp_path} cannot be written to (Permission denied); choose another" in result.stderr
    assert "auto" not in result.stderr
    result = call("compare", write_problem(tmp_path), "-o", tmp_path / "problem.json")
    assert "problem.json cannot be made (File exists); choose another" in result.stderr


def test_large_numbers_of_bytes_have_no_exponent(tmp_path: Path) -> None:
    memory: dict[str, object] = {"activation": 60_000}
    result = call("compare", write_problem(tmp_path, memory=memory), "--methods", "gpipe")
    assert "120,000" in result.stdout
    memory = {"unit": "KB", "activation": 60_000_000}
    result = call("solve", write_problem(tmp_path, memory=memory), "--method", "gpipe")
    assert "120,000,000 KB on every rank" in result.stdout
