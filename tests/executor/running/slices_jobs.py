"""What ranks do in the tests of slices; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adaptpipe.executor.running.pipeline import Pipeline
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.executor.stages.runner import StageRunner
from adaptpipe.models import GPTConfig, build_full, build_stage, next_byte_loss, split_layers
from adaptpipe.solver import Problem, Schedule

from .pipeline_jobs import error, refusal

LENGTH, D = 12, 8


@dataclass(frozen=True)
class Sliced:
    """One schedule to run on a GPT, and how."""

    name: str
    problem: Problem
    schedule: Schedule
    execution: ExecutionMode = "adaptive"
    lengths: tuple[int, ...] = (LENGTH,)


def config_for(stages: int) -> GPTConfig:
    return GPTConfig(layers=max(2, stages - 2), width=D, heads=2, sequence=2 * LENGTH, vocab=13)


def text_of(samples: int, length: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    text = torch.randint(0, 13, (samples, length + 1), generator=torch.Generator().manual_seed(seed))
    return text[:, :-1], text[:, 1:]


def stages_of(rank: int, case: Sliced) -> dict[int, nn.Module]:
    placement = case.schedule.placement
    config = config_for(placement.stage_count)
    parts = split_layers(len(config.layer_names), placement.stage_count)
    return {s: build_stage(config, 3, parts[s]).double() for _, s in placement.held[rank]}


def compare_all(rank: int, world: int, cases: Sequence[Sliced]) -> list[tuple[str, float, float]]:
    """For each case: name, the largest error of a gradient, and that of a loss, against the unsplit model's."""
    return [(case.name, *_compare(rank, case)) for case in cases]


def _compare(rank: int, case: Sliced) -> tuple[float, float]:
    mine, samples = stages_of(rank, case), case.problem.samples
    whole = build_full(config_for(case.schedule.placement.stage_count), 3).double()
    worst = 0.0
    batches = [text_of(samples, length, seed) for seed, length in enumerate(case.lengths)]
    with Pipeline(
        case.problem, case.schedule, mine, next_byte_loss, execution=case.execution, memory="report"
    ) as pipeline:
        for batch, target in batches:
            expected = next_byte_loss(whole(batch), target)
            torch.autograd.backward(expected)
            worst = max(worst, abs(pipeline.step(batch, target) / expected.item() - 1))
        # Not cut: of any length.
        batch, target = text_of(samples + 1, LENGTH + 1, 7)
        with torch.no_grad():
            worst = max(worst, abs(pipeline.evaluate(batch, target) / next_byte_loss(whole(batch), target).item() - 1))
        for runner in pipeline._runners.values():
            assert isinstance(runner, StageRunner)
            assert not runner.held_bytes
    wanted = {name: p.grad for name, p in whole.named_parameters()}
    return max(error(p.grad, wanted[name]) for m in mine.values() for name, p in m.named_parameters()), worst


class Masked(nn.Module):
    """The mean of the tokens so far that a mask lets through, scaled; takes keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)

    def forward(self, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        return self.forward_slice(x, past=(), mask=mask, scale=scale)[0]

    def forward_slice(self, x: Tensor, *, past: Any, mask: Tensor, scale: float) -> tuple[Tensor, Any]:
        y = torch.tanh(self.linear(x)) * mask[..., None]
        sums, counts = y.cumsum(1), mask.cumsum(1)
        if past:
            sums, counts = sums + past[0], counts + past[1]
        return sums * scale / (counts[..., None] + 1), (sums[:, -1:], counts[:, -1:])


def token_wise() -> nn.Module:
    stage = nn.Sequential(nn.Tanh(), nn.Linear(D, D))
    stage.token_wise = True  # type: ignore[assignment]  # no module
    return stage


def keywords(rank: int, world: int, case: Sliced) -> float:
    """Error of the gradients of stages that take keywords, one of which has a token for each token."""
    torch.manual_seed(3)
    made = [(Masked().double(), token_wise().double()) for _ in range(2)]
    ours, theirs = made
    theirs[0].load_state_dict(ours[0].state_dict())
    theirs[1].load_state_dict(ours[1].state_dict())
    batch, target = torch.randn(2, case.problem.samples, LENGTH, D, dtype=torch.float64)
    mask = torch.rand(case.problem.samples, LENGTH) > 0.3
    loss_fn = nn.functional.mse_loss
    with Pipeline(case.problem, case.schedule, {rank: ours[rank]}, loss_fn, memory="report") as pipeline:
        loss = pipeline.step(batch, target, mask=mask, scale=2.0)
    expected = loss_fn(theirs[1](theirs[0](batch, mask, 2.0)), target)
    torch.autograd.backward(expected)
    pairs = zip(ours[rank].parameters(), theirs[rank].parameters(), strict=True)
    return max(abs(loss / expected.item() - 1), *(error(a.grad, b.grad) for a, b in pairs))


def refusals(rank: int, world: int, case: Sliced) -> list[str]:
    """What is said of data, and of stages, that cannot be cut into slices."""

    mine, samples = stages_of(rank, case), case.problem.samples
    whole = nn.TransformerEncoderLayer(D, 2, batch_first=True)
    # Each rank has its own reason to refuse, so that none waits for the other.
    with Pipeline(case.problem, case.schedule, mine, next_byte_loss, memory="report") as pipeline:
        batch, target = text_of(samples, LENGTH)
        found = [
            refusal(lambda: pipeline.step(batch[:, :10], target[:, :10])),
            refusal(lambda: pipeline.step(batch[:, 0], target[:, 0])),
        ]
    found.append(refusal(lambda: Pipeline(case.problem, case.schedule, {rank: whole}, next_byte_loss, memory="report")))
    return found


def peaks(rank: int, world: int, case: Sliced) -> list[int]:
    """The most bytes held on any rank, without limits, and where no rank may hold more than that."""
    batch, target = text_of(case.problem.samples, LENGTH)
    found: list[int] = []
    for limit in (None, found):
        most = (None if limit is None else limit[0],) * world
        problem = replace(case.problem, memory=replace(case.problem.memory, limit=most))
        with Pipeline(
            problem, case.schedule, stages_of(rank, case), next_byte_loss, execution=case.execution
        ) as pipeline:
            pipeline.step(batch, target)
            everyone = [0] * world
            dist.all_gather_object(everyone, pipeline.report.peak_bytes)
            found.append(max(everyone))
    return found


def everything(
    rank: int, world: int, cases: Sequence[Sliced]
) -> tuple[list[tuple[str, float, float]], float, list[str], list[int]]:
    """All that two ranks do, in one set of processes; the first case is a chain of two stages."""
    found = compare_all(rank, world, cases), keywords(rank, world, cases[0]), refusals(rank, world, cases[0])
    return *found, peaks(rank, world, cases[0])
