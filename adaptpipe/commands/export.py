"""`adaptpipe export`: a schedule as PyTorch's CSV."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from adaptpipe.solver import InputError, Problem, Schedule

from .common import (
    compilation_notice,
    emit,
    json_option,
    patience,
    problem_argument,
    require_writable,
    say,
    schedule_argument,
)


class Format(StrEnum):
    """What the CSV holds."""

    compute = "compute"
    comms = "comms"


def export(
    problem: problem_argument,
    schedule: schedule_argument,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE.csv",
            help="Write FILE.csv, and FILE.csv.json beside it.",
            show_default=False,
        ),
    ],
    format: Annotated[
        Format,
        typer.Option(
            "--format", help="compute: the ops, PyTorch's compute_only; comms: with messages, its compute_comms."
        ),
    ] = Format.compute,
    json: json_option = False,
) -> None:
    """Write a schedule as the CSV that torch.distributed.pipelining loads; see docs/pytorch.md."""
    if output.suffix != ".csv":
        raise InputError(f"{output}: the ending is not .csv")
    require_writable(output)
    loaded, given = Problem.load(problem), Schedule.load(schedule)
    with patience(compilation_notice()):
        from adaptpipe.solver.pytorch import export_csv

        exported = export_csv(loaded, given, output, messages=format is Format.comms)
    for note in exported.notes:
        say(note)
    if json:
        files = [str(file) for file in exported.files]
        emit({"problem": loaded.name, "format": format.value, "files": files, "notes": list(exported.notes)})
    else:
        print(f"written to {exported.files[0]}, and what a CSV cannot hold to {exported.files[1]}")
