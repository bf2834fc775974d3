"""Files as they come: marks, links, devices, wrong endings, numbers out of reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptpipe.solver import InputError, Problem, Schedule, place
from adaptpipe.solver.files.reading import write_text

SMALL = {"pipeline": {"ranks": 2}, "batch": {"samples": 2}}
TEXT = """
[pipeline]
ranks = 2
[batch]
samples = 2
[costs]
forward = 1
backward_input = 1
backward_weight = 1
"""


def problem(**links: object) -> Problem:
    costs = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    return Problem.from_dict({**SMALL, "costs": costs, "links": links})


@pytest.mark.parametrize("name", ["marked.toml", "marked.TOML"])
def test_a_byte_order_mark_is_no_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TEXT, encoding="utf-8-sig")
    assert Problem.load(path).ranks == 2


def test_toml_under_another_name_is_told_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "problem.txt"
    path.write_text(TEXT)
    with pytest.raises(InputError, match=r"broken JSON: .* needs a name that ends in \.toml"):
        Problem.load(path)


def test_nested_toml_is_called_toml(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 100_000)
    with pytest.raises(InputError, match="broken TOML"):
        Problem.load(path)


def test_a_file_without_a_table_says_so(tmp_path: Path) -> None:
    path = tmp_path / "null.json"
    path.write_text("null")
    with pytest.raises(InputError, match="holds no table of keys"):
        Problem.load(path)


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "target.json"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(InputError, match="not a regular file"):
        write_text(folder, "text")
    assert folder.is_dir()


def test_a_name_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: File name too long"):
        write_text(tmp_path / ("x" * 300), "text")
    assert list(tmp_path.iterdir()) == []


def test_a_link_too_slow_to_count_is_named() -> None:
    slow = problem(bandwidth=1e-300, bytes=1)
    with pytest.raises(
        InputError, match=r"a message from rank \d to rank \d takes over 2\^\d+ ticks.* raise links\.bandwidth"
    ):
        slow.instance((1, 1))


def test_a_mistyped_number_of_ranks_does_not_eat_the_memory() -> None:
    costs = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    with pytest.raises(InputError, match=r"pipeline\.ranks: expected `int` <= 4096"):
        Problem.from_dict({"pipeline": {"ranks": 100_000_000}, "batch": {"samples": 2}, "costs": costs})


def test_a_schedule_without_micro_batches_is_refused() -> None:
    with pytest.raises(InputError, match="sizes: the list is empty"):
        Schedule(place("linear", 2), (), ((), ()))
