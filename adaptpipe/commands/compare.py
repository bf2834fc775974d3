"""`adaptpipe compare`: every method on one problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptpipe.solver import Granularity, InputError, NoAnswerError, Problem, Result

from .beside import run_beside_plan
from .common import (
    Goal,
    compilation_notice,
    compiled,
    emit,
    granularity_option,
    json_option,
    objective_option,
    patience,
    problem_argument,
    say,
    seed_option,
    sizes_text,
    table,
    time_limit_option,
    workers_option,
)
from .disturbed import noise_option, print_disturbed, runs_option
from .solve import progress_line

if TYPE_CHECKING:
    from adaptpipe.solver.floating import Disturbed

COLUMNS = (
    "method", "status", "makespan", "bubble of makespan", "bubble of span", "peak memory", "messages",
    "parameter copies", "sizes", "fused", "cut", "gap", "time",
)  # fmt: skip


def compare(
    problem: problem_argument,
    methods: Annotated[
        str | None,
        typer.Option("--methods", metavar="A,B,…", help="Methods, separated by commas.", show_default="all"),
    ] = None,
    objective: objective_option = Goal.makespan,
    time_limit: time_limit_option = 60.0,
    workers: workers_option = 2,
    seed: seed_option = 0,
    granularity: granularity_option = "all",
    noise: noise_option = None,
    runs: runs_option = 100,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Write table, schedules and charts.", show_default=False),
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
    """Solve one problem with every method, and print a table; or show where a run's time went, beside its plan.

    The time limit is that of each search. With --noise a second table has the mean and the 95th percentile of each
    method's schedule in random runs, static and adaptive; the seed is theirs, too.
    """
    loaded = Problem.load(problem)
    if trace is not None:
        if methods is not None or output is not None or noise is not None:
            raise InputError("--trace compares a run with its plan: leave out --methods, --output and --noise")
        run_beside_plan(loaded, trace, json)
        return
    with patience(compilation_notice()):
        from adaptpipe.solver.evaluate.noise import Noise
        from adaptpipe.solver.floating import disturbed
        from adaptpipe.solver.methods import METHODS, find_method
        from adaptpipe.solver.solving import compare as solve_all

    model = None if noise is None else Noise.parse(noise, seed)
    if model is not None:
        model.require_ranks(loaded.ranks)
    names = [method.name for method in METHODS]
    if methods is not None:
        names = list(dict.fromkeys(find_method(name.strip()).name for name in methods.split(",") if name.strip()))
        if not names:
            raise InputError("--methods: no method is named; write --methods 1F1B,ZB-H1, or leave it out for all")
    if output is not None:
        _make(output)
    if any(find_method(name).build is None for name in names):
        compiled()
    with patience(compilation_notice(), 2.0):
        results = solve_all(
            loaded,
            names,
            objective=objective.value,
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            granularity=Granularity.parse(granularity),
            on_progress=lambda progress: say(progress_line(progress, loaded.unit)),
        )
    under = {
        result.method: disturbed(loaded, result.timeline.schedule, model, objective.value, count=runs)
        for result in results
        if model is not None and result.timeline is not None
    }
    rows = [_row(loaded, result, under.get(result.method)) for result in results]
    if output is not None:
        _write(output, loaded, results, rows)
        say(f"table, schedules and charts written to {output}")
    if json:
        emit({"problem": loaded.name, "rows": rows})
    else:
        _print(loaded, results)
        if under:
            print_disturbed("method", list(under.items()), loaded.unit)
    if all(result.timeline is None for result in results):
        raise NoAnswerError(f"{loaded.name}: none of the methods has a schedule")


def _row(problem: Problem, result: Result, under: Disturbed | None) -> dict[str, object]:
    return result.row() | {
        "unit": problem.unit,
        "parameter_copies": problem.placement.directions,
        "under_noise": None if under is None else under.row(),
    }


def _print(problem: Problem, results: tuple[Result, ...]) -> None:
    from adaptpipe.solver.evaluate.limits import in_unit

    rows, reasons = [], []
    for result in results:
        timeline = result.timeline
        if timeline is not None and result.reason:
            reasons.append(f"{result.method}: {result.reason}")
        if timeline is None:
            rows.append([result.method, result.standing, *["–"] * (len(COLUMNS) - 3), f"{result.time_s:.2f} s"])
            reason = result.reason or "no schedule was found"
            reasons.append(reason if result.method in reason else f"{result.method}: {reason}")
            continue
        rows.append(
            [
                result.method,
                result.standing,
                f"{timeline.makespan:,} {problem.unit}",
                f"{timeline.bubble:.2%}",
                f"{timeline.span_bubble:.2%}",
                in_unit(max(timeline.peak_memory), problem.memory.unit),
                f"{timeline.messages:,}",
                str(problem.placement.directions),
                sizes_text(timeline.schedule.sizes, 1),
                f"{timeline.schedule.fused_share:.0%}",
                f"{timeline.schedule.cut_share:.0%}",
                "unknown" if result.gap is None else f"{result.gap:.2%}",
                f"{result.time_s:.2f} s",
            ]
        )
    table(COLUMNS, rows, title=f"{problem.name}: {problem.ranks} ranks, {problem.samples} samples")
    for line in reasons:
        print(line)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None


def _write(folder: Path, problem: Problem, results: tuple[Result, ...], rows: list[dict[str, object]]) -> None:
    import csv
    import io

    import msgspec

    from adaptpipe.solver.evaluate.chart import save_chart
    from adaptpipe.solver.files.reading import write_text

    text = msgspec.json.format(msgspec.json.encode({"problem": problem.name, "rows": rows}), indent=1).decode()
    write_text(folder / "table.json", text + "\n")
    buffer = io.StringIO()
    names = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(buffer, names)
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "table.csv", buffer.getvalue())
    for result in results:
        if result.timeline is not None:
            stem = result.method.replace("/", "-")
            result.schedule.save(folder / f"{stem}.json", problem.name)
            save_chart(result.timeline, folder / f"{stem}.png")
