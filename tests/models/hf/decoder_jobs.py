"""What the ranks of the pipeline tests do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import backward
from torch.utils.checkpoint import checkpoint

from adaptpipe.executor import Pipeline, load_checkpoint, save_checkpoint
from adaptpipe.executor.weights import coverage
from adaptpipe.models import build_stage, next_byte_loss, split_layers, tied_copies
from adaptpipe.solver import Problem, Schedule

from .decoders import SEQUENCE, decoder, own_model


@dataclass(frozen=True)
class Case:
    """One schedule to run on one decoder, its head tied or not, its blocks computed again in the backward or not."""

    decoder: str
    tied: bool
    recomputed: bool
    problem: Problem
    schedule: Schedule


@dataclass(frozen=True)
class Seen:
    """A case on one rank: errors relative to transformers' own model, and the least that waits of any stage."""

    case: str
    gradient: float
    loss: float
    coverage: float


def compare_all(rank: int, world: int, argument: tuple[Sequence[Case], Path]) -> list[Seen]:
    """Run every case once, from the weights of the unsplit model in a file, and into another file."""
    cases, folder = argument
    return [_compare(rank, case, folder) for case in cases]


def _compare(rank: int, case: Case, folder: Path) -> Seen:
    config, schedule = decoder(case.decoder, tie_word_embeddings=case.tied), case.schedule
    torch.manual_seed(3)
    model = own_model(config)
    text = torch.randint(config.vocab, (sum(schedule.sizes), SEQUENCE + 1))
    batch, target = text[:, :-1], text[:, 1:]
    if rank == 0:
        torch.save(model.state_dict(), folder / "before.pt")
    dist.barrier()
    parts = split_layers(len(config.layer_names), schedule.placement.stage_count)
    stages: dict[int, nn.Module] = {s: build_stage(config, 0, parts[s]) for _, s in schedule.placement.held[rank]}
    if case.recomputed:
        again = {
            "gradient_checkpointing": True,
            "_gradient_checkpointing_func": partial(checkpoint, use_reentrant=False),
        }
        for module in (each for stage in stages.values() for each in stage.modules()):
            if hasattr(module, "gradient_checkpointing"):
                module.__dict__.update(again)
    with Pipeline(
        case.problem, schedule, stages, next_byte_loss, tied=tied_copies(config, parts), timeout_s=100
    ) as pipeline:
        load_checkpoint(folder / "before.pt", pipeline)
        loss = pipeline.step(batch, target)
        save_checkpoint(folder / "after.pt", pipeline)
    model.load_state_dict(torch.load(folder / "after.pt", weights_only=True)["model"])
    # transformers shifts labels by itself: its loss of the text is that of all tokens but the first.
    expected = model(text, labels=text, use_cache=False).loss
    backward(expected)
    error = 0.0
    for stage in stages.values():
        for key, weight in stage.named_parameters(remove_duplicate=False):
            wanted = model.get_parameter(key).grad
            assert weight.grad is not None, key
            error = max(error, float((weight.grad - wanted).abs().max() / wanted.abs().max()))
    least = min(coverage(stage) for stage in stages.values())
    ops = "; ".join(" ".join(map(str, row)) for row in schedule.ops)
    return Seen(f"{case.decoder}{', tied' * case.tied}: {ops}", error, abs(loss / expected.item() - 1), least)
