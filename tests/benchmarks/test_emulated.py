"""The benchmark of emulated ranks: its figures and its table."""

from __future__ import annotations

import pytest

from adaptpipe.solver import check
from benchmarks.emulated import Results, Row, problem, report, schedules


def test_the_table_has_every_row_and_the_farthest_off() -> None:
    rows = (
        Row("1F1B", "static", "none", (0.7, 0.7, 0.7), (0.7, 0.707, 0.9)),
        Row("ZB-H1", "adaptive", "sigma=0.3", (0.5, 0.6, 0.4), (0.48, 0.57, 0.38)),
    )
    assert rows[0].ratio == pytest.approx(1.01)
    assert rows[1].ratio == pytest.approx(0.95)
    text = report(Results("2026-11-30", "a machine", (0.0005, 0.0006), rows))
    assert "which take 0.50 ms and 0.60 ms between ops of 5 ms and 20 ms" in text
    assert "| none | 1F1B | static | 700.0 ms | 707.0 ms | 1.010 |" in text
    assert "| sigma=0.3 | ZB-H1 | adaptive | 500.0 ms | 480.0 ms | 0.950 |" in text
    assert "Farthest off: 0.950, ZB-H1, adaptive, noise sigma=0.3." in text


def test_what_runs_keeps_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.emulated.SEARCH_S", 0.5)
    for name, schedule in schedules(problem()).items():
        assert not check(problem(), schedule), name
