"""The options of `adaptpipe plan`, and which of its jobs they ask for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptpipe.solver import InputError, NoAnswerError

from ..common import (
    INTERRUPTED,
    compilation_notice,
    compiled,
    emit,
    json_option,
    patience,
    say,
    seed_option,
    time_limit_option,
    workers_option,
)
from ..solve import Interrupt, progress_line

if TYPE_CHECKING:
    from .asking import Effort
    from .cases import Line

MODEL, USE, CASES = "Model and cluster", "How they are used", "Many cases"


def plan(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=A,B|FILE]", help="Axes of --what-if, or files of --merge.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME|FILE",
            help="A preset, a config.json of transformers, or a run file.",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="NAME|FILE", help="A preset such as h100x16, or a cluster file.", show_default=False
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="FILE",
            help="Layers as adaptpipe profile --layers measured them; with --model its formulas agree with them.",
            show_default=False,
        ),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(
            "--instance", metavar="FILE", help="Instances, in the place of model and cluster.", show_default=False
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Which instance of the file.", show_default=False)
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option("--sequence", metavar="N", help="Tokens of a sample.", show_default="4096, or the model's most"),
    ] = None,
    global_batch: Annotated[
        int | None,
        typer.Option("--global-batch", metavar="N", help="Samples of a step.", show_default="4 for each rank"),
    ] = None,
    microbatch_sizes: Annotated[
        str | None,
        typer.Option("--microbatch-sizes", metavar="A,B", help="Sizes to choose from.", show_default="1,2,3,4"),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option("--ranks", metavar="N", help="Ranks of a pipeline.", show_default="all devices / (tp x dp)"),
    ] = None,
    tp: Annotated[int, typer.Option("--tp", metavar="N", help="Tensor-parallel degree.")] = 1,
    dp: Annotated[int, typer.Option("--dp", metavar="N", help="Data-parallel degree: replicas.")] = 1,
    ep: Annotated[int, typer.Option("--ep", metavar="N", help="Of the replicas, those that divide experts.")] = 1,
    zero: Annotated[
        int, typer.Option("--zero", metavar="0|1", help="Whether replicas divide the optimizer's state.")
    ] = 1,
    recompute: Annotated[
        str,
        typer.Option("--recompute", metavar="WHAT", help="none, selective or full: computed again in the backward."),
    ] = "none",
    split_layers: Annotated[
        bool, typer.Option("--split-layers", help="Attention and MLP are layers of their own.")
    ] = False,
    memory: Annotated[
        float | None,
        typer.Option(
            "--memory", metavar="GB", help="10^9 bytes of every device, its reserve included.", show_default=False
        ),
    ] = None,
    links: Annotated[float, typer.Option("--links", metavar="X", help="Factor on the bandwidth of all links.")] = 1.0,
    time_limit: time_limit_option = 60.0,
    workers: workers_option = 2,
    seed: seed_option = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE|DIR",
            help="Write the plan; in a folder also problem, schedule and today's best. With --what-if: its cases.",
            show_default=False,
        ),
    ] = None,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="One table of cases: every combination of the axes' values.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="Cases at a time.")] = 1,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard", metavar="I/N", help="Only part I of N of the cases, for a job array.", show_default=False
        ),
    ] = None,
    merge: Annotated[bool, typer.Option("--merge", help="One table from the files of several shards.")] = False,
    json: json_option = False,
) -> None:
    """Plan a model on a cluster: layers to stages, stages to ranks, micro-batches and order, together.

    Says what the plan gains over the best of today's schedules, at equal memory too, and whether that holds where the
    costs are wrong. Ctrl-C keeps the best plan found so far; with --what-if, the cases that are finished.
    """
    if merge:
        _merge([Path(word) for word in words or ()], output, json)
        return
    options: dict[str, Any] = {
        "model": model,
        "cluster": cluster,
        "profile": profile,
        "instance": instance,
        "name": name,
        "sequence": sequence,
        "global_batch": global_batch,
        "ranks": ranks,
        "tp": tp,
        "dp": dp,
        "ep": ep,
        "zero": zero,
        "recompute": recompute,
        "split_layers": split_layers,
        "memory": memory,
        "links": links,
    }
    with patience(compilation_notice()):
        from .asking import Effort
        from .question import sizes_of

    if microbatch_sizes is not None:
        options["microbatch_sizes"] = sizes_of(microbatch_sizes)
    effort = Effort(time_limit, workers, seed)
    if what_if:
        _what_if(options, words or [], effort, output, jobs, shard, json)
        return
    for option, given in (("--jobs", jobs > 1), ("--shard", shard is not None)):
        if given:
            raise InputError(f"{option}: is for the cases of --what-if; add that, or leave it out")
    if words:
        raise InputError(f"{words[0]}: is for --what-if or --merge; add one of them, or leave it out")
    _one(options, effort, output, json)


def _one(options: dict[str, Any], effort: Effort, output: Path | None, json: bool) -> None:
    with patience(compilation_notice()):
        from .asking import ask, require_place, write
        from .figures import refused, row
        from .question import Question
        from .report import print_report
        from .subject import UNIT

    question = Question(**options)
    require_place(output)
    compiled()
    say(f"{question.title}: planning, at most {effort.time_limit:g} s")
    with Interrupt() as interrupt:
        try:
            about, found = ask(question, effort, lambda progress: say(progress_line(progress, UNIT)))
        except NoAnswerError as error:
            if json:
                emit(refused(question, error))
            raise
    if output is not None:
        say(f"written: {', '.join(map(str, write(output, about, found)))}")
    if json:
        emit(row(about, found))
    else:
        print_report(about, found)
    if interrupt.came:
        say("interrupted; this is the best so far")
        raise typer.Exit(INTERRUPTED)


def _what_if(
    options: dict[str, Any],
    words: list[str],
    effort: Effort,
    output: Path | None,
    jobs: int,
    shard: str | None,
    json: bool,
) -> None:
    with patience(compilation_notice()):
        from .cases import cases_of, file_of, require_any, resume, shard_of

    part, parts = shard_of(shard)
    if shard is not None and output is None:
        raise InputError("--shard: write its cases with -o FILE.jsonl, so that --merge can put them together")
    every = cases_of(options, words, effort)
    place = file_of(output, part, parts)
    cases = every[part - 1 :: parts]
    compiled()
    say(f"{len(cases)} of {len(every)} cases, {jobs} at a time, each at most {effort.time_limit:g} s")

    def tell(line: Line, count: int, todo: int) -> None:
        say(f"{count} of {todo}: {_case(line)}: {line.reason or _outcome(line)}")

    lines = resume(cases, place, jobs, tell)
    if place is not None:
        say(f"cases are in {place}")
    _show(lines, json)
    require_any(lines)


def _merge(paths: list[Path], output: Path | None, json: bool) -> None:
    from .cases import keep_lines, merged

    lines = merged(paths)
    if output is not None:
        keep_lines(output, lines)
        say(f"{len(lines)} cases written to {output}")
    _show(lines, json)


def _show(lines: tuple[Line, ...], json: bool) -> None:
    from .cases_table import print_cases

    if json:
        emit(
            {"rows": [{"case": line.case, "reason": line.reason, **(line.row or {"makespan": None})} for line in lines]}
        )
    else:
        print_cases(lines)


def _case(line: Line) -> str:
    return " ".join(f"{key}={value}" for key, value in line.case.items())


def _outcome(line: Line) -> str:
    assert line.row is not None
    gain = line.row["gain"]
    text = f"{line.row['makespan'] / 1e3:,.1f} ms a step"
    return text if gain is None else f"{text}, {gain:.1%} gained"
