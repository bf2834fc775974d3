"""Running exported schedules on PyTorch's own runtime; in a file of its own, so that other processes find it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.nn import functional as F

from .pipeline_jobs import error

WIDTH = 8


@dataclass(frozen=True)
class Table:
    """A CSV file to run."""

    name: str
    path: str
    format: str
    stage_to_rank: tuple[int, ...]
    microbatches: int


def modules_of(stages: int) -> list[nn.Module]:
    """A chain of small stages; none returns a view, which their split backward refuses."""
    torch.manual_seed(7)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(stages)]


def run_theirs(rank: int, world: int, tables: Sequence[Table]) -> list[tuple[str, float]]:
    """For each table: name, and the largest relative error of a gradient against the unsplit model's."""
    return [(table.name, _error(rank, table)) for table in tables]


def _error(rank: int, table: Table) -> float:
    stages, count = len(table.stage_to_rank), table.microbatches
    draw = torch.Generator().manual_seed(1)
    x, y = (torch.randn(2 * count, WIDTH, generator=draw) for _ in range(2))
    whole = modules_of(stages)
    torch.autograd.backward(F.mse_loss(nn.Sequential(*whole)(x), y))
    mine = {stage: module for stage, module in enumerate(modules_of(stages)) if table.stage_to_rank[stage] == rank}
    theirs = [PipelineStage(module, stage, stages, torch.device("cpu")) for stage, module in mine.items()]
    schedule = _PipelineScheduleRuntime(theirs, count, loss_fn=F.mse_loss)  # type: ignore[no-untyped-call]  # torch's
    schedule._load_csv(table.path, format=table.format)  # type: ignore[arg-type]  # a literal of theirs
    schedule.step(*([x] if 0 in mine else []), target=y if stages - 1 in mine else None, return_outputs=False)
    pairs = [
        (ours.grad, p.grad)
        for s, m in mine.items()
        for ours, p in zip(m.parameters(), whole[s].parameters(), strict=True)
    ]
    return max(error(ours, wanted) for ours, wanted in pairs)
