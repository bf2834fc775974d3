"""What the ranks of the pipeline tests do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from adaptpipe.executor.pipeline import Pipeline
from adaptpipe.solver import Problem, Schedule

from .stage_sets import SETS, Model, gpt_whole, run_whole


@dataclass(frozen=True)
class Case:
    """One schedule to run on one set of stages."""

    name: str
    model: str
    problem: Problem
    schedule: Schedule


def compare_all(rank: int, world: int, cases: Sequence[Case]) -> list[tuple[str, float, float]]:
    """For each case: name, the largest error of a gradient, and that of the loss, both relative."""
    return [(case.name, *_compare(rank, case)) for case in cases]


def _compare(rank: int, case: Case) -> tuple[float, float]:
    count = case.schedule.placement.stage_count
    model = SETS[case.model](count, sum(case.schedule.sizes))
    mine = own(rank, case.schedule, model)
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn) as pipeline:
        loss = pipeline.step(model.batch, model.target)
    if case.model == "gpt":
        whole = gpt_whole(count)
        expected = model.loss_fn(whole(model.batch), model.target)
        expected.backward()
        wanted = {name: p.grad for name, p in whole.named_parameters()}
        pairs = [(p.grad, wanted[name]) for module in mine.values() for name, p in module.named_parameters()]
        return max(error(a, b) for a, b in pairs), abs(loss / expected.item() - 1)
    expected, gradients = whole_gradients(SETS[case.model](count, sum(case.schedule.sizes)))
    return (
        max([error(p.grad, gradients[s][name]) for s, m in mine.items() for name, p in m.named_parameters()] or [0.0]),
        abs(loss / expected.item() - 1),
    )


def own(rank: int, schedule: Schedule, model: Model) -> dict[int, nn.Module]:
    """A rank's stages."""
    return {stage: model.stages[stage] for _, stage in schedule.placement.held[rank]}


def whole_gradients(model: Model) -> tuple[torch.Tensor, dict[int, Mapping[str, torch.Tensor | None]]]:
    """Loss and gradients of all stages in one process, by autograd alone."""
    loss = model.loss_fn(run_whole(model.stages, model.batch), model.target)
    loss.backward()
    return loss, {s: {name: p.grad for name, p in m.named_parameters()} for s, m in enumerate(model.stages)}


def error(ours: torch.Tensor | None, wanted: torch.Tensor | None) -> float:
    """Largest difference, relative to the largest value; infinite where only one of the two is there."""
    if ours is None or wanted is None:
        return 0.0 if ours is wanted else float("inf")
    return float((ours - wanted).abs().max() / wanted.abs().max().clamp_min(1e-6))
