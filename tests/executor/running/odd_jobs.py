"""What ranks do in the tests of odd stages; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaptpipe.executor.running.pipeline import Pipeline
from adaptpipe.executor.running.plan import ExecutionMode

from ..odd_stages import D, odd_stages
from .pipeline_jobs import Case, error


def compare_odd(rank: int, world: int, cases: Sequence[Case]) -> list[tuple[str, float]]:
    """For each case: its name, and the largest relative error of a gradient over two steps."""
    warnings.filterwarnings("ignore", ".*weight_norm.* is deprecated", FutureWarning)
    return [
        (case.name, _compare_odd(rank, case, "static" if number % 2 else "adaptive"))
        for number, case in enumerate(cases)
    ]


def _compare_odd(rank: int, case: Case, execution: ExecutionMode) -> float:
    sizes = case.schedule.sizes
    draw = torch.Generator().manual_seed(sum(sizes))
    batch, target = (torch.randn(sum(sizes), 4, D, generator=draw) for _ in range(2))
    stages, whole = odd_stages(case.model), odd_stages(case.model)
    mine = {stage: stages[stage] for _, stage in case.schedule.placement.held[rank]}
    losses = []
    with Pipeline(case.problem, case.schedule, mine, F.mse_loss, execution=execution) as pipeline:
        for _ in range(2):
            losses.append((pipeline.step(batch, target), _by_microbatches(whole, sizes, batch, target)))
    assert all(abs(ours / wanted - 1) < 1e-5 for ours, wanted in losses), (case.name, losses)
    pairs = [(p, q) for s, m in mine.items() for p, q in zip(m.parameters(), whole[s].parameters(), strict=True)]
    return max([error(p.grad, q.grad) for p, q in pairs], default=0.0)


def _by_microbatches(stages: Sequence[nn.Module], sizes: Sequence[int], batch: Tensor, target: Tensor) -> float:
    """The same step by autograd alone, for modules that look at other samples of their micro-batch."""
    total = 0.0
    for x, y, size in zip(torch.split(batch, list(sizes)), torch.split(target, list(sizes)), sizes, strict=True):
        z = x
        for stage in stages:
            z = stage(z)
        loss = F.mse_loss(z, y) * (size / sum(sizes))
        torch.autograd.backward(loss)
        total += loss.item()
    return total
