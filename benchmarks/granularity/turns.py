"""Run two schedules of one problem in turns, and hold the gain of the second against the prediction.

    python -m benchmarks.granularity.turns problem.json first.json second.json --seconds-per-tick 1e-6
    python -m benchmarks.granularity.turns --messages 8       # what a message takes between 8 emulated ranks

Emulated ops sleep for their planned time, so that many ranks fit on few cores; messages are real. A prediction is as
good as the message time it was made with: measure it with `message_seconds`, and write it into the problem by
`with_latency`, before the schedules are made. `profiled` and `trained` are the same with a model that is trained.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median, quantiles

import msgspec
import torch.distributed as dist

from adaptpipe.commands.run_file import RunSpec
from adaptpipe.commands.training import Trained, configure, priced, profile_rank, train
from adaptpipe.executor import OpRecord, launch
from adaptpipe.executor.measuring.delays import message_delays
from adaptpipe.executor.running.emulated import EmulatedPipeline, check_emulation
from adaptpipe.solver import InputError, NoAnswerError, Placement, Problem, Schedule, simulate
from adaptpipe.solver.core.problem import SECONDS
from adaptpipe.solver.heuristics import one_f_one_b

MESSAGE_BYTES = 1 << 16

WARM_UP = 2
"""Steps of each schedule that are run first and not counted."""


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


@dataclass(frozen=True, slots=True)
class _Emulation:
    """What the ranks of an emulation are told."""

    problem: Problem
    schedules: tuple[Schedule, ...]
    rounds: int
    seconds_per_tick: float
    message_bytes: int


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
    steps = _emulate(_Emulation(problem, (first, second), pairs, seconds_per_tick, message_bytes))
    measured = [makespan(records) for records in steps]
    return Executed(
        (predicted[0], predicted[1]),
        tuple(zip(measured[0::2], measured[1::2], strict=True)),
        _message_s(problem.placement, steps),
    )


def message_seconds(ranks: int, *, op_s: float = 0.01, message_bytes: int = MESSAGE_BYTES, steps: int = 3) -> float:
    """Seconds from the end of an op to the start of one that waits for its message, in a running emulated pipeline.

    Parameters
    ----------
    ranks
        Processes.
    op_s
        Seconds of an op; a backward takes twice as long.
    message_bytes
        Size of every message.
    steps
        Steps that count. The mean is over all messages of these that an idle rank waited for; makespans add up means.

    Raises
    ------
    InputError
        If there is one rank only, or an argument is out of range.
    """
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": ranks},
            "batch": {"samples": 2 * ranks},
            "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
        }
    )
    if ranks < 2:
        raise InputError(f"ranks = {ranks}: messages need 2 at least")
    delay = _message_s(
        problem.placement, _emulate(_Emulation(problem, (one_f_one_b(problem),), steps, op_s, message_bytes))
    )
    assert delay is not None, "in 1F1B every rank waits for messages"
    return delay


def with_latency(problem: Problem, seconds: float, seconds_per_tick: float) -> Problem:
    """The problem, with messages that take so long between any two ranks, whatever their size; rounded to ticks."""
    ticks = round(seconds / seconds_per_tick)
    ranks = range(problem.ranks)
    latency = tuple(tuple(0 if a == b else ticks for b in ranks) for a in ranks)
    return replace(problem, links=replace(problem.links, latency=latency, bandwidth=None, message=()))


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
    work = _Training(msgspec.structs.replace(spec, steps=WARM_UP + pairs), problem, (first, second))
    each = launch(_train_rank, spec.ranks, work)[0]
    measured = [run.steps_s[WARM_UP:] for run in each]
    return Executed(
        (predicted[0], predicted[1]),
        tuple(zip(*measured, strict=True)),
        _message_s(problem.placement, [run.records for run in each]),
    )


def makespan(records: Sequence[Sequence[OpRecord]]) -> float:
    """Seconds from the first start to the last end, of all ranks' ops."""
    ran = [record for row in records for record in row]
    return max(record.end_s for record in ran) - min(record.start_s for record in ran)


def _message_s(placement: Placement, steps: Sequence[Sequence[Sequence[OpRecord]]]) -> float | None:
    delays = [delay for records in steps for delay in message_delays(placement, records)]
    return fmean(delays) if delays else None


def _emulate(work: _Emulation) -> list[list[tuple[OpRecord, ...]]]:
    """For each step that counts, the schedules in turns, the records of all ranks."""
    if work.rounds < 1:
        raise InputError(f"steps = {work.rounds}: at least 1 must count")
    check_emulation(work.seconds_per_tick, work.message_bytes)
    ranks = launch(_emulate_rank, work.problem.ranks, work, threads=1)
    return [list(records) for records in zip(*ranks, strict=True)]


def _go_first() -> None:
    """Ask that other processes wait for this one, which root may: ranks sleep nearly always, and must wake in time.

    Threads that are made from now on, as those of a pipeline's channels, inherit it.
    """
    if sys.platform == "linux":
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _emulate_rank(rank: int, ranks: int, work: _Emulation) -> list[tuple[OpRecord, ...]]:
    _go_first()
    with ExitStack() as stack:
        pipelines = [
            stack.enter_context(
                EmulatedPipeline(
                    work.problem,
                    schedule,
                    seconds_per_tick=work.seconds_per_tick,
                    message_bytes=work.message_bytes,
                    execution="static",
                )
            )
            for schedule in work.schedules
        ]
        records = []
        for step in range(WARM_UP + work.rounds):
            for pipeline in pipelines:
                pipeline.step()
                if step >= WARM_UP:
                    records.append(pipeline.report.records)
        dist.barrier()
    return records


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
