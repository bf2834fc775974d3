"""One case on its ranks: the bytes of some steps of each side, then steps in turns and their CPU seconds."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adaptpipe.executor import launch

from .memory import peak_bytes
from .raw import ADAPTIVE, OURS, THEIRS, Figures, Measured
from .sides import MICROBATCHES, MODEL, Case, Ours, Side, Theirs

WARM_UP = 2
"""Steps of each side that are run first and not counted."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one rank saw: by side, CPU and wall seconds of each step, and the most bytes held."""

    steps: Mapping[str, tuple[tuple[float, float], ...]]
    peaks: Mapping[str, int]
    difference: float


def measure(case: Case, pairs: int) -> Measured:
    """Run a case on processes of its own, one thread each.

    Parameters
    ----------
    case
        What to run.
    pairs
        Steps of each side that count.
    """
    ranks = launch(_measure_rank, case.ranks, (case, pairs), threads=1)
    sides = {}
    for side in ranks[0].steps:
        steps = list(zip(*(rank.steps[side] for rank in ranks), strict=True))
        sides[side] = Figures(
            cpu_s=tuple(sum(cpu for cpu, _ in each) for each in steps),
            wall_s=tuple(max(wall for _, wall in each) for each in steps),
            peak_bytes=tuple(rank.peaks[side] for rank in ranks),
        )
    return Measured(case.schedule, case.ranks, case.split, max(rank.difference for rank in ranks), sides)


def _measure_rank(rank: int, ranks: int, work: tuple[Case, int]) -> _Seen:
    case, pairs = work
    generator = torch.Generator().manual_seed(0)
    batch, target = torch.randint(MODEL.vocab, (2, MICROBATCHES, MODEL.sequence), generator=generator)
    theirs = Theirs(case, rank)
    sides: dict[str, Side] = {THEIRS: theirs, OURS: Ours(case, rank, theirs.actions, "static")}
    if case.split:
        sides[ADAPTIVE] = Ours(case, rank, theirs.actions, "adaptive")
    peaks = {}
    for name, side in sides.items():
        for module in side.stages.values():
            for parameter in module.parameters():
                parameter.grad = torch.zeros_like(parameter)
        peaks[name] = peak_bytes(partial(side.step, batch, target))
    difference = _difference(sides[OURS].stages, theirs.stages)
    steps: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for pair in range(WARM_UP + pairs):
        for name in list(sides)[:: 1 if pair % 2 else -1]:
            step = _timed(sides[name], batch, target)
            if pair >= WARM_UP:
                steps[name].append(step)
    for side in sides.values():
        side.close()
    return _Seen({name: tuple(row) for name, row in steps.items()}, peaks, difference)


def _timed(side: Side, batch: Tensor, target: Tensor) -> tuple[float, float]:
    """CPU and wall seconds of a step."""
    gc.collect()
    dist.barrier()
    cpu, wall = time.process_time(), time.perf_counter()
    side.step(batch, target)
    dist.barrier()  # what the other threads of a side still do counts
    return time.process_time() - cpu, time.perf_counter() - wall


def _difference(ours: Mapping[int, nn.Module], theirs: Mapping[int, nn.Module]) -> float:
    worst = 0.0
    for stage, module in ours.items():
        for mine, other in zip(module.parameters(), theirs[stage].parameters(), strict=True):
            assert mine.grad is not None
            assert other.grad is not None
            scale = other.grad.abs().max().item()
            worst = max(worst, (mine.grad - other.grad).abs().max().item() / scale if scale else 0.0)
    return worst
