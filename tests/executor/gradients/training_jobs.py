"""What the ranks of the training tests do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from adaptpipe.executor import Pipeline, load_checkpoint, save_checkpoint
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.models import GPTConfig, build_full, build_stage, next_byte_loss, split_layers, tied_copies
from adaptpipe.solver import Problem, Schedule

CONFIG = GPTConfig(layers=6, width=16, heads=2, sequence=8, vocab=32, tied=True)
SAMPLES, SEED, MAX_NORM, RATE = 8, 3, 0.3, 3e-3
(_, EMBEDDING), (_, HEAD) = CONFIG.ties[0]


@dataclass(frozen=True)
class Run:
    """A schedule to train under, by several replicas, and how."""

    name: str
    problem: Problem
    schedule: Schedule
    replicas: int
    execution: ExecutionMode


@dataclass(frozen=True)
class Curve:
    """What training gave on one rank: loss and norm (before clipping) of each step, and the tied copies at the end."""

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    copies: tuple[Tensor, ...] = ()


def batch(step: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(step)
    text = torch.randint(0, CONFIG.vocab, (SAMPLES, CONFIG.sequence + 1), generator=draw)
    return text[:, :-1], text[:, 1:]


def train_whole(steps: int) -> Curve:
    """One process, the unsplit model, and torch's own clipping."""
    model = build_full(CONFIG, SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    losses, norms = [], []
    for step in range(steps):
        inputs, target = batch(step)
        loss = next_byte_loss(model(inputs), target)
        torch.autograd.backward(loss)
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM).item())
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return Curve(tuple(losses), tuple(norms), (model.get_parameter(EMBEDDING).detach(),))


@dataclass(frozen=True)
class Resumed:
    """Train a while under one schedule and save; load under another, and train on."""

    first: Run
    second: Run
    path: Path
    middle: int
    end: int


def train_all(
    rank: int, world: int, argument: tuple[Sequence[Run], int, Sequence[Resumed]]
) -> tuple[list[Curve], list[list[Curve]]]:
    """The curves of every run, and the two halves of each that is resumed."""
    runs, steps, resumed = argument
    halves = [
        [
            train(each.first, world, range(each.middle), save=each.path),
            train(each.second, world, range(each.middle, each.end), load=each.path, seed=SEED + 1),
        ]
        for each in resumed
    ]
    return [train(run, world, range(steps)) for run in runs], halves


def train(
    run: Run, world: int, steps: range, *, seed: int = SEED, save: Path | None = None, load: Path | None = None
) -> Curve:
    ranks = world // run.replicas
    mesh = init_device_mesh("cpu", (run.replicas, ranks), mesh_dim_names=("dp", "pp"))
    placement = run.schedule.placement
    parts = split_layers(len(CONFIG.layer_names), placement.stage_count)
    mine: dict[int, nn.Module] = {
        stage: build_stage(CONFIG, seed, parts[stage]) for _, stage in placement.held[mesh.get_local_rank("pp")]
    }
    parameters = {id(p): p for stage in mine.values() for p in stage.parameters()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=RATE)
    losses, norms = [], []
    tied = tied_copies(CONFIG, parts)
    with Pipeline(
        run.problem, run.schedule, mine, next_byte_loss, mesh=mesh, tied=tied, execution=run.execution
    ) as pipeline:
        if load is not None:
            assert load_checkpoint(load, pipeline, optimizer) == {"from": "p=4"}
            assert pipeline.steps == steps.start
        share = slice(mesh.get_local_rank("dp"), None, run.replicas)
        for step in steps:
            inputs, target = batch(step)
            losses.append(pipeline.step(inputs[share], target[share]))
            norms.append(pipeline.clip_grad_norm_(MAX_NORM))
            optimizer.step()
            optimizer.zero_grad()
        if save is not None:
            save_checkpoint(save, pipeline, optimizer, extra={"from": "p=4"})
    named = {name: p.detach() for stage in mine.values() for name, p in stage.named_parameters(remove_duplicate=False)}
    return Curve(tuple(losses), tuple(norms), tuple(named[name] for name in (EMBEDDING, HEAD) if name in named))
