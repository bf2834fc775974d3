"""What the ranks of the emulation tests do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from unittest import mock

from adaptpipe.executor.report import StepReport
from adaptpipe.executor.running.emulated import EmulatedPipeline
from adaptpipe.solver import Problem, Schedule

from .pipeline_jobs import refusal

Case = tuple[Problem, Schedule]

TICK_S = 1e-4
MESSAGE_BYTES = 4096


def pipeline_of(case: Case) -> EmulatedPipeline:
    return EmulatedPipeline(*case, seconds_per_tick=TICK_S, message_bytes=MESSAGE_BYTES, execution="static")


def step_all(rank: int, world: int, cases: Sequence[Case]) -> list[StepReport]:
    """The second step of each."""
    reports = []
    for case in cases:
        with pipeline_of(case) as pipeline:
            pipeline.step()
            pipeline.step()
            assert gc.isenabled()
            reports.append(pipeline.report)
    return reports


def misuse(rank: int, world: int, cases: tuple[Case, Case]) -> list[str]:
    """The messages of everything that a caller can get wrong; the second case has other ranks than there are."""
    case, other = cases
    pipeline = pipeline_of(case)
    found = [refusal(lambda: pipeline.report)]
    pipeline.close()
    return [
        *found,
        refusal(pipeline.step),
        refusal(lambda: EmulatedPipeline(*case, seconds_per_tick=0)),
        refusal(lambda: EmulatedPipeline(*case, seconds_per_tick=1.0, message_bytes=0)),
        refusal(lambda: pipeline_of(other)),
    ]


def fail(rank: int, world: int, case: Case) -> None:
    """Rank 1 fails in its third op."""
    with pipeline_of(case) as pipeline:
        if rank == 1:
            run = mock.Mock(side_effect=[None, None, ValueError("boom")])
            with mock.patch.object(pipeline._device, "run", run):
                pipeline.step()
        pipeline.step()
