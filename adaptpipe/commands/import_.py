"""`adaptpipe import`: PyTorch's CSV as a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptpipe.solver import Problem

from .common import compilation_notice, emit, json_option, patience, require_writable, say


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.csv", help="CSV of torch.distributed.pipelining.", show_default=False)
    ],
    problem: Annotated[
        Path | None,
        typer.Option(
            "--problem", metavar="PROBLEM", help="Problem that the schedule must be valid for.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the schedule.", show_default=False),
    ] = None,
    json: json_option = False,
) -> None:
    """Read a schedule from PyTorch's CSV, prove that it runs, and write it as a schedule file."""
    require_writable(output)
    loaded = None if problem is None else Problem.load(problem)
    with patience(compilation_notice()):
        from adaptpipe.solver.pytorch import import_csv

        imported = import_csv(file, loaded)
    for note in imported.notes:
        say(note)
    schedule = imported.schedule
    if output is not None:
        schedule.save(output, imported.problem)
    if json:
        emit(
            {
                "problem": imported.problem,
                "output": None if output is None else str(output),
                "placement": list(schedule.placement.stages[0]),
                "microbatch_sizes": list(schedule.sizes),
                "notes": list(imported.notes),
            }
        )
    else:
        size = sum(map(len, schedule.ops))
        where = "" if output is None else f"; written to {output}"
        print(
            f"valid: {size:,} ops of {schedule.placement.stage_count} stages ({schedule.placement.name}) and "
            f"{schedule.microbatches} micro-batches on {schedule.placement.ranks} ranks{where}"
        )
