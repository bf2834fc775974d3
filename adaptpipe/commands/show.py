"""`adaptpipe show`: a chart in the terminal or a file, or a trace."""

from __future__ import annotations

import shutil
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
    schedule_argument,
)
from .disturbed import Execution, execution_option

ENDINGS = (".png", ".svg", ".trace.json")
"""File names that `show -o` knows how to write."""


def show(
    problem: problem_argument,
    schedule: schedule_argument,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Write FILE.png, FILE.svg or FILE.trace.json.", show_default=False
        ),
    ] = None,
    execution: execution_option = Execution.static,
    json: json_option = False,
) -> None:
    """Draw a schedule: a chart in the terminal, a picture, or a trace for ui.perfetto.dev."""
    if output is not None and not output.name.endswith(ENDINGS):
        raise InputError(f"{output}: the ending is none of {', '.join(ENDINGS)}")
    require_writable(output)
    loaded, given = Problem.load(problem), Schedule.load(schedule)
    with patience(compilation_notice()):
        from adaptpipe.solver.evaluate.simulate import simulate
        from adaptpipe.solver.floating import simulate_adaptive

        timeline = (simulate if execution is Execution.static else simulate_adaptive)(loaded, given)
    if output is None:
        from adaptpipe.solver.evaluate.grid import draw, legend

        if not json:
            print(draw(timeline, width=max(40, shutil.get_terminal_size().columns - 12)))
            print(legend(timeline))
    elif output.name.endswith(".trace.json"):
        from adaptpipe.solver.traces.trace import trace_of
        from adaptpipe.solver.traces.writing import save_trace

        save_trace(trace_of(timeline), output)
    else:
        from adaptpipe.solver.evaluate.chart import save_chart

        with patience("drawing …"):
            save_chart(timeline, output)
    if json:
        emit({"problem": loaded.name, "output": None if output is None else str(output), **timeline.row()})
    elif output is not None:
        print(f"written to {output}")
