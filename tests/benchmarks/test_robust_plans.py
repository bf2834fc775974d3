"""The study of plans under wrong costs: its rows and its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptpipe.solver.planning.files.instance_file import load_workload
from adaptpipe.solver.planning.judging.robust import robustness
from adaptpipe.solver.planning.plan import Plan
from adaptpipe.solver.planning.rivals.today import todays
from adaptpipe.solver.planning.workload import Workload
from benchmarks import robust_plans
from benchmarks.instances import WORKLOADS
from benchmarks.robust_plans import Cell, Results, Row, main, measure, report


def test_rows_are_of_the_best_and_of_the_steadiest_plan() -> None:
    workload = load_workload(WORKLOADS, "llama2-7b-p4", sizes=(2,))
    fitting = [today for today in todays(workload) if today.fits]
    plans = [today.plan(workload) for today in fitting[:4]]
    base = fitting[-1]
    (row,) = measure(workload, plans[:1], [base], draws=3)
    assert (row.workload, row.steadiest, row.base_name) == ("llama2-7b-p4", False, base.name)
    assert (row.makespan, row.base) == (plans[0].makespan / 1e3, base.makespan / 1e3)
    found = robustness(plans[0], [base], draws=3)
    cell = row.cell("rank", 0.2, "fixed")
    assert cell is not None
    assert cell.mean == found.gain(0.2, "rank", "fixed").mean
    assert row.survives is found.survives()
    two = list(measure(workload, plans[::-1], [base], draws=3))
    assert [each.steadiest for each in two] == [False, True], "the last of them is not the steadiest"


def test_the_report_shows_every_way_to_run() -> None:
    cells = (
        Cell("all", 0.0, "fixed", 0.0512, 0.0, 0.05, 0.05),
        Cell("all", 0.1, "adaptive", 0.0312, 0.004, -0.01, 0.06),
        Cell("rank", 0.1, "fixed", -0.0123, 0.002, -0.0789, 0.06),
    )
    rows = (
        Row("a", False, 95.0, 100.0, "ZB-V, even", True, 1.0, cells),
        Row("a", True, 96.0, 100.0, "", False, 1.0, ()),
    )
    text = report(Results("2026-11-30", "a machine", 60, 40, {"a": rows}))
    assert "| a | 95.0 | 100.0 (ZB-V, even) | 5.1 | – | – | – | 3.1 ± 0.4 | – | – | – | – | yes |" in text
    assert "| a, steadiest | 96.0 |" in text
    assert "| a | – | – | -1.2 ± 0.2 | – | – | – | – | – | -7.9 |" in text


def test_workloads_are_merged_into_the_days_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def searched(workload: Workload, **options: object) -> tuple[Plan, ...]:
        return tuple(today.plan(workload) for today in todays(workload)[:2])

    monkeypatch.setattr(robust_plans, "search", searched)
    path = tmp_path / "found.json"
    for name in ("gpt6.2b-measured-p8", "llama2-7b-p4"):
        assert main(["--only", name, "--results", str(path), "--draws", "2"]) == 0
    printed = capsys.readouterr().out
    assert path.with_suffix(".md").read_text() == printed[printed.rindex("# What is left") :]
    assert printed.rindex("| llama2-7b-p4 |") < printed.rindex("| gpt6.2b-measured-p8 |"), "in the order of the file"
