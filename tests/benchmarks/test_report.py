"""The benchmark's tables and chart come out of kept results; a run keeps what is done."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from adaptpipe.solver import Result
from benchmarks import raw, solve
from benchmarks.gap_chart import FIRST_S, curve
from benchmarks.raw import Heuristic, Run, Step
from benchmarks.report import percent, text
from benchmarks.rivals import Candidate, Rivals, rivals
from benchmarks.sets import SETS

RUN = Run(
    instance="v-1.5b-p8-m24-1x",
    objective="makespan",
    date="2026-11-30",
    machine="a machine, 2 cores, Python 3.11.7",
    time_limit_s=60.0,
    workers=2,
    seed=0,
    start_s=1.5,
    unit="us",
    status="FEASIBLE",
    value=1010,
    bound=1000,
    makespan=1010,
    span=990,
    bubble=0.25,
    span_bubble=0.125,
    found_by="anneal",
    time_s=60.01,
    reason="",
    steps=(Step(0.01, 1200, 900, "ZB-V"), Step(0.5, 1100, 900, "greedy"), Step(30.0, 1010, 1000, "anneal")),
    heuristics=(
        Heuristic("GPipe", None, "over limit"),
        Heuristic("ZB-V", 1200, "FEASIBLE"),
        Heuristic("greedy", 1100, "FEASIBLE"),
    ),
)
"""A run of 60 s, open at the end."""


def run_of(instance: str = RUN.instance, **changes: object) -> Run:
    """That run, of an instance and with what the test changes."""
    return msgspec.structs.replace(RUN, instance=instance, **changes)


def row_of(report: str, instance: str) -> dict[str, str]:
    """Cells of a row by the heads of its table."""
    head: list[str] = []
    for line in report.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "problem":
            head = cells
        elif cells[0] == instance:
            return dict(zip(head, cells, strict=True))
    raise AssertionError(f"no row {instance}")


def test_a_row_tells_gaps_to_the_final_bound() -> None:
    cells = row_of(text({"v-1.5b-p8-m24-1x": run_of()}, "chart.svg"), "v-1.5b-p8-m24-1x")
    assert cells["bound"] == "1,000"
    assert cells["heuristic"] == "10.00% greedy"
    assert (cells["1 s"], cells["10 s"], cells["60 s"]) == ("10.00%", "10.00%", "1.00%")
    assert (cells["value"], cells["gap"], cells["found by"]) == ("1,010", "1.00%", "anneal")
    assert cells["proof"] == "–"
    assert cells["makespan bubble"] == "0.2500"


def test_a_proven_row_has_the_time_of_its_proof() -> None:
    proven = run_of(status="OPTIMAL", value=1000, time_s=4.0, steps=(Step(4.0, 1000, 1000, "cpsat"),))
    cells = row_of(text({"v-1.5b-p8-m24-1x": proven}, "chart.svg"), "v-1.5b-p8-m24-1x")
    assert (cells["1 s"], cells["10 s"], cells["60 s"]) == ("–", "0", "0")
    assert (cells["gap"], cells["proof"]) == ("0", "4.00 s")


def test_a_shorter_run_says_nothing_about_later_seconds() -> None:
    run = run_of(time_limit_s=5.0, time_s=4.99)
    assert run.best_at(1) == 1100
    assert run.best_at(10) is None
    assert run_of(time_limit_s=5.0, time_s=3.0, status="OPTIMAL").best_at(10) == 1100, "no later second changes it"


def test_span_rows_stand_beside_the_published_bubble() -> None:
    name = "zb-table8-6.2b-p16-m48-v"
    cells = row_of(text({f"{name} (span)": run_of(name, objective="span")}, "chart.svg"), name)
    assert (cells["span bubble"], cells["published ZB-V"], cells["makespan bubble"]) == ("0.1250", "0.0697", "0.2500")


def test_summary_counts_rows_proofs_and_gaps() -> None:
    runs = {
        "v-1.5b-p8-m24-1x": run_of(),
        "v-1.5b-p8-m64-1x": run_of("v-1.5b-p8-m64-1x", status="OPTIMAL", value=1000, time_s=2.0),
    }
    assert "| v1x | 2 of 7 | 1 | 0.50% | 1.00% | 62 s |" in text(runs, "chart.svg")


def test_machines_and_dates_of_merged_parts_are_named() -> None:
    one = {"v-1.5b-p8-m24-1x": run_of()}
    assert "\n2026-11-30, a machine, 2 cores, Python 3.11.7; at most 60 s a row, 2 workers, seed 0.\n" in text(one, "c")
    both = one | {"v-1.5b-p4-m8-1x": run_of("v-1.5b-p4-m8-1x", date="2026-12-01", machine="another")}
    assert "- 2026-12-01, another; at most 60 s a row, 2 workers, seed 0 (small)." in text(both, "c")


def test_a_row_without_a_schedule_says_why() -> None:
    run = run_of(status="UNKNOWN", value=None, bubble=None, span_bubble=None, found_by="", steps=(), reason="no luck")
    report = text({"v-1.5b-p8-m24-1x": run}, "chart.svg")
    assert row_of(report, "v-1.5b-p8-m24-1x")["value"] == "–"
    assert "- v-1.5b-p8-m24-1x: UNKNOWN, no luck" in report


@pytest.mark.parametrize(("share", "shown"), [(None, "–"), (0.0, "0"), (1e-6, "<0.01%"), (0.0036, "0.36%")])
def test_only_no_gap_is_shown_as_none(share: float | None, shown: str) -> None:
    assert percent(share) == shown


def test_a_curve_falls_and_ends_with_the_run() -> None:
    seconds, gaps = curve(run_of())
    assert seconds == [FIRST_S, 0.5, 30.0, 60.01]
    assert gaps == pytest.approx([20, 10, 1, 1])
    assert curve(run_of(steps=())) == ([], [])


def test_kept_results_make_table_and_chart(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    raw.write(kept, {"v-1.5b-p8-m24-1x": run_of()})
    assert solve.main(["--report", "--results", str(kept)]) == 0
    assert "![gap against time](kept.svg)" in kept.with_suffix(".md").read_text(encoding="utf-8")
    chart = kept.with_suffix(".svg").read_text(encoding="utf-8")
    assert "v-1.5b-p8-m24-1x 1.00%" in chart
    assert solve.main(["--report", "--results", str(kept)]) == 0
    assert kept.with_suffix(".svg").read_text(encoding="utf-8") == chart, "the same results give the same file"


@pytest.fixture
def _warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve, "_load_compiled", lambda workers: None)
    monkeypatch.setattr(solve, "_start_seconds", lambda: 1.0)


@pytest.mark.usefixtures("_warm")
def test_a_part_is_merged_into_what_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    raw.write(kept, {"v-1.5b-p8-m24-1x": run_of()})
    arguments = ["--set", "small", "--only", "linear-1.5b-p4-m8-[12]x", "--time-limit", "20", "--results", str(kept)]
    assert solve.main(arguments) == 0
    runs = raw.read(kept)
    assert set(runs) == {"v-1.5b-p8-m24-1x", "linear-1.5b-p4-m8-1x", "linear-1.5b-p4-m8-2x"}
    run = runs["linear-1.5b-p4-m8-1x"]
    assert (run.status, run.value, run.bound) == ("OPTIMAL", 456300, 456300), "4563 in 0.1 ms: a known optimum"
    assert run.steps[-1].value == run.value
    assert {heuristic.method for heuristic in run.heuristics} >= {"1F1B", "ZB-H1", "greedy"}
    assert next(h for h in run.heuristics if h.method == "ZB-V").standing == "n/a"
    assert next(h for h in run.heuristics if h.method == "ZB-H2").standing == "over limit"


@pytest.mark.usefixtures("_warm")
def test_ctrl_c_keeps_the_rows_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = iter((run_of("linear-1.5b-p4-m8-1x"), None))

    def run_row(*_: object) -> Run:
        run = next(done)
        if run is None:
            raise solve.Interrupted
        return run

    monkeypatch.setattr(solve, "run_row", run_row)
    kept = tmp_path / "kept.json"
    assert solve.main(["--only", "linear-1.5b-p4-m8-*", "--results", str(kept)]) == 130
    assert list(raw.read(kept)) == [next(row.key for rows in SETS for row in rows.rows if "linear-1.5b-p4" in row.key)]
    assert kept.with_suffix(".md").exists()
    assert "interrupted; the rows that are done are kept" in capsys.readouterr().err


def test_an_interrupted_search_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = Result("auto", "makespan", None, 0, 0.1, reason="interrupted", interrupted=True)
    monkeypatch.setattr(solve, "solve", lambda *_, **__: interrupted)
    with pytest.raises(solve.Interrupted):
        solve.run_row(SETS[0].rows[0], 1.0, 1, 0, 1.0, lambda progress: None)


def test_no_row_of_a_name_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert solve.main(["--only", "zb-table4*", "--results", str(tmp_path / "kept.json")]) == 2
    assert "no row is named 'zb-table4*'" in capsys.readouterr().err


def test_the_best_rival_keeps_the_limit() -> None:
    known = Rivals(
        "repository",
        "commit",
        "2026-11-30",
        (),
        {},
        (
            Candidate("a", "over", 90, 80, fits=False),
            Candidate("a", "slow", 120, 85, fits=True),
            Candidate("a", "fast", 100, 95, fits=True),
            Candidate("b", "failed", note="AssertionError"),
        ),
    )
    assert known.best("a", "makespan") == ("fast", 100)
    assert known.best("a", "span") == ("slow", 85)
    assert known.best("b", "makespan") is None


def test_kept_rivals_are_of_our_rows_and_named() -> None:
    known = rivals()
    rows = {row.instance for rows in SETS for row in rows.rows}
    assert {candidate.instance for candidate in known.candidates} <= rows
    assert {candidate.function for candidate in known.candidates} <= set(known.functions)
    assert all(candidate.makespan or candidate.note for candidate in known.candidates)
