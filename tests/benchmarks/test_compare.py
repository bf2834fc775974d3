"""The benchmark that compares every method with the solver."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from adaptpipe.solver.heuristics import LITERATURE
from benchmarks import compare
from benchmarks.instances import load


@pytest.mark.timeout(300)
def test_tables_and_chart_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments = ["--instance", "linear-1.5b-p4-m8-1x", "--time-limit", "0.5", "--output", str(folder)]
    assert compare.main(arguments) == 0
    assert {path.name for path in folder.iterdir()} == {
        "table.json", "table.csv", "table.md", "pareto.png", "pareto.svg",
    }  # fmt: skip
    text = (folder / "table.md").read_text(encoding="utf-8")
    assert "Made by `python -m benchmarks.compare --instance linear-1.5b-p4-m8-1x`" in text
    for link in ("../../instances/linear-1.5b-p4-m8-1x.toml", "../../../docs/comparing.md"):
        assert (Path(compare.__file__).parent / "results" / "any" / link).resolve().is_file()
    methods = {row["method"] for row in msgspec.json.decode((folder / "table.json").read_bytes())["rows"]}
    assert methods == {"auto", *(method.name for method in LITERATURE)}


def test_the_row_that_is_published_can_be_had_on_every_placement() -> None:
    problem = load(compare.INSTANCE)
    assert problem.layers == (4,) * 8
