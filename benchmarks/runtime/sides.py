"""The two runtimes, each with a copy of the model, following the same op lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    _Action,
    _PipelineSchedule,
    get_schedule_class,
)

from adaptpipe.executor import Pipeline
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.models import GPTConfig, build_stage, next_byte_loss
from adaptpipe.solver import Kind, Op, Placement, Problem, Schedule
from adaptpipe.solver.heuristics import one_f_one_b

MODEL = GPTConfig(layers=8, width=256, heads=4, sequence=128)
MICROBATCHES = 8
SEED = 0

_KINDS = {"F": Kind.F, "I": Kind.I, "W": Kind.W, "B": Kind.B}


@dataclass(frozen=True, slots=True)
class Case:
    """A schedule of PyTorch's, on so many ranks.

    Parameters
    ----------
    schedule
        Its name there, without "Schedule".
    ranks
        How many.
    stages_per_rank
        One or two.
    v
        Whether the stages are placed to and fro; else rank after rank, in rounds.
    split
        Whether backwards come in two parts, I and W.
    """

    schedule: str
    ranks: int
    stages_per_rank: int = 1
    v: bool = False
    split: bool = False

    @property
    def name(self) -> str:
        """What to call it in tables."""
        return f"{self.schedule}, {self.ranks} ranks"

    @property
    def stages(self) -> int:
        """How many stages the model is cut into."""
        return self.ranks * self.stages_per_rank

    @property
    def placement(self) -> tuple[int, ...]:
        """Stage to rank."""
        there = tuple(range(self.ranks))
        return there + there[::-1] if self.v else there * self.stages_per_rank


CASES = tuple(
    case
    for ranks in (2, 4)
    for case in (
        Case("1F1B", ranks),
        Case("Interleaved1F1B", ranks, 2),
        Case("InterleavedZeroBubble", ranks, 2, split=True),
        Case("ZBVZeroBubble", ranks, 2, v=True, split=True),
    )
)


class Side(Protocol):
    """One runtime with its copy of the model."""

    stages: Mapping[int, nn.Module]

    def step(self, batch: Tensor, target: Tensor) -> None:
        """Run one step; gradients add up."""

    def close(self) -> None:
        """Let go of everything."""


def build(case: Case, rank: int) -> dict[int, nn.Module]:
    """The stages of a rank: equal numbers of blocks, the embedding with the first and the head with the last."""
    each = MODEL.layers // case.stages
    found: dict[int, nn.Module] = {}
    for stage, place in enumerate(case.placement):
        if place == rank:
            first = 0 if stage == 0 else 1 + stage * each
            stop = 1 + (stage + 1) * each + (stage == case.stages - 1)
            found[stage] = build_stage(MODEL, SEED, range(first, stop))
    return found


class _Copied(nn.Module):
    """A stage whose output is a view, which PyTorch's split backward refuses."""

    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.stage(x)
        return output.clone()


class Theirs:
    """PyTorch's runtime; its gradients are sums over micro-batches, each of which has its share of the mean loss."""

    def __init__(self, case: Case, rank: int) -> None:
        self.stages: Mapping[int, nn.Module] = build(case, rank)
        last = case.stages - 1
        modules = {s: _Copied(stage) if case.split and s == last else stage for s, stage in self.stages.items()}
        stages = [PipelineStage(module, stage, case.stages, torch.device("cpu")) for stage, module in modules.items()]
        made = get_schedule_class(case.schedule)
        single = issubclass(made, PipelineScheduleSingle)
        self.schedule: _PipelineSchedule = made(
            stages[0] if single else stages, MICROBATCHES, loss_fn=_share_of_loss, scale_grads=False
        )
        self._first, self._last = 0 in self.stages, last in self.stages

    @property
    def actions(self) -> Mapping[int, Sequence[_Action | None]]:
        """The op list of every rank; empty for 1F1B, which is a loop (its list, for charts only, has ops too many)."""
        return self.schedule.pipeline_order if isinstance(self.schedule, PipelineScheduleMulti) else {}

    def step(self, batch: Tensor, target: Tensor) -> None:
        """Run one step, and keep no outputs."""
        self.schedule.step(
            *((batch,) if self._first else ()),
            target=target if self._last else None,
            losses=[] if self._last else None,
            return_outputs=False,
        )

    def close(self) -> None:
        """Nothing to give back."""


class Ours:
    """AdaptPipe's executor, with the op lists of theirs."""

    def __init__(
        self, case: Case, rank: int, actions: Mapping[int, Sequence[_Action | None]], execution: ExecutionMode
    ) -> None:
        self.stages: Mapping[int, nn.Module] = build(case, rank)
        problem = Problem.from_dict(
            {
                "pipeline": {"ranks": case.ranks, "placement": list(case.placement)},
                "batch": {"samples": MICROBATCHES},
                "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
            }
        )
        schedule = as_schedule(case, actions) if actions else one_f_one_b(problem)
        self._pipeline = Pipeline(problem, schedule, self.stages, next_byte_loss, execution=execution)

    def step(self, batch: Tensor, target: Tensor) -> None:
        """Run one step."""
        self._pipeline.step(batch, target)

    def close(self) -> None:
        """End the channels."""
        self._pipeline.close()


def as_schedule(case: Case, actions: Mapping[int, Sequence[_Action | None]]) -> Schedule:
    """PyTorch's op lists as a schedule: the same ops in the same order on every rank."""
    rows = [
        tuple(
            Op(action.stage_index, _KINDS[action.computation_type.value], action.microbatch_index)
            for action in actions[rank]
            if action is not None and action.computation_type.value in _KINDS and action.microbatch_index is not None
        )
        for rank in range(case.ranks)
    ]
    return Schedule(Placement(case.ranks, (case.placement,)), (1,) * MICROBATCHES, tuple(rows))


def _share_of_loss(output: Tensor, target: Tensor) -> Tensor:
    return next_byte_loss(output, target) / MICROBATCHES
