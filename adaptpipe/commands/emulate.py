"""`adaptpipe run --emulate`: ops sleep for their planned time, on real ranks with real messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import msgspec

from adaptpipe.executor.measuring.emulation import (
    WARM_UP,
    Step,
    Way,
    emulate,
    message_bytes_of,
    message_seconds,
    predicted_s,
    with_latency,
)
from adaptpipe.executor.report import as_trace, makespan_s
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.solver import Granularity, NoAnswerError, Problem, Result, Schedule, simulate
from adaptpipe.solver.core.problem import SECONDS
from adaptpipe.solver.evaluate.noise import Noise
from adaptpipe.solver.planning.files.plan_file import load_plan
from adaptpipe.solver.solving import solve
from adaptpipe.solver.traces.writing import save_trace

from .baseline import check_methods, find_baseline
from .common import say, table
from .planning import priced
from .run_file import RunSpec, out_folder
from .training import launch_ranks, profile_rank

MESSAGE_OP_S = 0.02
"""Seconds of the ops between which messages are timed."""

EXECUTIONS: tuple[ExecutionMode, ...] = ("static", "adaptive")


@dataclass(frozen=True, slots=True)
class Emulated:
    """One schedule, run in one way.

    Parameters
    ----------
    name
        Of the schedule.
    way
        What ran.
    predicted_s
        Simulated makespan of each step, in the noise that it met.
    steps
        The ops of each step.
    """

    name: str
    way: Way
    predicted_s: tuple[float, ...]
    steps: tuple[Step, ...]

    @property
    def measured_s(self) -> tuple[float, ...]:
        """Makespan of each step."""
        return tuple(makespan_s(step) for step in self.steps)

    @property
    def ratio(self) -> float:
        """Median over the steps of measured over predicted."""
        return median(a / b for a, b in zip(self.measured_s, self.predicted_s, strict=True))

    @property
    def in_waits(self) -> float:
        """Mean number of weight units of a step that ran while their rank waited."""
        return fmean(sum(record.in_wait for row in step for record in row) for step in self.steps)

    @property
    def typical(self) -> Step:
        """The step of median makespan."""
        return sorted(self.steps, key=makespan_s)[len(self.steps) // 2]

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "schedule": self.name,
            "execution": self.way.execution,
            "predicted_step_s": median(self.predicted_s),
            "measured_step_s": median(self.measured_s),
            "measured_over_predicted": self.ratio,
            "shortest_step_s": min(self.measured_s),
            "longest_step_s": max(self.measured_s),
            "units_in_waits": self.in_waits,
        }


@dataclass(frozen=True, slots=True)
class Emulation:
    """All that was run, the problem with the message time that was measured, and that time in seconds."""

    problem: Problem
    message_s: float
    runs: tuple[Emulated, ...]
    folder: Path

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "emulated": [run.as_dict() for run in self.runs],
            "noise": str(self.runs[0].way.noise or "none"),
            "message_s": self.message_s,
            "out": str(self.folder),
        }

    def tell(self) -> None:
        """Print the figures for people."""
        table(
            [
                "schedule",
                "execution",
                "predicted",
                "measured (median)",
                "shortest to longest",
                "ratio",
                "units in waits",
            ],
            [
                [
                    run.name,
                    run.way.execution,
                    f"{median(run.predicted_s) * 1e3:.1f} ms",
                    f"{median(run.measured_s) * 1e3:.1f} ms",
                    f"{min(run.measured_s) * 1e3:.1f} to {max(run.measured_s) * 1e3:.1f} ms",
                    f"{run.ratio:.3f}",
                    f"{run.in_waits:.1f}",
                ]
                for run in self.runs
            ],
        )
        print("ratio: measured over predicted makespan, the median over the steps, each in the noise that it met")
        print(f"a message takes {self.message_s * 1e3:.2f} ms here; noise: {self.runs[0].way.noise or 'none'}")
        print(f"written to {self.folder}: problem.json, and of each run a schedule .json and a .trace.json")


def emulate_run(spec: RunSpec) -> Emulation:
    """Time messages, plan with what they take, and run the baseline and our schedule, each static and adaptive.

    Raises
    ------
    InputError
        When the run file, or a file that it names, is wrong.
    NoAnswerError
        When a schedule cannot be found, or could pass a memory limit.
    """
    noise = Noise.parse(spec.noise, spec.seed)
    bare = _problem(spec)
    noise.require_ranks(bare.ranks)
    # For the usual baseline of a given problem.
    spec = msgspec.structs.replace(spec, placement=bare.placement.name, slices=bare.slice_count)
    check_methods(spec, bare)
    seconds_per_tick = spec.seconds_per_tick or float(SECONDS[bare.unit])
    message_s, message_bytes = 0.0, message_bytes_of(bare)
    if bare.ranks > 1:
        say(f"timing messages between {bare.ranks} emulated ranks")
        message_s = message_seconds(bare.ranks, op_s=MESSAGE_OP_S, message_bytes=message_bytes)
    problem = with_latency(bare, message_s, seconds_per_tick)
    named = _schedules(spec, problem)
    ways = [Way(schedule, execution, noise) for _, schedule in named for execution in EXECUTIONS]
    predicted = [predicted_s(problem, way, spec.steps, seconds_per_tick) for way in ways]
    length_s = sum(fmean(said) for said in predicted) * (WARM_UP + spec.steps)
    say(
        f"emulating {spec.steps} steps of {' and '.join(name for name, _ in named)}, static and adaptive, in turns: "
        f"about {length_s:.3g} s"
    )
    steps = emulate(
        problem,
        ways,
        steps=spec.steps,
        seconds_per_tick=seconds_per_tick,
        message_bytes=message_bytes,
        timeout_s=spec.timeout_s,
    )
    names = [name for name, _ in named for _ in EXECUTIONS]
    runs = tuple(
        Emulated(name, way, said, tuple(found))
        for name, way, said, found in zip(names, ways, predicted, steps, strict=True)
    )
    return Emulation(problem, message_s, runs, _write(spec, problem, runs, seconds_per_tick))


def _problem(spec: RunSpec) -> Problem:
    if spec.problem:
        return Problem.load(spec.problem)
    if spec.plan:
        return load_plan(spec.plan).problem
    return priced(spec, launch_ranks(profile_rank, spec)[0])[0]


def _schedules(spec: RunSpec, problem: Problem) -> list[tuple[str, Schedule]]:
    """The baseline and ours, by name."""
    if spec.as_planned:
        schedule = load_plan(spec.plan).schedule
        ours = Result(spec.method, spec.objective, simulate(problem, schedule), 0, 0.0)
    else:
        ours = solve(
            problem,
            spec.method,
            objective=spec.objective,
            time_limit=spec.time_limit,
            granularity=Granularity.parse(spec.granularity),
        )
    named = []
    for result in (find_baseline(spec, problem), ours):
        if result.timeline is None:
            raise NoAnswerError(f"{result.method}: {result.reason}")
        named.append((result.found_by or result.method, result.schedule))
    return named


def _write(spec: RunSpec, problem: Problem, runs: Sequence[Emulated], seconds_per_tick: float) -> Path:
    folder = out_folder(spec)
    problem.save(folder / "problem.json")
    for stem, run in zip(
        (f"{part}-{mode}" for part in ("baseline", "schedule") for mode in EXECUTIONS), runs, strict=True
    ):
        run.way.schedule.save(folder / f"{stem}.json", problem.name)
        save_trace(as_trace(run.way.schedule, run.typical, seconds_per_tick), folder / f"{stem}.trace.json")
    return folder
