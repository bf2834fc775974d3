"""Run schedules with emulated ops on this machine, in turns: what came out beside what was predicted.

Emulated ops sleep for their planned time, so that many ranks fit on few cores; messages are real. A prediction is as
good as the message time it was made with: measure it with `message_seconds`, and write it into the problem by
`with_latency`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from statistics import fmean

import torch.distributed as dist

from adaptpipe.solver import InputError, Noise, Placement, Problem, Schedule
from adaptpipe.solver.core.problem import price
from adaptpipe.solver.evaluate.noisy import run_value
from adaptpipe.solver.evaluate.scenario import Planned
from adaptpipe.solver.floating import FloatingPlan, Runs
from adaptpipe.solver.heuristics import one_f_one_b

from ..launching.launcher import launch
from ..programs.reserve import borders
from ..programs.route import WINDOW
from ..report import OpRecord
from ..running.emulated import EmulatedPipeline, check_emulation
from ..running.plan import ExecutionMode
from .delays import message_delays

MESSAGE_BYTES = 1 << 16

WARM_UP = 2
"""Steps of each way that are run first and not counted."""

Step = tuple[tuple[OpRecord, ...], ...]
"""For each rank, its ops."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a problem.

    Parameters
    ----------
    schedule
        The ops.
    execution
        Whether weight units float.
    noise
        Disturbs the steps: the first that counts meets scenario `WARM_UP`, and so on.
    """

    schedule: Schedule
    execution: ExecutionMode = "adaptive"
    noise: Noise | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    """What the ranks are told."""

    problem: Problem
    ways: tuple[Way, ...]
    steps: int
    seconds_per_tick: float
    message_bytes: int
    timeout_s: float


def emulate(
    problem: Problem,
    ways: Sequence[Way],
    *,
    steps: int,
    seconds_per_tick: float,
    message_bytes: int | None = None,
    timeout_s: float = 60.0,
) -> list[list[Step]]:
    """Run a problem in several ways, step by step in turns, on one process for each rank.

    Parameters
    ----------
    problem
        Prices of all ways.
    ways
        What disturbs the machine for a while meets all of them.
    steps
        Steps of each that count.
    seconds_per_tick
        How long a tick takes. Ops below some 5 ms show the machine more than the schedule.
    message_bytes
        Size of every message; None: see `message_bytes_of`.
    timeout_s
        Seconds that a rank waits for a message.

    Returns
    -------
    list
        For each way its steps.

    Raises
    ------
    InputError
        If an argument is out of range, or a schedule is of another shape.
    NoAnswerError
        If a schedule is invalid, or could pass a memory limit.
    """
    if steps < 1:
        raise InputError(f"steps = {steps}: at least 1 must count")
    if message_bytes is None:
        message_bytes = message_bytes_of(problem)
    check_emulation(seconds_per_tick, message_bytes)
    work = _Work(problem, tuple(ways), steps, seconds_per_tick, message_bytes, timeout_s)
    ranks = launch(emulate_rank, problem.ranks, work, threads=1)
    return [[tuple(rank[way][step] for rank in ranks) for step in range(steps)] for way in range(len(work.ways))]


def emulate_rank(rank: int, ranks: int, work: _Work) -> list[list[tuple[OpRecord, ...]]]:
    """What one rank does: for each way, the ops of each step that counts."""
    _go_first()
    records: list[list[tuple[OpRecord, ...]]] = [[] for _ in work.ways]
    with ExitStack() as stack:
        pipelines = [
            stack.enter_context(
                EmulatedPipeline(
                    work.problem,
                    way.schedule,
                    seconds_per_tick=work.seconds_per_tick,
                    execution=way.execution,
                    noise=way.noise,
                    message_bytes=work.message_bytes,
                    timeout_s=work.timeout_s,
                )
            )
            for way in work.ways
        ]
        for step in range(WARM_UP + work.steps):
            for pipeline, row in zip(pipelines, records, strict=True):
                pipeline.step()
                if step >= WARM_UP:
                    row.append(pipeline.report.records)
        dist.barrier()
    return records


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
    way = Way(one_f_one_b(problem), "static")
    (found,) = emulate(problem, [way], steps=steps, seconds_per_tick=op_s, message_bytes=message_bytes)
    delay = mean_message_s(problem.placement, found)
    assert delay is not None, "in 1F1B every rank waits for messages"
    return delay


def message_bytes_of(problem: Problem) -> int:
    """How large the messages of an emulation should be, in bytes.

    The problem's largest, where it names their sizes; else 64 KiB, or less where it sets aside less for them.

    Examples
    --------
    >>> costs = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    >>> shape = {"pipeline": {"ranks": 2}, "batch": {"samples": 2}, "costs": costs}
    >>> message_bytes_of(Problem.from_dict(shape))
    65536
    >>> message_bytes_of(Problem.from_dict(shape | {"memory": {"activation": 1, "reserve": 4000}}))
    1000
    """
    if problem.links.message:
        largest = max(price(cost, max(problem.sizes)) for cost in problem.links.message)
        return max(1, largest)
    shares = [
        reserve // (2 * WINDOW * len(stages))  # as `message_reserve` counts
        for reserve, stages in zip(problem.memory.reserve, borders(problem.placement), strict=True)
        if reserve and stages
    ]
    return max(1, min([MESSAGE_BYTES, *shares]))


def with_latency(problem: Problem, seconds: float, seconds_per_tick: float) -> Problem:
    """The problem, with messages that take so long between any two ranks, whatever their size; rounded to ticks."""
    ticks = round(seconds / seconds_per_tick)
    ranks = range(problem.ranks)
    latency = tuple(tuple(0 if a == b else ticks for b in ranks) for a in ranks)
    return replace(problem, links=replace(problem.links, latency=latency, bandwidth=None, message=()))


def mean_message_s(placement: Placement, steps: Sequence[Step]) -> float | None:
    """Mean seconds of the messages that a rank waited for; None if there was none."""
    delays = [delay for step in steps for delay in message_delays(placement, step)]
    return fmean(delays) if delays else None


def _go_first() -> None:
    """Ask that other processes wait for this one, which root may: ranks sleep nearly always, and must wake in time.

    Threads that are made from now on, as those of a pipeline's channels, inherit it.
    """
    if sys.platform == "linux":
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def predicted_s(problem: Problem, way: Way, steps: int, seconds_per_tick: float) -> tuple[float, ...]:
    """Simulated makespans of the steps that count, in the noise that they meet.

    Parameters
    ----------
    problem, way, steps, seconds_per_tick
        As for `emulate`.

    Raises
    ------
    InputError
        If the schedule is of another shape.
    NoAnswerError
        If it is invalid, or could pass a memory limit.
    """
    noise, instance = way.noise or Noise(sigma=0, link=0), problem.instance(way.schedule.sizes)
    scenarios = [noise.scenario(instance, WARM_UP + step) for step in range(steps)]
    if way.execution == "static":
        planned = Planned.of(instance, way.schedule)
        ticks = [run_value(way.schedule, planned, scenario, "makespan") for scenario in scenarios]
    else:
        runs = Runs(FloatingPlan.of(problem, way.schedule))
        ticks = [runs.value(scenario) for scenario in scenarios]
    return tuple(each * seconds_per_tick for each in ticks)
