"""What the ranks of the pipeline tests do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.autograd import backward

from adaptpipe.executor import Pipeline
from adaptpipe.executor.weights import coverage
from adaptpipe.models import build_stage, next_byte_loss, split_layers, tied_copies
from adaptpipe.solver import Problem, Schedule

from .decoders import SEQUENCE, decoder, own_model


@dataclass(frozen=True)
class Case:
    """One schedule to run on one decoder."""

    decoder: str
    tied: bool
    problem: Problem
    schedule: Schedule


@dataclass(frozen=True)
class Seen:
    """A case on one rank: errors relative to transformers' own model, and the least that waits of any stage."""

    case: str
    gradient: float
    loss: float
    coverage: float


def compare_all(rank: int, world: int, cases: Sequence[Case]) -> list[Seen]:
    """Run every case once, from the weights of the unsplit model."""
    return [_compare(rank, case) for case in cases]


def _compare(rank: int, case: Case) -> Seen:
    config, schedule = decoder(case.decoder, tie_word_embeddings=case.tied), case.schedule
    torch.manual_seed(3)
    model = own_model(config)
    state = model.state_dict()
    parts = split_layers(len(config.layer_names), schedule.placement.stage_count)
    stages = {}
    for _, stage in schedule.placement.held[rank]:
        stages[stage] = build_stage(config, 0, parts[stage])
        stages[stage].load_state_dict({key: state[key] for key in stages[stage].state_dict()})
    text = torch.randint(config.vocab, (sum(schedule.sizes), SEQUENCE + 1))
    batch, target = text[:, :-1], text[:, 1:]
    tied = tied_copies(config, parts)
    with Pipeline(case.problem, schedule, stages, next_byte_loss, tied=tied) as pipeline:
        loss = pipeline.step(batch, target)
    # transformers shifts labels by itself: its loss of the text is that of all tokens but the first.
    expected = model(text, labels=text, use_cache=False).loss
    backward(expected)
    error = 0.0
    for module in stages.values():
        for key, weight in module.named_parameters(remove_duplicate=False):
            wanted = model.get_parameter(key).grad
            assert weight.grad is not None, key
            error = max(error, float((weight.grad - wanted).abs().max() / wanted.abs().max()))
    least = min(coverage(module) for module in stages.values())
    ops = "; ".join(" ".join(map(str, row)) for row in schedule.ops)
    return Seen(f"{case.decoder}{', tied' * case.tied}: {ops}", error, abs(loss / expected.item() - 1), least)
