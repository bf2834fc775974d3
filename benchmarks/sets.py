"""The rows of the solver's benchmark, in named sets."""

from __future__ import annotations

from dataclasses import dataclass

from adaptpipe.solver.core.result import Objective

from .instances.make import TABLE_5, TABLE_8, TIMES


@dataclass(frozen=True, slots=True)
class Row:
    """One problem to solve.

    Parameters
    ----------
    instance
        Name of its file in `instances/`.
    objective
        What is minimised.
    """

    instance: str
    objective: Objective = "makespan"

    @property
    def key(self) -> str:
        """Name in results."""
        return self.instance if self.objective == "makespan" else f"{self.instance} ({self.objective})"


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows that make one table.

    Parameters
    ----------
    name
        As the command line takes it.
    title, about
        Heading of the table, and the sentence below it.
    rows
        In the order of the table.
    """

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]


def _rows(*instances: str) -> tuple[Row, ...]:
    return tuple(Row(name) for name in instances)


SETS: tuple[RowSet, ...] = (
    RowSet(
        "table5",
        "Table 5 of the zero-bubble paper, and 64 ranks",
        "One stage on each rank. 1F1B's memory, then twice that (2x).",
        _rows(
            *(f"zb-table5-{row[0]}-p{row[1]}-m{row[2]}{times}" for times in ("", "-2x") for row in TABLE_5),
            "linear-1.5b-p64-m512-1x",
        ),
    ),
    RowSet(
        "table8",
        "Table 8 of the zero-bubble paper: V, by span",
        "Two halves of a stage on each rank, folded; the published ZB-V schedule's memory, 2p activations of a half.",
        tuple(Row(f"zb-table8-{row[0]}-p{row[1]}-m{row[2]}-v", "span") for row in TABLE_8),
    ),
    RowSet(
        "v1x",
        "V and loop in 1F1B's memory",
        "Two halves of a 1.5B stage on each rank, and memory for 2p activations of a half.",
        _rows(
            *(f"v-1.5b-{size}-1x" for size in ("p8-m24", "p8-m64", "p16-m48", "p16-m128", "p32-m96", "p32-m256")),
            "loop-1.5b-p16-m128-1x",
        ),
    ),
    RowSet(
        "tight",
        "Less memory than 1F1B's",
        "1.5B, one stage or two halves of one on each rank; the multiple of 1F1B's memory ends the name.",
        _rows(
            "linear-1.5b-p8-m24-0.75x",
            "linear-1.5b-p8-m24-0.5x",
            "linear-1.5b-p16-m48-0.5x",
            *(f"v-1.5b-{size}-0.5x" for size in ("p8-m24", "p8-m64", "p16-m128")),
        ),
    ),
    RowSet(
        "small",
        "Small problems over a range of memory",
        "Four ranks; 1.5B, and stages 0, 1, 2 and 7 of the measured, uneven profile of 6.2B.",
        _rows(
            *(
                f"{placement}-{model}-p4-m{samples}-{times}"
                for placement in ("linear", "v")
                for model in ("1.5b", "6.2b-uneven")
                for samples in (8, 16)
                for times in TIMES
            )
        ),
    ),
)
"""Every set, in the order of the report."""
