"""What the ranks of the test of the literature do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from adaptpipe.executor import Pipeline
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.solver import Problem, Schedule

from ..stage_sets import gpt, gpt_whole
from .pipeline_jobs import error, own


@dataclass(frozen=True)
class Case:
    """A schedule of a method."""

    method: str
    problem: Problem
    schedule: Schedule

    def __str__(self) -> str:
        placement = self.schedule.placement
        return f"{self.method} on {placement.name}, {placement.stage_count} stages, m={self.schedule.microbatches}"


@dataclass(frozen=True)
class Errors:
    """Of one case on one rank, relative: the loss, and the gradient of each parameter of the rank's stages."""

    loss: float
    gradients: Mapping[str, float]


def errors_of_all(rank: int, world: int, argument: tuple[Sequence[Case], ExecutionMode]) -> list[Errors]:
    """One step of each case in float64, against the unsplit model."""
    cases, execution = argument
    return [_errors(rank, case, execution) for case in cases]


def _errors(rank: int, case: Case, execution: ExecutionMode) -> Errors:
    count, samples = case.schedule.placement.stage_count, case.problem.samples
    model = gpt(count, samples)
    for stage in model.stages:
        stage.double()
    stages = own(rank, case.schedule, model)
    # The problem's bytes are not the model's.
    with Pipeline(case.problem, case.schedule, stages, model.loss_fn, execution=execution, memory="report") as pipeline:
        loss = pipeline.step(model.batch, model.target)
    whole, wanted = _whole(count, samples)
    found = {name: parameter.grad for stage in stages.values() for name, parameter in stage.named_parameters()}
    return Errors(abs(loss / whole - 1), {name: error(grad, wanted[name]) for name, grad in found.items()})


@cache
def _whole(count: int, samples: int) -> tuple[float, Mapping[str, Tensor | None]]:
    """Loss and gradients of the unsplit model."""
    data, whole = gpt(count, samples), gpt_whole(count).double()
    loss = data.loss_fn(whole(data.batch), data.target)
    torch.autograd.backward(loss)
    return loss.item(), {name: parameter.grad for name, parameter in whole.named_parameters()}
