"""The granularity study: its problems are what they say, its tables and chart come out of kept results."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.granularity import __main__ as command
from benchmarks.granularity.cases import SETS, SIZE, Case, CaseSet
from benchmarks.granularity.raw import Answer, Book, Executed, Study, read, write
from benchmarks.granularity.report import gain, report, text

CASES = [case for rows in SETS for case in rows.cases]

BASE = Answer(1000, 950, "FEASIBLE", "problem", "anneal", 3.0, (4, 4, 4), 0.0, 0.0)
ALL = Answer(960, 950, "FEASIBLE", "sizes", "anneal", 3.0, (2, 4, 4, 2), 0.5, 0.25)


def study(**answers: Answer) -> Study:
    """A study of the first case of the first set."""
    return Study(CASES[0].name, SETS[0].name, "2026-11-30", "a machine", 10.0, 2, 0, answers)


def book(**answers: Answer) -> Book:
    """A book with that study alone."""
    return Book({f"{SETS[0].name}: {CASES[0].name}": study(**answers)})


@pytest.mark.parametrize("rows", SETS, ids=[rows.name for rows in SETS])
def test_cases_of_a_set_have_names_of_their_own(rows: CaseSet) -> None:
    names = [case.name for case in rows.cases]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.ranks <= 8 and case.share is not None and not case.uneven],
    ids=lambda case: str(case.name),
)
def test_a_micro_batch_of_four_costs_what_was_published(case: Case) -> None:
    problem = case.problem()
    one = Case(case.placement, case.ranks, case.microbatches, case.model, share=None, saving=case.saving).problem()
    assert case.share is not None
    mine, published = problem.instance((SIZE,) * case.microbatches), one.instance((1,) * case.microbatches)
    for name in ("forward", "backward_input", "backward_weight", "backward"):
        ours, theirs = getattr(mine, name), getattr(published, name)
        assert abs(ours - theirs).max() <= 2 * SIZE + 2 * case.units, name
    assert mine.activation[0, 0] == published.activation[0, 0] // SIZE * SIZE
    small = problem.instance((1,) * SIZE * case.microbatches).forward[0, 0]
    fixed = case.share * published.forward[0, 0]
    assert abs(small - fixed - (published.forward[0, 0] - fixed) / SIZE) <= 2


def test_gain_is_over_the_order_alone() -> None:
    assert gain(study(none=BASE, all=ALL), "all") == pytest.approx(0.04)
    assert gain(study(all=ALL), "all") is None
    assert gain(study(none=BASE), "all") is None


def test_a_row_tells_gain_gap_and_what_was_chosen() -> None:
    line = next(line for line in text(book(none=BASE, all=ALL), "chart.svg").splitlines() if CASES[0].name in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:2] == [CASES[0].name, "1,000"]
    assert cells[-3:] == ["4.00%", "1.05%*", "4: 2, 4 (2 times), 2; 50% fused, 25% cut"]
    proven = msgspec.structs.replace(ALL, bound=960, status="OPTIMAL")
    assert "| opt* |" in text(book(none=BASE, all=proven), "chart.svg")


def test_a_row_without_a_schedule_says_so() -> None:
    assert "none fits" in text(book(all=ALL), "chart.svg")


def test_what_was_executed_stands_beside_the_prediction() -> None:
    kept = book(none=BASE, all=ALL)
    kept.executed["x"] = Executed(
        "emulated p8", "2026-11-30", "a machine", 20, (0.1, 0.09), (0.11, 0.1), 0.1, 0.08, (0.07, 0.09), "1 2 1"
    )
    found = text(kept, "chart.svg")
    assert "| emulated p8 | 20 | 100.0 to 90.0 ms | 110.0 to 100.0 ms | 10.00% | 8.00% (7.00% to 9.00%) |" in found


def test_report_and_results_are_files(tmp_path: Path) -> None:
    kept = tmp_path / "day.json"
    write(kept, book(none=BASE, fused=ALL, all=ALL))
    for path in report(read(kept), kept.with_suffix(".md"), kept.with_suffix(".svg")):
        assert path.stat().st_size > 100
    assert read(tmp_path / "none.json") == Book()


def test_the_command_solves_and_reports_a_case(tmp_path: Path) -> None:
    kept = tmp_path / "day.json"
    words = ["--set", "one-size", "--only", "linear * m8 1x* -4%", "--time-limit", "0.4", "--results", str(kept)]
    assert command.main(words) == 0
    (found,) = read(kept).studies.values()
    assert set(found.answers) == {"none", "fused", "units", "all"}
    assert found.answers["none"].fused == found.answers["none"].cut == 0
    assert found.time_limit_s == pytest.approx(1.2)
    assert kept.with_suffix(".svg").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--only nothing", "no case is named 'nothing'"),
        ("--time-limit 0", "0 is not a positive number"),
        ("--report", "there are no results to report"),
        ("--executed --set models", "it has cases of its own"),
    ],
)
def test_what_cannot_be_done_is_told(
    tmp_path: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([*words.split(), "--results", str(tmp_path / "none.json")]) == 2
    assert message in capsys.readouterr().err


def test_other_files_are_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("[1]")
    assert command.main(["--report", "--results", str(tmp_path / "x.json")]) == 2
    assert "not the results of this study" in capsys.readouterr().err
