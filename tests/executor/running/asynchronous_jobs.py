"""What the ranks of the asynchronous tests do, and the same stale updates in one process without any pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import mse_loss
from torch.optim import SGD, Adam, Optimizer
from torch.utils.checkpoint import checkpoint

from adaptpipe.executor import AsyncPipeline, Pipeline, StepReport, load_checkpoint, save_checkpoint
from adaptpipe.executor.waiting import gather
from adaptpipe.solver import Kind, Problem, Schedule
from adaptpipe.solver.core.stream import stream

from .pipeline_jobs import refusal

WIDTH = 4
BATCHES = 3


@dataclass(frozen=True)
class Stale:
    """A schedule to train under, and the optimizer of every stage."""

    name: str
    problem: Problem
    schedule: Schedule
    optimizer: str


@dataclass(frozen=True)
class Trained:
    """What training gave: losses of the steps, each stage's state dict, and the report of the last step."""

    losses: tuple[float, ...]
    states: Mapping[int, Mapping[str, Tensor]]
    report: StepReport | None = None


class Stage(nn.Module):
    """Layers whose weight gradients wait and others, one weight in two places, and one that may be computed again."""

    def __init__(self, stage: int, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        torch.manual_seed(stage)
        self.first, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.again, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last.weight = self.first.weight
        self.fixed = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.unused = nn.Linear(1, 1)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.first(x).tanh())
        y = y + (checkpoint(self.again, y, use_reentrant=False) if self.recompute else self.again(y)).tanh()
        z: Tensor = self.last(y) + self.fixed(x)
        return z


def optimizer_of(name: str, module: nn.Module) -> Optimizer:
    parameters = [p for p in module.parameters() if p.requires_grad]
    return SGD(parameters, lr=0.01, momentum=0.9) if name == "SGD" else Adam(parameters, lr=0.01)


def batch(sizes: Sequence[int], step: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(step)
    x, y = (torch.randn(sum(sizes), WIDTH, generator=draw, dtype=torch.float64) for _ in range(2))
    return x, y


def train_all(rank: int, world: int, cases: Sequence[Stale]) -> list[Trained]:
    return [train(rank, case) for case in cases]


def train(rank: int, case: Stale) -> Trained:
    """One batch, a stream of some more, and an evaluation; gradients of before are left alone."""
    stages: dict[int, nn.Module] = {stage: Stage(stage, True) for _, stage in case.schedule.placement.held[rank]}
    optimizers = {stage: optimizer_of(case.optimizer, module) for stage, module in stages.items()}
    sizes = case.schedule.sizes
    before = torch.ones(WIDTH, dtype=torch.float64)
    for module in stages.values():
        module.get_parameter("again.bias").grad = before.clone()
    with AsyncPipeline(case.problem, case.schedule, stages, mse_loss, optimizers=optimizers) as pipeline:
        losses = [pipeline.step(*batch(sizes, 0)), *pipeline.run(batch(sizes, number) for number in range(1, BATCHES))]
        report, steps = pipeline.report, pipeline.steps
        losses.append(pipeline.evaluate(*batch(sizes, BATCHES)))
    assert steps == BATCHES
    grads = {name: p.grad for module in stages.values() for name, p in module.named_parameters() if p.grad is not None}
    assert list(grads) == ["again.bias"]
    assert torch.equal(grads["again.bias"], before)
    return Trained(tuple(losses), {stage: module.state_dict() for stage, module in stages.items()}, report)


def train_whole(case: Stale) -> Trained:
    """Apply the gradient of each micro-batch in turn, taken where its forward met each stage's weights.

    Every version is kept, as a copy. With those that micro-batch j met, its gradient is the whole model's by autograd:
    no stage is run by itself, nothing changes in place, and no op list is followed.
    """
    count, sizes = case.schedule.placement.stage_count, case.schedule.sizes
    stages = [Stage(stage, False) for stage in range(count)]
    optimizers = [optimizer_of(case.optimizer, module) for module in stages]
    losses: list[float] = []
    for numbers in (range(1), range(1, BATCHES)):
        long = stream(case.schedule, len(numbers))
        versions = [[_copy(module)] for module in stages]
        batches = [part for number in numbers for part in zip(*_cut(sizes, number), strict=True)]
        seen = []
        for j, (x, y) in enumerate(batches):
            used = [versions[stage][met(long, stage, j)] for stage in range(count)]
            for module, weights in zip(stages, used, strict=True):
                x = functional_call(module, weights, (x,))
            loss = mse_loss(x, y)
            seen.append(loss.item() * len(y))
            for stage, module in enumerate(stages):
                names = [name for name, p in module.named_parameters() if p.requires_grad]
                grads = torch.autograd.grad(
                    loss, [used[stage][name] for name in names], retain_graph=True, allow_unused=True
                )
                for name, grad in zip(names, grads, strict=True):
                    module.get_parameter(name).grad = grad
                optimizers[stage].step()
                versions[stage].append(_copy(module))
        m = len(sizes)
        losses += [sum(seen[at : at + m]) / sum(sizes) for at in range(0, len(seen), m)]
    x, y = batch(sizes, BATCHES)
    with torch.no_grad():
        losses.append(mse_loss(nn.Sequential(*stages)(x), y).item())
    return Trained(tuple(losses), {stage: module.state_dict() for stage, module in enumerate(stages)})


def _cut(sizes: Sequence[int], number: int) -> list[tuple[Tensor, ...]]:
    return [torch.split(x, list(sizes)) for x in batch(sizes, number)]


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone().requires_grad_(p.requires_grad) for name, p in module.named_parameters()}


