"""What the ranks of the tests of adaptive execution do; in a file of its own, so that others find it by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adaptpipe.executor.report import StepReport
from adaptpipe.executor.running.emulated import EmulatedPipeline
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.solver import Noise, Problem, Schedule

TICK_S = 1e-4


@dataclass(frozen=True)
class Run:
    """One emulated pipeline, and how many steps it runs."""

    problem: Problem
    schedule: Schedule
    execution: ExecutionMode = "adaptive"
    noise: Noise | None = None
    steps: int = 1
    message_bytes: int = 4096
    tick_s: float = TICK_S


def run_all(rank: int, world: int, runs: Sequence[Run]) -> list[list[StepReport]]:
    """The reports of each run's steps."""
    found = []
    for run in runs:
        with EmulatedPipeline(
            run.problem,
            run.schedule,
            seconds_per_tick=run.tick_s,
            execution=run.execution,
            noise=run.noise,
            message_bytes=run.message_bytes,
        ) as pipeline:
            reports = []
            for _ in range(run.steps):
                pipeline.step()
                reports.append(pipeline.report)
            found.append(reports)
    return found
