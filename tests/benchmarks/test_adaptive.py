"""The study of adaptive execution: its table, and that what it runs keeps its limits."""

from __future__ import annotations

import pytest

from adaptpipe.solver import simulate
from adaptpipe.solver.heuristics import one_f_one_b_split, zb_h1
from benchmarks import adaptive
from benchmarks.adaptive import SLACK, Results, Row, measure, report


def test_the_report_says_what_holds_and_where_it_is_worst() -> None:
    rows = (
        Row(4, SLACK, "sigma 0.3", "sigma=0.3", 100, 1000.0, 940.0, 0.93, 0.06, 0.004),
        Row(4, SLACK, "slow link", "slow_link=1>2:8000", 1, 1000.0, 960.0, 0.96, 0.04, 0.0),
        Row(8, "ZB-H1, its peak", "sigma 0.3", "sigma=0.3", 100, 1000.0, 1006.0, 1.0, -0.006, 0.001),
        Row(8, "ZB-H1, its peak", "slow link", "slow_link=3>4:8000", 1, 1000.0, 1000.0, 1.0, 0.0, 0.0),
    )
    text = report(Results("2026-11-30", "a machine", 12.0, rows))
    assert "worse: **no**. The worst is 1.0060, ZB-H1, its peak on 8 ranks, noise sigma 0.3." in text
    assert "slow link: **no**. The least is 0.960, on 4 ranks, slow link." in text
    assert "| ZB-H1, its peak | 1.006 ± 0.001 | 1.000 |" in text
    assert "Noises, on 4 ranks: sigma 0.3 `sigma=0.3`; slow link `slow_link=1>2:8000`." in text
    better = report(Results("2026-11-30", "a machine", 12.0, rows[:1]))
    assert better.count("**yes**") == 2


def test_every_schedule_runs_under_every_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "greedy", lambda given, deadline: zb_h1(given))
    monkeypatch.setattr(adaptive, "anneal", lambda given, start, iterations: start)
    rows = list(measure(((3, 6),), runs=3))
    assert len(rows) == 8 * 10
    assert {row.runs for row in rows} == {1, 3}
    planned = {row.schedule: row for row in rows if row.noise == "none"}
    one_more = adaptive.problem(3, 6, [4 * adaptive.ACTIVATION] * 3)
    assert planned[SLACK].static_us == simulate(one_more, one_f_one_b_split(one_more)).makespan
    assert planned["1F1B, W placed, p + 1"].static_us == planned[SLACK].adaptive_us
    assert min(row.gain for row in rows) > -0.02
