"""Measure, solve and train a model of your own, on two ranks.

python examples/own_model.py
torchrun --nproc-per-node 2 examples/own_model.py
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

import adaptpipe as ap
from adaptpipe.executor import Pipeline, launch, measure

RANKS, SAMPLES, WIDTH = 2, 8, 256


def make_stage(number: int) -> nn.Module:
    """Your part of the model: any module that takes what the stage before it returns."""
    torch.manual_seed(number)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
    return nn.Sequential(*layers)


def data(samples: int) -> tuple[Tensor, Tensor]:
    """Batch for the first stage, target for the last."""
    batch = torch.randn(samples, 64, WIDTH, generator=torch.Generator().manual_seed(0))
    return batch, batch.roll(1, dims=1)


def train(rank: int, ranks: int, steps: int) -> list[float]:
    """What every rank does; returns the loss of each step."""
    placement = ap.place("linear", ranks)
    stage = make_stage(rank)
    profile = measure(placement, {rank: stage}, nn.functional.mse_loss, data, sizes=[1])

    problem = profile.problem(placement, SAMPLES, sizes=[1])  # the same on every rank
    box = [ap.solve(problem, time_limit=5) if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)  # one rank solves, all run its schedule
    (result,) = box
    assert result is not None

    optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-3)
    losses = []
    with Pipeline(problem, result.schedule, {rank: stage}, nn.functional.mse_loss) as pipeline:
        for _ in range(steps):
            losses.append(pipeline.step(*data(SAMPLES)))
            optimizer.step()
            optimizer.zero_grad()
    if rank == 0:
        print(result)
        print(f"loss {losses[0]:.4f} to {losses[-1]:.4f} in {steps} steps")
    return losses


if __name__ == "__main__":
    launch(train, RANKS, 10)
