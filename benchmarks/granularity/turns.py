"""Run two schedules of one problem in turns, and hold the gain of the second against the prediction.

    python -m benchmarks.granularity.turns problem.json first.json second.json --seconds-per-tick 1e-6
    python -m benchmarks.granularity.turns --messages 8       # what a message takes between 8 emulated ranks

Emulated ops sleep for their planned time, so that many ranks fit on few cores; messages are real. A prediction is as
good as the message time it was made with: measure it with `message_seconds`, and write it into the problem by
`with_latency`, both of the executor, before the schedules are made. `profiled` and `trained` are the same with a model
that is trained.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import msgspec

from adaptpipe.commands.learning import Trained, train
from adaptpipe.commands.planning import configure, priced
from adaptpipe.commands.run_file import RunSpec
from adaptpipe.commands.training import profile_rank
from adaptpipe.executor import launch
from adaptpipe.executor.measuring.emulation import (
    MESSAGE_BYTES,
    WARM_UP,
    Way,
    emulate,
    mean_message_s,
    message_seconds,
)
from adaptpipe.executor.report import makespan_s
from adaptpipe.solver import InputError, NoAnswerError, Problem, Schedule, simulate
from adaptpipe.solver.core.problem import SECONDS


@dataclass(frozen=True, slots=True)
class Executed:
    """Two schedules that ran in turns on the same ranks.

    Parameters
    ----------
    predicted_s
        Simulated makespan of each, in seconds.
    measured_s
        For each pair of steps the makespan of each: seconds from the first start on any rank to the last end.
    message_s
        Mean seconds of the messages that a rank waited for; None if there was none. The prediction should have been
        made with about that.
    """

    predicted_s: tuple[float, float]
    measured_s: tuple[tuple[float, float], ...]
    message_s: float | None

    @property
    def predicted_gain(self) -> float:
        """1 - second/first, of the simulated makespans."""
        return 1 - self.predicted_s[1] / self.predicted_s[0]

    @property
    def medians_s(self) -> tuple[float, float]:
        """Median measured makespan of each."""
        first, second = zip(*self.measured_s, strict=True)
        return median(first), median(second)

    @property
    def gains(self) -> tuple[float, ...]:
        """1 - second/first of each pair of steps."""
        return tuple(1 - second / first for first, second in self.measured_s)

    @property
    def gain(self) -> float:
        """Median of the paired gains."""
        return median(self.gains)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile of the paired gains."""
        low, _, high = quantiles(self.gains * 2 if len(self.gains) == 1 else self.gains, n=4, method="inclusive")
        return low, high

    @property
    def share(self) -> float | None:
        """Measured gain over predicted gain; None where none was predicted."""
        return self.gain / self.predicted_gain if self.predicted_gain > 0 else None


def executed(
    problem: Problem,
    first: Schedule,
    second: Schedule,
    *,
    pairs: int = 20,
    seconds_per_tick: float,
    message_bytes: int = MESSAGE_BYTES,
) -> Executed:
    """Run two schedules with emulated ops, step by step in turns, on one process for each rank.

    Parameters
    ----------
    problem
        Prices of both.
    first, second
        The gain is the second's.
    pairs
        Steps of each that count.
    seconds_per_tick
        How long a tick takes. Ops below some 5 ms show the machine more than the schedule.
    message_bytes
        Size of every message.

    Raises
    ------
    InputError
        If an argument is out of range, or a schedule is of another shape.
    NoAnswerError
        If a schedule is invalid.
    """
    predicted = [simulate(problem, schedule).makespan * seconds_per_tick for schedule in (first, second)]
    ways = [Way(schedule, "static") for schedule in (first, second)]
    steps = emulate(problem, ways, steps=pairs, seconds_per_tick=seconds_per_tick, message_bytes=message_bytes)
    return Executed(
        (predicted[0], predicted[1]),
        tuple((makespan_s(a), makespan_s(b)) for a, b in zip(*steps, strict=True)),
        mean_message_s(problem.placement, [step for way in steps for step in way]),
    )


def profiled(spec: RunSpec) -> Problem:
    """Measure the model of a run file on its ranks: a problem with its costs, message times and memory limits."""
    return priced(spec, launch(profile_rank, spec.ranks, spec)[0])[0]


def trained(spec: RunSpec, problem: Problem, first: Schedule, second: Schedule, *, pairs: int = 20) -> Executed:
    """Train the model of a run file under two schedules, step by step in turns.

    Parameters
    ----------
    spec
        The run file; its steps do not matter.
    problem
        From `profiled`.
    first, second
        The gain is the second's.
    pairs
        Steps of each that count.

    Raises
    ------
    InputError
        If `pairs` is below 1, or a schedule is of another shape.
    NoAnswerError
        If a schedule is invalid.
    """
    if pairs < 1:
        raise InputError(f"pairs = {pairs}: at least 1 is needed")
    predicted = [float(simulate(problem, schedule).makespan * SECONDS[problem.unit]) for schedule in (first, second)]
    work = _Training(msgspec.structs.replace(spec, steps=WARM_UP + pairs, execution="static"), problem, (first, second))
    each = launch(_train_rank, spec.ranks, work)[0]
    measured = [run.steps_s[WARM_UP:] for run in each]
    return Executed(
        (predicted[0], predicted[1]),
        tuple(zip(*measured, strict=True)),
        mean_message_s(problem.placement, [run.records for run in each]),
    )


@dataclass(frozen=True, slots=True)
class _Training:
    """What the ranks of a training are told."""

    spec: RunSpec
    problem: Problem
    schedules: tuple[Schedule, Schedule]


def _train_rank(rank: int, ranks: int, work: _Training) -> list[Trained]:
    config, parts, text = configure(work.spec)
    return train(rank, work.spec, config, parts, text, work.problem, work.schedules)


def text(found: Executed) -> str:
    """The figures as lines to read."""
    rows = [("predicted", found.predicted_s, found.predicted_gain), ("measured", found.medians_s, found.gain)]
    lines = [f"{name:9}  {a * 1e3:8.1f} ms  {b * 1e3:8.1f} ms  gain {gain:6.2%}" for name, (a, b), gain in rows]
    low, high = found.quartiles
    lines[1] += f" (quartiles {low:.2%} to {high:.2%}, {len(found.gains)} pairs)"
    if found.message_s is not None:
        lines.append(f"messages   {found.message_s * 1e3:8.2f} ms")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run two kept schedules, or time messages; print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.granularity.turns", description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="problem, first schedule, second schedule")
    parser.add_argument("--messages", type=int, metavar="RANKS", help="time messages between so many emulated ranks")
    parser.add_argument("--seconds-per-tick", type=float, default=1e-6, help="how long a tick takes (1e-6)")
    parser.add_argument("--message-bytes", type=int, default=MESSAGE_BYTES, help=f"of every message ({MESSAGE_BYTES})")
    parser.add_argument("--pairs", type=int, default=20, help="steps of each schedule (20)")
    options = parser.parse_args(arguments)
    try:
        if options.messages is not None:
            print(f"{message_seconds(options.messages, message_bytes=options.message_bytes) * 1e3:.2f} ms")
            return 0
        if len(options.files) != 3:
            parser.error("give a problem and two schedules, or --messages RANKS")
        problem = Problem.load(options.files[0])
        first, second = (Schedule.load(path) for path in options.files[1:])
        found = executed(
            problem,
            first,
            second,
            pairs=options.pairs,
            seconds_per_tick=options.seconds_per_tick,
            message_bytes=options.message_bytes,
        )
        print(text(found))
    except (InputError, NoAnswerError) as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
