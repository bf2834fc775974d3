"""Predicted gain beside the measured one: emulated ops on 8 ranks, and a GPT that is trained on two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from adaptpipe.commands.run_file import load_run
from adaptpipe.executor.measuring.emulation import message_seconds, with_latency
from adaptpipe.solver import NoAnswerError, Problem, Result, solve
from adaptpipe.solver.core.granularity import ALL, NONE

from ..solve import machine
from .cases import Case
from .raw import Executed
from .report import chosen
from .turns import Executed as Turns
from .turns import executed, profiled, trained

EMULATED = (
    Case("linear", 8, 24, share=None, saving=0.17),
    Case("linear", 8, 24, share=0.3),
    Case("v", 8, 24, share=0.3),
)
"""What is emulated, at published times: an op takes 5 to 37 ms."""

SECONDS_PER_TICK = 1e-6

PAIRS = 24
"""Steps of each schedule that count."""

SEARCH_S = 20.0
"""Seconds of each search."""

RUN_FILE = Path(__file__).parents[2] / "examples" / "gpt-text.toml"


def execute(tell: Callable[[str], None]) -> Iterator[tuple[str, Executed]]:
    """Execute every case, one after the other; with their names."""
    tell("timing messages between 8 emulated ranks")
    message_s = message_seconds(8)
    for case in EMULATED:
        name = f"emulated: {case.name}, messages {message_s * 1e3:.2f} ms"
        tell(name)
        problem = with_latency(case.problem(), message_s, SECONDS_PER_TICK)
        before, after = _plans(problem)
        turns = executed(problem, before.schedule, after.schedule, pairs=PAIRS, seconds_per_tick=SECONDS_PER_TICK)
        run = _kept(name, turns, after)
        tell(_line(run))
        yield case.name, run
    spec = load_run(RUN_FILE)
    name = f"trained: {RUN_FILE.name}, {spec.ranks} ranks"
    tell(name)
    problem = profiled(spec)
    before, after = _plans(problem)
    run = _kept(name, trained(spec, problem, before.schedule, after.schedule, pairs=PAIRS), after)
    tell(_line(run))
    yield RUN_FILE.name, run


def _plans(problem: Problem) -> tuple[Result, Result]:
    """The best schedule by order alone, and the best with all choices."""
    before, after = (solve(problem, time_limit=SEARCH_S, granularity=each) for each in (NONE, ALL))
    for result in (before, after):
        if result.timeline is None:
            raise NoAnswerError(f"{problem.name}: {result.reason}")
    return before, after


def _kept(what: str, turns: Turns, after: Result) -> Executed:
    return Executed(
        what=what,
        date=str(datetime.now(tz=UTC).date()),
        machine=machine(),
        pairs=len(turns.gains),
        predicted_s=turns.predicted_s,
        measured_s=turns.medians_s,
        predicted_gain=turns.predicted_gain,
        gain=turns.gain,
        quartiles=turns.quartiles,
        chosen=chosen(after.schedule.sizes, after.schedule.fused_share, after.schedule.cut_share),
    )


def _line(run: Executed) -> str:
    low, high = run.quartiles
    return f"predicted gain {run.predicted_gain:.2%}, measured {run.gain:.2%} ({low:.2%} to {high:.2%})"
