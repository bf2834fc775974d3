"""Tables of cells: one row for each rank, as PyTorch's CSV has them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import InputError
from ..core.placement import Placement, explicit
from ..files.reading import read_text, write_text
from .actions import Action, parse_cell


@dataclass(frozen=True, slots=True)
class Cell:
    """An action and where it stands.

    Parameters
    ----------
    rank
        Number from 0; row `rank + 1` of the file.
    column
        Number from 1, as spreadsheets count. The ops of an overlapped pair share theirs.
    action
        What the cell says.
    """

    rank: int
    column: int
    action: Action

    def __str__(self) -> str:
        return f"row {self.rank + 1} (rank {self.rank}), column {self.column}: {self.action}"


Table = tuple[tuple[Cell, ...], ...]
"""For each rank, its cells in order; bubbles left out."""


def tabulate(rows: Iterable[Iterable[Action]]) -> Table:
    """Actions with their places."""
    return tuple(
        tuple(Cell(rank, column, action) for column, action in enumerate(row, 1)) for rank, row in enumerate(rows)
    )


def parse_table(text: str) -> Table:
    """Read the text of a CSV file.

    Raises
    ------
    InputError
        With row, column and text of a cell that is none of PyTorch's; when a row is empty; when there is none.

    Examples
    --------
    >>> print(*parse_table("0F0, ,0B0")[0], sep="; ")
    row 1 (rank 0), column 1: 0F0; row 1 (rank 0), column 3: 0B0
    """
    table = []
    try:
        for rank, row in enumerate(csv.reader(io.StringIO(text, newline=""), strict=True)):
            table.append(tuple(_cells(rank, row)))
            if not table[-1]:
                raise InputError(f"row {rank + 1} is empty: rank {rank} would have nothing to do; delete the line")
    except csv.Error as error:
        raise InputError(f"row {len(table) + 1}: broken CSV: {error}") from None
    if not table:
        raise InputError("the file is empty; it has one row for each rank")
    return tuple(table)


def _cells(rank: int, row: Sequence[str]) -> Iterator[Cell]:
    for column, text in enumerate(row, 1):
        try:
            actions = parse_cell(text)
        except InputError as error:
            raise InputError(f"row {rank + 1} (rank {rank}), column {column}: {error}") from None
        yield from (Cell(rank, column, action) for action in actions)


def read_table(path: str | Path) -> Table:
    """Read a CSV file.

    Raises
    ------
    InputError
        As `parse_table`, with the file's name; or when it cannot be read.
    """
    text = read_text(path)
    try:
        return parse_table(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write_table(path: str | Path, rows: Iterable[Iterable[Action]]) -> None:
    """Write a CSV file.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    write_text(path, "".join(",".join(map(str, row)) + "\n" for row in rows))


def placement_of(table: Table) -> Placement:
    """Stage to rank, as the rows say it: PyTorch's stages live on one rank each.

    Raises
    ------
    InputError
        When a stage is on two ranks, or on none.
    """
    first: dict[int, Cell] = {}
    for row in table:
        for cell in row:
            there = first.setdefault(cell.action.stage, cell)
            if there.rank != cell.rank:
                raise InputError(
                    f"{cell}: stage {cell.action.stage} is on rank {there.rank} ({there}); a stage lives on one rank"
                )
    count = len(first)
    missing = next((stage for stage in range(count) if stage not in first), None)
    if missing is not None:
        raise InputError(f"{first[max(first)]}: there is no stage {missing}; stages are numbered from 0 without gaps")
    return explicit(len(table), [first[stage].rank for stage in range(count)])
