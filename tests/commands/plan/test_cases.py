"""Many cases: which there are, how they are shared out, kept, taken up again and merged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adaptpipe.commands.plan import cases
from adaptpipe.commands.plan.asking import Effort
from adaptpipe.commands.plan.cases import (
    Case,
    Line,
    cases_of,
    file_of,
    keep_lines,
    merged,
    read_lines,
    require_any,
    resume,
    run_cases,
    shard_of,
)
from adaptpipe.solver import InputError, NoAnswerError

from .tiny import write_instance

EFFORT = Effort(1.0, 1, 0)
MODEL = {"model": "gemma2-9b", "cluster": "h100x8"}
FOUR = ["ranks=4,8", "memory=80,141"]


def line(case: Case) -> Line:
    """An answer that takes no time."""
    return Line(dict(case.changes), case.key, {"makespan": 1})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """The cases that were answered, at no cost."""
    found: list[Case] = []

    def answer(case: Case) -> Line:
        found.append(case)
        return line(case)

    monkeypatch.setattr(cases, "answer_case", answer)
    return found


def test_every_combination() -> None:
    found = cases_of(MODEL, FOUR, EFFORT)
    assert [tuple(case.changes.values()) for case in found] == [("4", "80"), ("4", "141"), ("8", "80"), ("8", "141")]
    assert (found[1].question.ranks, found[1].question.memory) == (4, 141.0)
    assert found == cases_of(MODEL, [" ".join(FOUR)], EFFORT)
    assert len({case.key for case in found}) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--what-if: give axes and their values, as in ranks=4,8 memory=80,141"),
        (["ranks=4", "ranks=8"], "--what-if: ranks comes twice; give all its values at once, as in ranks=A,B"),
        (["ranks=4,0"], "--ranks 0: must be at least 1"),
        (
            [f"{key}=" + ",".join(map(str, range(1, 401))) for key in ("ranks", "tp")],
            "--what-if: 160,000 cases; 100,000",
        ),
    ],
)
def test_cases_that_are_none(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cases_of(MODEL, words, EFFORT)


@pytest.mark.parametrize("text", ["1", "x/2", "1/", "²/3", "-1/2"])
def test_shards_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match=f"--shard {text}: must be i/n, as in 2/8"):
        shard_of(text)


@pytest.mark.parametrize("text", ["0/4", "5/4"])
def test_shards_are_counted_from_one(text: str) -> None:
    with pytest.raises(InputError, match=f"--shard {text}: parts are counted from 1, so it must be 1/4 to 4/4"):
        shard_of(text)


def test_there_is_a_shard() -> None:
    with pytest.raises(InputError, match="--shard 0/0: there must be one part at least"):
        shard_of("0/0")


def test_shards_merge_to_the_whole(tmp_path: Path, asked: list[Case]) -> None:
    every = cases_of(MODEL, ["ranks=4,8,16", "tp=1,2"], EFFORT)
    paths = [tmp_path / f"{part}.jsonl" for part in range(3)]
    for part, path in enumerate(paths):
        resume(every[part::3], path, 1, lambda *_: None)
    assert len(asked) == len(every)
    assert {each.key for each in merged(paths)} == {case.key for case in every}
    assert merged([*paths, paths[0]]) == merged(paths)


def test_finished_cases_are_not_asked_again(tmp_path: Path, asked: list[Case]) -> None:
    """A job that is killed while it writes leaves half a line; the rest is kept and only what is missing is asked."""
    path, every = tmp_path / "cases.jsonl", cases_of(MODEL, FOUR, EFFORT)
    resume(every[:2], path, 1, lambda *_: None)
    with path.open("a") as file:
        file.write('{"case": {"ran')
    told: list[tuple[int, int]] = []
    lines = resume(every, path, 1, lambda _, count, todo: told.append((count, todo)))
    assert [case.key for case in asked] == [case.key for case in every]
    assert told == [(1, 2), (2, 2)]
    assert [each.key for each in lines] == [case.key for case in every]
    assert read_lines(path) == lines


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, every = tmp_path / "cases.jsonl", cases_of(MODEL, FOUR, EFFORT)

    def answer(case: Case) -> Line:
        if case is every[1]:
            raise KeyboardInterrupt
        return line(case)

    monkeypatch.setattr(cases, "answer_case", answer)
    with pytest.raises(KeyboardInterrupt):
        resume(every, path, 1, lambda *_: None)
    assert [each.key for each in read_lines(path)] == [every[0].key]


@pytest.mark.timeout(240)
def test_several_at_a_time(tmp_path: Path) -> None:
    """Questions that cannot be asked have their reason as an answer, from other processes too."""
    options = {"instance": write_instance(tmp_path, speed=[1.0, 0.5])}
    every = cases_of(options, ["ranks=3,4,5"], EFFORT)
    found = {each.case["ranks"]: each.reason for each in run_cases(every, 2)}
    assert found == {
        str(ranks): f"--ranks {ranks}: the instance has 2 ranks that are not all alike; ask for fewer"
        for ranks in (3, 4, 5)
    }


def test_another_limit_is_another_case() -> None:
    (one,), (other,) = (cases_of(MODEL, ["ranks=4"], Effort(limit, 1, 0)) for limit in (1.0, 2.0))
    assert one.key != other.key


def test_each_shard_has_a_file_of_its_own(tmp_path: Path) -> None:
    """In a folder that is not there yet, too: the jobs of an array would write one file."""
    assert file_of(tmp_path, 2, 8) == tmp_path / "cases-2-of-8.jsonl"
    assert file_of(tmp_path / "cases", 2, 8) == tmp_path / "cases" / "cases-2-of-8.jsonl"
    assert (tmp_path / "cases").is_dir()
    assert file_of(tmp_path / "x.jsonl", 2, 8) == tmp_path / "x.jsonl"
    assert file_of(None, 1, 1) is None
    with pytest.raises(InputError, match=r"no/x.jsonl: the folder .*no does not exist"):
        file_of(tmp_path / "no" / "x.jsonl", 1, 1)


def write_broken(path: Path, _: Any) -> None:
    """A file of something else."""
    path.write_text('{"a": 1}\n{"b": 2}\n')


def write_typed(path: Path, lines: tuple[Line, ...]) -> None:
    """A file with a broken line in the middle."""
    keep_lines(path, lines)
    path.write_text("nonsense\n" + path.read_text())


@pytest.mark.parametrize("write", [write_broken, write_typed])
def test_files_that_are_none(tmp_path: Path, write: Callable[[Path, tuple[Line, ...]], None]) -> None:
    path = tmp_path / "cases.jsonl"
    write(path, (Line({}, "a"), Line({}, "b")))
    with pytest.raises(InputError, match=r"cases.jsonl: line 1: .*; it is no file of --what-if"):
        read_lines(path)
    with pytest.raises(InputError, match="--merge: give the files to merge"):
        merged([])


def test_no_case_with_a_plan_is_no_answer() -> None:
    require_any((Line({}, "a", None, "why"), Line({}, "b", {})))
    with pytest.raises(NoAnswerError, match="none of the 2 cases has a plan; the first: why"):
        require_any((Line({}, "a", None, "why"), Line({}, "b", None, "else")))
