"""`adaptpipe simulate`: times and memory of a given schedule."""

from __future__ import annotations

import typer

from adaptpipe.solver import Problem, Schedule

from .common import (
    NO,
    compilation_notice,
    emit,
    figures,
    json_option,
    pairs,
    patience,
    problem_argument,
    say,
    schedule_argument,
)


def simulate(problem: problem_argument, schedule: schedule_argument, json: json_option = False) -> None:
    """Time a schedule and walk its memory. Exits with 1 where it passes a limit."""
    loaded = Problem.load(problem)
    with patience(compilation_notice()):
        from adaptpipe.solver.evaluate.limits import over_limit
        from adaptpipe.solver.evaluate.simulate import simulate as put_on_clock

        timeline = put_on_clock(loaded, Schedule.load(schedule))
    over = over_limit(timeline)
    if json:
        emit(
            {
                "problem": loaded.name,
                "status": "INFEASIBLE" if over else "FEASIBLE",
                "method": "given",
                "objective": "makespan",
                "bound": None,
                "gap": None,
                "time_s": 0.0,
                **timeline.row(),
                "over_limit": [violation.message for violation in over],
            }
        )
    else:
        pairs(figures(timeline))
    for violation in over:
        say(violation.message)
    if over:
        raise typer.Exit(NO)
