"""What the ranks of the tests of replicas do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import mse_loss

from adaptpipe.executor import Pipeline
from adaptpipe.solver import place

from ..orders import problem_for, schedule_for
from .pipeline_jobs import error, refusal

SIZES = (1, 2, 2)
STEPS = 2


def layers(seed: int, count: int) -> list[nn.Module]:
    torch.manual_seed(seed)
    return [nn.Sequential(nn.Linear(4, 4), nn.Tanh()).double() for _ in range(count)]


def data(samples: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(9)
    both = torch.randn(2, samples, 4, generator=draw, dtype=torch.float64)
    return both[0], both[1]


def two_ways(rank: int, stages: Mapping[int, nn.Module], ranks: int = 4) -> Pipeline:
    """A pipeline in two directions, alone or as one of two."""
    placement = place("bidirectional", ranks)
    plan = problem_for(placement, SIZES), schedule_for(placement, SIZES, "zb")
    mesh = init_device_mesh("cpu", (4 // ranks, ranks), mesh_dim_names=("dp", "pp"))
    return Pipeline(*plan, stages, mse_loss, mesh=mesh)


def held(ranks: int, rank: int) -> list[int]:
    return [stage for _, stage in place("bidirectional", ranks).held[rank]]


@dataclass(frozen=True)
class Trained:
    """Of some steps without `zero_grad`: the gradients by stage and name, and the largest error of those and of the
    loss, the norm and an evaluation, relative."""

    gradients: Mapping[tuple[int, str], Tensor]
    worst: float


def trained(rank: int, ranks: int) -> Trained:
    """Replicas that start unlike each other, by one pipeline of four ranks or two of two; and an evaluation of so few
    samples that one direction has none."""
    here, replica, replicas = rank % ranks, rank // ranks, 4 // ranks
    stages = {stage: layers(rank, ranks)[stage] for stage in held(ranks, here)}
    model = nn.Sequential(*(layers(stage, ranks)[stage] for stage in range(ranks)))  # as direction 0's ranks begin
    batch, target = data(sum(SIZES) * replicas)
    whole, few = mse_loss(model(batch), target), mse_loss(model(batch[:replicas]), target[:replicas])
    torch.autograd.backward(whole * STEPS)
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    part, one = slice(replica * sum(SIZES), (replica + 1) * sum(SIZES)), slice(replica, replica + 1)

    def mine(rows: slice) -> tuple[Tensor | None, Tensor | None]:
        """Batch and target where they are needed."""
        return batch[rows] if 0 in stages else None, target[rows] if ranks - 1 in stages else None

    with two_ways(here, stages, ranks) as pipeline:
        pairs = [(pipeline.step(*mine(part)), whole) for _ in range(STEPS)]
        pairs.append((pipeline.evaluate(*mine(part)), whole))
        pairs.append((pipeline.evaluate(*mine(one)), few))
        pairs.append((pipeline.grad_norm(), norm))
    gradients = {(s, name): p.grad for s, m in stages.items() for name, p in m.named_parameters() if p.grad is not None}
    wanted = {(s, name): p.grad for s in stages for name, p in model[s].named_parameters()}
    errors = [error(gradients.get(copy), grad) for copy, grad in wanted.items()]
    return Trained(gradients, max(*errors, *(abs(ours / wanted.item() - 1) for ours, wanted in pairs)))


def refused(rank: int) -> dict[str, str]:
    """The messages of stages that do not fit."""

    def attempt(ranks: int, odd: int, stage: nn.Module | None = None) -> str:
        """Rank `odd` has another stage 0, or one that does not train its bias."""
        mine = {number: layers(0, ranks)[number] for number in held(ranks, rank % ranks)}
        if rank == odd and stage is None:
            mine[0].get_parameter("0.bias").requires_grad_(False)
        elif rank == odd and stage is not None:
            mine[0] = stage
        return refusal(lambda: two_ways(rank % ranks, mine, ranks))

    return {
        "frozen": attempt(4, 3),
        "missing": attempt(4, 0, nn.Sequential(nn.Linear(4, 4, bias=False)).double()),
        "two pipelines": attempt(2, 3),
        "one way": refusal(lambda: two_ways(rank, {rank: layers(0, 4)[rank]})),
    }


@dataclass(frozen=True)
class Found:
    """What one rank found in all of the above; and the message of a step without a batch, on the ranks of stage 0."""

    alone: Trained
    two: Trained
    refused: Mapping[str, str]
    no_batch: str


def find_all(rank: int, world: int, argument: None) -> Found:
    """Everything in one set of processes."""
    stages = {stage: layers(0, 4)[stage] for stage in held(4, rank)}
    with two_ways(rank, stages) as pipeline:
        no_batch = refusal(lambda: pipeline.step(None, None)) if 0 in stages else ""
    return Found(trained(rank, 4), trained(rank, 2), refused(rank), no_batch)
