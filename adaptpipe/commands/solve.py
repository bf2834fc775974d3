"""`adaptpipe solve`: find a schedule and say how good it is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from adaptpipe.solver import Granularity, InputError, NoAnswerError, Problem, Result

from .common import (
    INTERRUPTED,
    Goal,
    compilation_notice,
    compiled,
    deterministic_option,
    emit,
    figures,
    granularity_option,
    iterations_option,
    json_option,
    objective_option,
    pairs,
    patience,
    problem_argument,
    require_writable,
    say,
    seed_option,
    time_limit_option,
    workers_option,
)

if TYPE_CHECKING:
    from adaptpipe.solver.evaluate.noise import Noise
    from adaptpipe.solver.solving import Progress


def solve(
    problem: problem_argument,
    method: Annotated[
        str,
        typer.Option("--method", metavar="NAME", help="auto, cpsat, anneal, greedy, ilp, or a schedule's name: 1F1B."),
    ] = "auto",
    objective: objective_option = Goal.makespan,
    time_limit: time_limit_option = 60.0,
    workers: workers_option = 2,
    seed: seed_option = 0,
    granularity: granularity_option = "all",
    iterations: iterations_option = None,
    deterministic: deterministic_option = False,
    robust: Annotated[
        bool, typer.Option("--robust", help="Minimise the mean under random delays, and say what it costs and gains.")
    ] = False,
    noise: Annotated[
        str | None,
        typer.Option(
            "--noise",
            metavar="A=X,…",
            help="With --robust: the noise, see docs/runtime.md; a number is sigma, 0.2 where it is not given, beside "
            "links of 0.1.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="S.json", help="Write the schedule.", show_default=False)
    ] = None,
    json: json_option = False,
) -> None:
    """Find a schedule, and a bound that says how good it is. Ctrl-C keeps the best one found so far.

    With --robust the rows "best as planned" and "robust" give both schedules' mean under noise ± its standard error.
    """
    if noise is not None and not robust:
        raise InputError(f"--noise {noise}: it is for a search under noise; add --robust, or leave it out")
    require_writable(output)
    loaded = Problem.load(problem)
    with patience(compilation_notice()):
        from adaptpipe.solver.methods import find_method
        from adaptpipe.solver.solving import solve as find

    chosen = noise_of(noise) if robust else None
    if chosen is not None:
        chosen.require_ranks(loaded.ranks)
    if find_method(method).build is None or robust:
        compiled()
    say(
        f"{loaded.name}: {loaded.ranks} ranks, {loaded.stages} stages, {loaded.samples} samples; "
        f"method {method}, at most {time_limit:g} s"
    )
    with patience(compilation_notice(), 2.0), Interrupt() as interrupt:
        result = find(
            loaded,
            method,
            objective=objective.value,
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            iterations=iterations,
            deterministic=deterministic,
            robust=chosen,
            granularity=Granularity.parse(granularity),
            on_progress=lambda progress: say(progress_line(progress, loaded.unit)),
        )
    if result.timeline is not None and output is not None:
        result.schedule.save(output, loaded.name)
        say(f"schedule written to {output}")
    if json:
        emit({"problem": loaded.name} | result.row() | {"unit": loaded.unit})
    elif result.timeline is not None:
        pairs(_lines(result))
    if interrupt.came:
        say("interrupted; this is the best so far" if result.timeline is not None else "interrupted")
        raise typer.Exit(INTERRUPTED)
    if result.timeline is None:
        raise NoAnswerError(f"{result.status}: {result.reason or 'no schedule was found'}")


class Interrupt:
    """Context that notes whether Ctrl-C came: the solver answers it with the best schedule, as if time were up."""

    def __init__(self) -> None:
        self.came = False
        self._context = self._installed()

    def __enter__(self) -> Interrupt:
        self._context.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._context.__exit__(None, None, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        raise KeyboardInterrupt

    @contextmanager
    def _installed(self) -> Iterator[None]:
        before = signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def progress_line(progress: Progress, unit: str) -> str:
    """One improvement, as a line."""
    gap = "  none" if progress.gap is None else f"{progress.gap:6.2%}"
    scope = "" if progress.proven_for == "problem" else "; the bound is for these micro-batch sizes"
    return (
        f"{progress.time_s:8.2f} s  {progress.value:>12,} {unit}  bound {progress.bound:>12,}  gap {gap}  "
        f"{progress.found_by}{scope}"
    )


def _lines(result: Result) -> list[tuple[str, str]]:
    assert result.timeline is not None
    unit = result.timeline.problem.unit
    gap = "unknown" if result.gap is None else f"{result.gap:.2%}"
    scope = "" if result.proven_for == "problem" else ", for these micro-batch sizes"
    by = result.found_by or result.method
    return [
        ("status", f"{result.standing}, by {by}, in {result.time_s:.2f} s"),
        ("bound", f"{result.bound:,} {unit} of {result.objective}, gap {gap}{scope}"),
        *figures(result.timeline),
        *_under_noise(result),
        *([("note", result.reason)] if result.reason else []),
    ]


def noise_of(text: str | None) -> Noise:
    """The noise of a search: a number is sigma, beside the usual links; else a list, as in `simulate`.

    Raises
    ------
    InputError
        When it is neither.

    Examples
    --------
    >>> [str(noise_of(text)) for text in (None, "0.3", "sigma=0.3")]
    ['sigma=0.2,link=0.1', 'sigma=0.3,link=0.1', 'sigma=0.3']
    """
    from adaptpipe.solver.evaluate.noise import Noise

    if text is None:
        return Noise()
    try:
        sigma = float(text)
    except ValueError:
        return Noise.parse(text)
    return Noise(sigma)


def _under_noise(result: Result) -> list[tuple[str, str]]:
    found, timeline = result.robustness, result.timeline
    if found is None or timeline is None:
        return []
    unit = timeline.problem.unit
    rows = [
        (name, f"{each.value:,} {unit} planned; under noise {each.mean:,.0f} ± {each.error:,.0f}, 95 % {each.p95:,.0f}")
        for name, each in (("best as planned", found.plain), ("robust", found.robust))
    ]
    noise = f"{found.noise}, {found.runs} runs"
    return [*rows, ("noise", f"{noise}: mean {-found.gain:+.2%}, as planned {found.price:+.2%}")]
