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
    seed_option,
)
from .disturbed import Execution, execution_option, noise_option, print_disturbed, runs_option


def simulate(
    problem: problem_argument,
    schedule: schedule_argument,
    execution: execution_option = Execution.static,
    noise: noise_option = None,
    runs: runs_option = 100,
    seed: seed_option = 0,
    json: json_option = False,
) -> None:
    """Time a schedule and walk its memory. Exits with 1 where it passes a limit.

    With --noise the figures without it are followed by those of random runs, static beside adaptive.
    """
    loaded, given = Problem.load(problem), Schedule.load(schedule)
    with patience(compilation_notice()):
        from adaptpipe.solver.evaluate.limits import over_limit
        from adaptpipe.solver.evaluate.noise import Noise
        from adaptpipe.solver.evaluate.simulate import simulate as put_on_clock
        from adaptpipe.solver.floating import disturbed, simulate_adaptive

        model = None if noise is None else Noise.parse(noise, seed)
        timeline = (put_on_clock if execution is Execution.static else simulate_adaptive)(loaded, given)
        found = None if model is None else disturbed(loaded, given, model, count=runs)
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
                "execution": execution.value,
                "under_noise": None if found is None else found.row(),
                "over_limit": [violation.message for violation in over],
            }
        )
    else:
        pairs([*figures(timeline), ("execution", execution.value)])
        if found is not None:
            print_disturbed("schedule", [(schedule.name, found)], loaded.unit)
    for violation in over:
        say(violation.message)
    if over:
        raise typer.Exit(NO)
