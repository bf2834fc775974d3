"""Cells and tables: what is read, and what is refused with its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Kind, Op, explicit
from adaptpipe.solver.pytorch.actions import Action, Transfer, Upkeep, parse_cell
from adaptpipe.solver.pytorch.table import parse_table, placement_of, read_table, write_table

NUMBERS = st.integers(0, 10**9 - 1)
OPS = st.builds(Op, NUMBERS, st.sampled_from(Kind), NUMBERS)
ACTIONS: st.SearchStrategy[Action] = (
    OPS
    | st.builds(Transfer, NUMBERS, st.sampled_from(["SEND_F", "RECV_F", "SEND_B", "RECV_B"]), NUMBERS)
    | st.builds(Upkeep, NUMBERS, st.sampled_from(["UNSHARD", "RESHARD", "REDUCE_GRAD"]))
)
BLANKS = st.sampled_from(["", " ", "  ", "\t"])


@given(ACTIONS, BLANKS, BLANKS)
def test_a_cell_is_read_as_it_is_written(action: Action, before: str, after: str) -> None:
    assert parse_cell(f"{before}{action}{after}") == (action,)


@given(st.lists(OPS, min_size=2, max_size=3), BLANKS)
def test_an_overlapped_pair_is_its_ops(ops: list[Op], blank: str) -> None:
    assert parse_cell(f"({f'{blank};{blank}'.join(map(str, ops))})OVERLAP_F_B") == tuple(ops)


BAD = [
    "0BW0", "0F0_s1", "0W0.1", "0F-1", "F0_s0", "0f0",
    "0F", "F0", "0", "F", "0F0 0F1", "0F 0", "-1F0", "+1F0", "00F0", "0F00", "0F1.0", "0F1e3", "0F²", "٠F0", "0F0;0F1",
    "0W0[0:1]", "0UNSHARD0", "0RESHARD1", "0REDUCE_GRAD2", "0SEND_F", "0SEND0", "0RECV_W0", "0OVERLAP_F_B", "None",
    "1234567890F0", "0F" + "9" * 5000, "(0F0;1B0)", "(0F0;1B0)OVERLAP", "((0F0;1B0))OVERLAP_F_B",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:20])
def test_a_bad_cell_is_refused_by_row_column_and_text(text: str, tmp_path: Path) -> None:
    """Such cells were read in part, without a word, or refused without their place: pytorch PR#142009, PR#142211."""
    path = tmp_path / "s.csv"
    path.write_text(f"0F0,0B0\n1F0, ,{text}\n")
    with pytest.raises(InputError, match=re.escape(f"{path}: row 2 (rank 1), column 3: {text!r} is no cell")):
        read_table(path)


@pytest.mark.parametrize(
    "text", ["()OVERLAP_F_B", "(0F0)OVERLAP_F_B", "(0F0;)OVERLAP_F_B", "(0F0;1SEND_F0)OVERLAP_F_B"]
)
def test_what_does_not_overlap(text: str) -> None:
    with pytest.raises(InputError, match=r"^row 1 \(rank 0\), column 1: .*(overlapped are two ops or more|is no cell)"):
        parse_table(text)


def test_bubbles_and_blanks_are_no_cells() -> None:
    table = parse_table('0F0 ,, 0B0,\r\n,"1F0","1I0",1W0\n')
    assert [[(cell.column, str(cell.action)) for cell in row] for row in table] == [
        [(1, "0F0"), (3, "0B0")],
        [(2, "1F0"), (3, "1I0"), (4, "1W0")],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "^the file is empty; it has one row for each rank$"),
        ("0F0,0B0\n\n1F0,1B0\n", "^row 2 is empty: rank 1 would have nothing to do; delete the line$"),
        ("0F0,0B0\n , ,\n", "^row 2 is empty"),
        ('0F0,"0B0\n', "^row 1: broken CSV: unexpected end of data"),
    ],
)
def test_tables_that_are_none(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_table(text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.csv: cannot be read: No such file"):
        read_table(tmp_path / "no.csv")
    (tmp_path / "s.csv").write_bytes(b"0F0,\xff")
    with pytest.raises(InputError, match=r"s\.csv: not UTF-8 text \(byte 4\)"):
        read_table(tmp_path / "s.csv")


@settings(max_examples=30)
@given(st.lists(st.lists(ACTIONS, min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_table_is_read_as_it_is_written(tmp_path_factory: pytest.TempPathFactory, rows: list[list[Action]]) -> None:
    path = tmp_path_factory.getbasetemp() / "table.csv"
    write_table(path, rows)
    table = read_table(path)
    assert [[cell.action for cell in row] for row in table] == rows
    assert [[(cell.rank, cell.column) for cell in row] for row in table] == [
        [(rank, column + 1) for column in range(len(row))] for rank, row in enumerate(rows)
    ]


def test_the_placement_is_what_the_rows_say() -> None:
    assert placement_of(parse_table("0F0,3RECV_F0\n2F0,1UNSHARD")) == explicit(2, [0, 1, 1, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "0F0,1F0\n2F0,1B0",
            r"^row 2 \(rank 1\), column 2: 1B0: stage 1 is on rank 0 \(row 1 \(rank 0\), column 2: 1F0\); a stage",
        ),
        ("0F0\n3F0,1F0", r"^row 2 \(rank 1\), column 1: 3F0: there is no stage 2; stages are numbered from 0 without"),
    ],
)
def test_placements_that_are_none(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        placement_of(parse_table(text))