def met(schedule: Schedule, stage: int, microbatch: int) -> int:
    """How many updates of a stage come before its forward of a micro-batch, by the schedule's op list."""
    row = [op for op in schedule.ops[schedule.placement.stages[0][stage]] if op.stage == stage]
    before = row[: next(at for at, op in enumerate(row) if (op.kind, op.microbatch) == (Kind.F, microbatch))]
    after = {op.microbatch for op in row[len(before) :] if op.kind is not Kind.F}
    return sum(j not in after for j in range(schedule.microbatches))


@dataclass(frozen=True)
class Held:
    """Peak bytes of a batch under a flush and of a stream without, versions in the latter, and bytes of one.

    And how a stream ends whose limit is that peak, and one whose limit on rank 0 is a byte below; and the peak of one
    short batch by itself.
    """

    flushed: int
    stream: int
    versions: int
    weights: int
    within: str
    beyond: str
    short: int


@dataclass(frozen=True)
class Pair:
    """What two ranks bring home of one case, beside what training gave."""

    trained: list[Trained]
    misused: list[str]
    resumed: float
    held: Held


def on_two_ranks(rank: int, world: int, argument: tuple[Sequence[Stale], Stale]) -> Pair:
    """All that needs two ranks, by one set of processes; the last of it breaks a pipeline."""
    cases, short = argument
    first = cases[0]
    return Pair(train_all(rank, world, cases), misuse(rank, first), resumed(rank, first), held(rank, first, short))


def resumed(rank: int, case: Stale) -> float:
    """Largest difference that saving and loading between two batches makes to a weight."""
    ends = []
    with TemporaryDirectory() as folder:
        for number, stops in enumerate((False, True)):
            stages, optimizers = _fresh(rank, case)
            path = gather(f"{folder}/model.pt", 60.0, "resumed")[0]
            with AsyncPipeline(case.problem, case.schedule, stages, mse_loss, optimizers=optimizers) as pipeline:
                pipeline.step(*batch(case.schedule.sizes, 0))
                if stops:
                    save_checkpoint(path, pipeline, optimizers[rank])
            if stops:
                stages, optimizers = _fresh(rank, case)
            with AsyncPipeline(case.problem, case.schedule, stages, mse_loss, optimizers=optimizers) as pipeline:
                if stops:
                    load_checkpoint(path, pipeline, optimizers[rank])
                    assert pipeline.steps == number
                pipeline.step(*batch(case.schedule.sizes, 1))
            ends.append(nn.utils.parameters_to_vector(stages[rank].parameters()).detach())
    return float((ends[0] - ends[1]).abs().max())


def _fresh(rank: int, case: Stale) -> tuple[dict[int, nn.Module], dict[int, Optimizer]]:
    """A rank's stage, with the names of the unsplit model, and its optimizer."""
    stage = nn.Sequential()
    stage.add_module(str(rank), Stage(rank, True))
    return {rank: stage}, {rank: optimizer_of(case.optimizer, stage)}


def held(rank: int, case: Stale, short: Stale) -> Held:
    stages, optimizers = _fresh(rank, case)
    weights = sum(p.nbytes for p in stages[rank].parameters() if p.requires_grad)
    x, y = batch(case.schedule.sizes, 0)
    flushed = replace(case.schedule, updates="step")
    with Pipeline(case.problem, flushed, stages, mse_loss, execution="static") as pipeline:
        pipeline.step(x, y)
        plain = pipeline.report.peak_bytes

    def run(*limit: int | None) -> StepReport:
        problem = replace(case.problem, memory=replace(case.problem.memory, limit=limit))
        with AsyncPipeline(problem, case.schedule, stages, mse_loss, optimizers=optimizers, timeout_s=2.0) as pipeline:
            pipeline.run([(x, y)] * 2)
            return pipeline.report

    with AsyncPipeline(short.problem, short.schedule, stages, mse_loss, optimizers=optimizers) as stale:
        stale.step(*batch(short.schedule.sizes, 0))
        drained = stale.report.peak_bytes
    report = run(None, None)
    peaks = gather(report.peak_bytes, 60.0, "held")
    within, beyond = refusal(lambda: run(*peaks)), refusal(lambda: run(peaks[0] - 1, None))
    return Held(plain, report.peak_bytes, report.versions, weights, within, beyond, drained)


def _same(grad: Tensor) -> Tensor:
    return grad


def misuse(rank: int, case: Stale) -> list[str]:
    """The messages of what can go wrong once stages and optimizers are there, and before; no processes are lost."""
    stages, optimizers = _fresh(rank, case)
    x, y = batch(case.schedule.sizes, 0)
    found = [
        refusal(
            lambda: AsyncPipeline(case.problem, case.schedule, stages, mse_loss, optimizers={} if rank else optimizers)
        ),
        refusal(lambda: Pipeline(case.problem, case.schedule, stages, mse_loss)),
    ]
    with AsyncPipeline(case.problem, case.schedule, stages, mse_loss, optimizers=optimizers) as pipeline:
        found += [
            refusal(lambda: pipeline.run([(x, y)] * rank)),
            refusal(lambda: pipeline.run([])),
            refusal(lambda: pipeline.run([x])),  # type: ignore[list-item]  # the mistake
            refusal(lambda: pipeline.run([(x, y), (x[1:], y[1:])])),
        ]
        bias = stages[rank].get_parameter(f"{rank}.first.bias")
        handle = bias.register_hook(_same)  # type: ignore[no-untyped-call]  # torch's
        found.append(refusal(lambda: pipeline.step(x, y)))
        handle.remove()
        pipeline.step(x, y)  # none of these has broken it
    return found
