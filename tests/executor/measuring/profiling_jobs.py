"""What the ranks of the profiling tests do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaptpipe.executor.measuring import profiling
from adaptpipe.executor.running.pipeline import Pipeline
from adaptpipe.solver import Placement, Problem, Profile, Schedule

from ..stage_sets import SETS

WIDTH = 16


@dataclass(frozen=True)
class Run:
    """A schedule to run, and the sizes whose samples it takes."""

    problem: Problem
    schedule: Schedule


def profile_of(rank: int, world: int, argument: tuple[Placement, str, Sequence[int], int]) -> Profile:
    """Measure stages of a kind, however fast this machine is."""
    placement, model, sizes, units = argument
    stages = {stage: SETS[model](placement.stage_count, 1).stages[stage] for _, stage in placement.held[rank]}

    def batch_of(samples: int) -> tuple[Tensor, Tensor]:
        made = SETS[model](placement.stage_count, samples)
        assert isinstance(made.batch, Tensor)
        assert isinstance(made.target, Tensor)
        return made.batch, made.target

    loss_fn = SETS[model](placement.stage_count, 1).loss_fn
    with mock.patch.object(profiling, "LEAST_UNIT_S", 1e-9):
        return profiling.measure(placement, stages, loss_fn, batch_of, sizes, units=units)


class Norm(nn.Module):
    """Running statistics, which a measurement must leave alone."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))  # type: ignore[no-any-return]  # modules return Any


def leaves_all_as_it_was(rank: int, world: int, placement: Placement) -> bool:
    """Measure a stage with gradients and running statistics."""
    torch.manual_seed(rank)
    stage = Norm()
    stage.linear.bias.grad = torch.full((WIDTH,), 3.0)
    before = {name: value.clone() for name, value in stage.state_dict().items()}

    def batch_of(samples: int) -> tuple[Tensor, Tensor]:
        return torch.randn(samples, WIDTH), torch.randn(samples, WIDTH)

    profiling.measure(placement, {rank: stage}, F.mse_loss, batch_of, [2])
    same = all(torch.equal(before[name], value) for name, value in stage.state_dict().items())
    kept = stage.linear.weight.grad is None and bool((stage.linear.bias.grad == 3).all())
    return same and kept


def peaks(rank: int, world: int, argument: tuple[str, Sequence[Run]]) -> list[int]:
    """Bytes that this rank held at most, in each run."""
    name, runs = argument
    found = []
    for run in runs:
        placement = run.schedule.placement
        model = SETS[name](placement.stage_count, sum(run.schedule.sizes))
        stages = {stage: model.stages[stage] for _, stage in placement.held[rank]}
        with Pipeline(run.problem, run.schedule, stages, model.loss_fn, execution="static") as pipeline:
            pipeline.step(model.batch, model.target)
            found.append(pipeline.report.peak_bytes)
    return found
