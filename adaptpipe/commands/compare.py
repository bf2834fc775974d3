"""`adaptpipe compare`: every method on the same layers, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptpipe.solver import Granularity, InputError, NoAnswerError, Problem

from .beside import run_beside_plan
from .common import (
    INTERRUPTED,
    Goal,
    compilation_notice,
    compiled,
    emit,
    granularity_option,
    json_option,
    make_folder,
    objective_option,
    patience,
    positive,
    problem_argument,
    say,
    seed_option,
    table,
    workers_option,
)
from .disturbed import noise_option, print_disturbed, runs_option
from .solve import Interrupt, progress_line

if TYPE_CHECKING:
    from adaptpipe.solver import Comparison


def compare(
    problem: problem_argument,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", metavar="A,B,…", help="Methods, separated by commas.", show_default="auto and the literature's"
        ),
    ] = None,
    objective: objective_option = Goal.makespan,
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit", metavar="S", callback=positive, help="Wall time of all searches together, in seconds."
        ),
    ] = 30.0,
    workers: workers_option = 2,
    seed: seed_option = 0,
    granularity: granularity_option = "all",
    noise: noise_option = None,
    runs: runs_option = 100,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Write tables, schedules and charts.", show_default=False),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="RUN",
            help="Compare a run with its plan instead: the folder of adaptpipe run, or a trace.",
            show_default=False,
        ),
    ] = None,
    json: json_option = False,
) -> None:
    """Compare methods at equal work, memory and ranks, each on its own placement; see docs/comparing.md.

    Schedules of the literature are generated on every placement that the layers allow. auto is the solver, at the
    problem's memory limit and at the memory of each of them. The time limit is that of all searches together. With
    --noise a second table has the mean and the 95th percentile of each schedule in random runs, static and adaptive;
    the seed is theirs, too.
    """
    loaded = Problem.load(problem)
    if trace is not None:
        if methods is not None or output is not None or noise is not None:
            raise InputError("--trace compares a run with its plan: leave out --methods, --output and --noise")
        run_beside_plan(loaded, trace, json)
        return
    with patience(compilation_notice()):
        from adaptpipe.solver.comparing import compare as compare_all
        from adaptpipe.solver.evaluate.noise import Noise
        from adaptpipe.solver.floating import disturbed
        from adaptpipe.solver.methods import find_method

    model = None if noise is None else Noise.parse(noise, seed)
    if model is not None:
        model.require_ranks(loaded.ranks)
    names = None
    if methods is not None:
        names = [find_method(name.strip()).name for name in methods.split(",") if name.strip()]
        if not names:
            raise InputError("--methods: no method is named; write --methods 1F1B,ZB-H1, or leave it out for all")
    if output is not None:
        make_folder(output, "--output")
    if names is None or any(find_method(name).build is None for name in names):
        compiled()
    with patience(compilation_notice(), 2.0), Interrupt() as interrupt:
        found = compare_all(
            loaded,
            names,
            objective=objective.value,
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            granularity=Granularity.parse(granularity),
            on_progress=lambda where, progress: say(f"{progress_line(progress, loaded.unit)}  {where}"),
        )
    timelines = {row.label: row.timeline for row in found.rows if row.timeline is not None}
    under = {
        label: disturbed(timeline.problem, timeline.schedule, model, objective.value, count=runs)
        for label, timeline in timelines.items()
        if model is not None
    }
    data = found.data()
    for row in data["rows"]:
        row["under_noise"] = under[row["label"]].row() if row["label"] in under else None
    if output is not None:
        from .comparing.files import write_schedules, write_tables

        write_tables(output, found, data)
        write_schedules(output, found)
        say(f"tables, schedules and charts written to {output}")
    if json:
        emit(data)
    else:
        _print(found)
        if under:
            print_disturbed("method", list(under.items()), loaded.unit)
    if interrupt.came:
        say("interrupted; this is what was found so far")
        raise typer.Exit(INTERRUPTED)
    if not any(row.fits for row in found.rows):
        raise NoAnswerError(f"{loaded.name}: none of the methods has a schedule within the limits")


def _print(found: Comparison) -> None:
    from .comparing.cells import reasons, short_front, short_table, title

    table(*short_table(found), title=title(found))
    for line in [*found.notes, *reasons(found)]:
        print(line)
    if len(found.levels) > 1:
        table(*short_front(found), title="the solver at the memory of the heuristics")
