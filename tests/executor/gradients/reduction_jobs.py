"""What the ranks of the tests of sums do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from adaptpipe.executor import Pipeline
from adaptpipe.executor.gradients.reduction import Reduction
from adaptpipe.solver import Problem, Schedule, place

from ..orders import problem_for, schedule_for
from ..running.pipeline_jobs import error, refusal

NAMES = ("dp", "pp")
TIED = (((0, "0.weight"), (1, "1.weight")),)


def plan(ranks: int, stages_per_rank: int = 1, samples: int = 2) -> tuple[Problem, Schedule]:
    placement = place("loop", ranks, stages_per_rank)
    sizes = (1,) * samples
    return problem_for(placement, sizes), schedule_for(placement, sizes, "zb")


def two_layers(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, bias=False))


def four_layers(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(4)))


def data(samples: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(9)
    return torch.randn(samples, 4, generator=draw), torch.randn(samples, 4, generator=draw)


def reference(tied: bool, samples: int) -> dict[str, Tensor]:
    """Gradients of the whole model with the first replica's, and the first copy's, values."""
    model = two_layers(0)
    if tied:
        model[1].weight = model[0].weight
    batch, target = data(samples)
    torch.autograd.backward(nn.functional.mse_loss(model(batch), target))
    found = {name: p.grad for name, p in model.named_parameters(remove_duplicate=False)}
    return {name: grad for name, grad in found.items() if grad is not None}


def tied_over_ranks(rank: int, world: int, steps: int) -> float:
    """Two ranks tie unequal matrices; the error of the gradients after steps without `zero_grad`."""
    stage = two_layers(rank)[rank : rank + 1]
    with Pipeline(*plan(2), {rank: stage}, nn.functional.mse_loss, tied=TIED) as pipeline:
        for _ in range(steps):
            pipeline.step(*data(2))
        assert pipeline.ties == TIED
    return _error(stage, reference(True, 2), steps)


def replicated(rank: int, world: int, steps: int) -> float:
    """The same with two replicas of one rank, where the two stages have one parameter object in common."""
    model = two_layers(rank)
    model[1].weight = model[0].weight
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=NAMES)
    batch, target = data(4)
    with Pipeline(*plan(1, 2), {0: model[:1], 1: model[1:]}, nn.functional.mse_loss, mesh=mesh) as pipeline:
        for _ in range(steps):
            pipeline.step(batch[rank::2], target[rank::2])
        assert pipeline.ties == TIED
        norm = pipeline.grad_norm()
    unique = torch.stack([grad.norm() for name, grad in reference(True, 4).items() if name != "1.weight"])
    assert abs(norm / (steps * unique.norm()) - 1) < 1e-5
    return _error(model, reference(True, 4), steps)


def chained(rank: int, world: int, steps: int) -> float:
    """Three copies on two ranks, of which one holds two, by two ties that have a copy in common."""
    model = four_layers(rank)
    a, b, c = (0, "0.weight"), (1, "1.weight"), (3, "3.weight")
    mine = {stage: model[stage : stage + 1] for stage in (rank, rank + 2)}
    with Pipeline(*plan(2, 2), mine, nn.functional.mse_loss, tied=[(c, b), (a, b)]) as pipeline:
        for _ in range(steps):
            pipeline.step(*data(2))
        assert pipeline.ties == ((a, b, c),)
    whole = four_layers(0)
    whole[1].weight = whole[3].weight = whole[0].weight
    batch, target = data(2)
    torch.autograd.backward(nn.functional.mse_loss(whole(batch), target))
    wanted = {name: p.grad for name, p in whole.named_parameters(remove_duplicate=False)}
    return max(_error(module, wanted, steps) for module in mine.values())


def _error(stage: nn.Module, wanted: Mapping[str, Tensor | None], times: int) -> float:
    grads = {name: p.grad for name, p in stage.named_parameters(remove_duplicate=False)}
    return max(
        error(grad, times * want) if (want := wanted[name]) is not None else float("inf")
        for name, grad in grads.items()
    )


class Partly(nn.Module):
    """Has a parameter that nobody uses, one that only the second replica does, and a frozen one."""

    def __init__(self, replica: int) -> None:
        super().__init__()
        self.replica = replica
        self.spare = nn.Parameter(torch.ones(4))
        self.extra = nn.Parameter(torch.ones(4, dtype=torch.float64))
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.frozen
        return y if self.replica == 0 else y * self.extra.to(x.dtype)


def uneven(rank: int, world: int, argument: None) -> tuple[Tensor | None, Tensor | None, float, float]:
    """Gradients of what no replica uses and of what one does; loss of a step, and of an evaluation of unequal parts."""
    partly = Partly(rank)
    stage = nn.Sequential(partly, nn.Linear(4, 4))
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=NAMES)
    with Pipeline(*plan(1), {0: stage}, nn.functional.mse_loss, mesh=mesh) as pipeline:
        batch, target = data(4)
        loss = pipeline.step(batch[rank::2], target[rank::2])
        pipeline.clip_grad_norm_(1e-3)
        assert abs(pipeline.grad_norm() / 1e-3 - 1) < 1e-2
        part = slice(0, 1) if rank == 0 else slice(1, 4)
        value = pipeline.evaluate(batch[part], target[part])
    return partly.spare.grad, partly.extra.grad, loss, value


def refused(rank: int, world: int, argument: None) -> dict[str, str]:
    """The messages of everything that can be wrong with ties, meshes and stages."""
    problem, schedule = plan(2)
    model = two_layers(0)
    alone = init_device_mesh("cpu", (2, 1), mesh_dim_names=NAMES)
    frozen = two_layers(0)
    frozen[1].requires_grad_(False)
    sharded = two_layers(0)
    fully_shard(sharded[1])
    narrow = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))

    def attempt(stages: nn.Sequential = model, **given: object) -> str:
        mine = {rank: stages[rank] if isinstance(stages[rank], Odd | Unsigned) else stages[rank : rank + 1]}
        return refusal(lambda: Pipeline(problem, schedule, mine, nn.functional.mse_loss, **given))  # type: ignore[arg-type]  # what is tested

    found = {
        "stage": attempt(tied=[((0, "0.weight"), (2, "2.weight"))]),
        "name": attempt(tied=[((0, "0.weight"), (1, "weight"))]),
        "shape": attempt(narrow, tied=TIED),
        "frozen": attempt(frozen, tied=TIED),
        "differ": attempt(tied=TIED if rank else ()),
        "no pp": attempt(mesh=init_device_mesh("cpu", (2,), mesh_dim_names=("x",))),
        "three": attempt(mesh=init_device_mesh("cpu", (1, 2, 1), mesh_dim_names=("a", "b", "pp"))),
        "part": attempt(mesh=alone["pp"]),
        "ranks": attempt(mesh=alone),
        "ddp": attempt(nn.Sequential(model[0], DistributedDataParallel(model[1]))),
        "fsdp": attempt(sharded),
        "no tie": attempt(tied=[(0, "0.weight")]),
        "time": attempt(timeout_s=float("nan")),
        "seed": attempt(seed="one"),
        "list": refusal(lambda: Pipeline(problem, schedule, [model], nn.functional.mse_loss)),  # type: ignore[arg-type]  # what is tested
        "call": refusal(lambda: Pipeline(problem, schedule, {rank: torch.tanh}, nn.functional.mse_loss)),  # type: ignore[dict-item]  # what is tested
    }
    with Pipeline(problem, schedule, {rank: model[rank : rank + 1]}, nn.functional.mse_loss) as pipeline:
        found["norm"] = refusal(lambda: pipeline.clip_grad_norm_(0.0))
        assert pipeline.grad_norm() == 0
    found["closed"] = refusal(pipeline.grad_norm)
    mesh = alone
    sparse = nn.Sequential(nn.Embedding(5, 4, sparse=True))
    pipeline = Pipeline(*plan(1), {0: sparse}, lambda output, target: output.sum(), mesh=mesh)
    earlier = sparse[0].weight.grad = torch.ones(5, 4)
    found["sparse"] = refusal(lambda: pipeline.step(torch.tensor([1, 2]), torch.zeros(2)))
    assert sparse[0].weight.grad is earlier, "what steps before have left is not lost"
    assert torch.equal(earlier, torch.ones(5, 4))
    part = nn.Sequential(nn.Linear(4, 4))
    part[0].bias.requires_grad_(rank == 0)
    found["replicas"] = refusal(lambda: Pipeline(*plan(1), {0: part}, nn.functional.mse_loss, mesh=alone))
    less = nn.Sequential(nn.Linear(4, 4, bias=rank == 1))
    found["less"] = refusal(lambda: Pipeline(*plan(1), {0: less}, nn.functional.mse_loss, mesh=alone))
    for key, odd in (("check", Odd()), ("take over", Unsigned())):
        found[key] = attempt(nn.Sequential(model[0], odd))
        assert "forward" not in model[0].__dict__, "the stage that was taken over was given back"
    return found


class Odd(nn.Module):
    """Its parts cannot be looked at."""

    def named_modules(self, *anything: Any, **named: Any) -> Any:
        raise ValueError("no parts")


class Unsigned(nn.Sequential):
    """Nobody can tell what its forward takes."""

    def __init__(self) -> None:
        super().__init__()
        self.forward = min  # type: ignore[method-assign]  # what is tested


def early(rank: int, world: int, argument: None) -> tuple[int, int]:
    """How many ops of all start after the first sum does, where each replica has two stages."""
    model = two_layers(rank)
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=NAMES)
    batch, target = data(4)
    started: list[float] = []
    start = Reduction._start

    def starts(self: Reduction) -> None:
        started.append(time.perf_counter())
        start(self)

    stages = {0: model[:1], 1: model[1:]}
    with (
        mock.patch.object(Reduction, "_start", starts),
        Pipeline(*plan(1, 2), stages, nn.functional.mse_loss, mesh=mesh, execution="static") as pipeline,
    ):
        pipeline.step(batch[rank::2], target[rank::2])
    records = pipeline.report.records
    return sum(record.start_s > min(started) for record in records), len(records)


@dataclass(frozen=True)
class Found:
    """What one rank found in all of the above."""

    tied: float
    replicated: float
    chained: float
    uneven: tuple[Tensor | None, Tensor | None, float, float]
    early: tuple[int, int]
    refused: dict[str, str]


def find_all(rank: int, world: int, argument: None) -> Found:
    """Everything in one set of processes."""
    return Found(
        tied_over_ranks(rank, world, 3),
        replicated(rank, world, 3),
        chained(rank, world, 3),
        uneven(rank, world, None),
        early(rank, world, None),
        refused(rank, world, None),
    )


def wait_for_another(rank: int, world: int, what: str) -> None:
    """One process hangs or fails, and the other waits: for the gradients of a replica, or what follows the step."""
    if what.startswith("hang before"):
        return _wait_after_the_step(rank, what)
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=NAMES)
    model = two_layers(0)
    if rank == 1 and what == "hang in F":
        model[1].register_forward_hook(lambda *anything: time.sleep(30))
    with Pipeline(*plan(1), {0: model}, nn.functional.mse_loss, mesh=mesh, timeout_s=1.0) as pipeline:
        dist.barrier()
        if rank == 1 and what == "fail":
            raise ValueError("boom")
        if rank == 1 and what == "hang":
            time.sleep(30)
        pipeline.step(*data(2))
    return None


def _wait_after_the_step(rank: int, what: str) -> None:
    """One of two stages does not come to what all ranks do together after a step."""
    with Pipeline(*plan(2), {rank: two_layers(0)[:1]}, nn.functional.mse_loss, timeout_s=1.0) as pipeline:
        pipeline.step(*data(2))
        if what == "hang before the trace" and rank == 0:
            pipeline.save_trace("never.json")
        if what == "hang before evaluation":
            if rank == 0:
                time.sleep(30)
            pipeline.evaluate(*data(2))
        if rank == 1:
            time.sleep(30)
        pipeline.grad_norm()
