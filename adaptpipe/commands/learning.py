"""Training a model under each of several schedules, and what its steps took."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from adaptpipe.executor import OpRecord, Pipeline, load_checkpoint, save_checkpoint
from adaptpipe.executor.report import makespan_s
from adaptpipe.models import AnyConfig, build_full, build_stage, next_byte_loss, tied_copies, training_batches
from adaptpipe.solver import Problem, Schedule
from adaptpipe.solver.evaluate.noise import Noise

from .run_file import RunSpec


@dataclass(frozen=True, slots=True)
class Trained:
    """What training under one schedule gave.

    Parameters
    ----------
    losses
        Mean loss of each step's batch.
    steps_s
        Seconds of each step, from the start of its first op on any rank to the end of its last: the measured makespan.
    calls_s
        Seconds of each call of `step` on the slowest rank: the batch cut, the ops, and the loss told to all.
    peaks
        For each rank, the most bytes held by live activations and queued weight gradients.
    received
        For each rank, the most bytes of messages that had arrived and were not taken yet.
    first_step
        Number of the first step, from 1; more where the training was resumed.
    gradient_error
        Largest relative error of a parameter's first-step gradient against the unsplit model's.
    records
        For each rank, the ops of the median step.
    """

    losses: tuple[float, ...]
    steps_s: tuple[float, ...]
    calls_s: tuple[float, ...]
    peaks: tuple[int, ...]
    received: tuple[int, ...]
    first_step: int
    gradient_error: float
    records: tuple[tuple[OpRecord, ...], ...]

    @property
    def step_s(self) -> float:
        """Median measured makespan, the first two steps left out."""
        return median(self.steps_s[2:] or self.steps_s)

    @property
    def spread_s(self) -> tuple[float, float]:
        """Shortest and longest measured makespan, the first two steps left out."""
        counted = self.steps_s[2:] or self.steps_s
        return min(counted), max(counted)

    @property
    def call_s(self) -> float:
        """Median seconds of a call, the first two steps left out."""
        return median(self.calls_s[2:] or self.calls_s)


def mesh_of(spec: RunSpec) -> DeviceMesh | None:
    """The processes of a run with replicas, one replica after the other; None where there is one pipeline."""
    if spec.data_parallel == 1:
        return None
    return init_device_mesh("cpu", (spec.data_parallel, spec.ranks), mesh_dim_names=("dp", "pp"))


def train(
    rank: int,
    spec: RunSpec,
    config: AnyConfig,
    parts: tuple[range, ...],
    text: bytes,
    problem: Problem,
    schedules: Sequence[Schedule],
) -> list[Trained]:
    """Train a model of its own under each schedule, step by step in turns: what disturbs the machine meets both.

    Raises
    ------
    InputError
        On every rank, if the checkpoint to resume from does not fit, or the one to write cannot be written.
    """
    mesh, ties = mesh_of(spec), tied_copies(config, parts)
    with ExitStack() as stack:
        learners = []
        for schedule in schedules:
            stages: dict[int, nn.Module] = {
                stage: build_stage(config, spec.seed, parts[stage])
                for _, stage in problem.placement.held[rank % spec.ranks]
            }
            pipeline = stack.enter_context(
                Pipeline(
                    problem,
                    schedule,
                    stages,
                    next_byte_loss,
                    mesh=mesh,
                    tied=ties,
                    execution=spec.execution,
                    noise=Noise.parse(spec.noise, spec.seed),
                    timeout_s=spec.timeout_s,
                )
            )
            learners.append(_Learner(pipeline, stages, spec))
        batches = islice(training_batches(config, text, spec.samples, spec.seed), learners[0].done, None)
        first = rank // spec.ranks * spec.pipeline_samples
        share = slice(first, first + spec.pipeline_samples)
        for step in range(spec.steps):
            batch, target = next(batches)
            for learner in learners:
                learner.step(batch[share], target[share])
                if step == 0:
                    learner.error = _gradient_error(rank, spec, config, learner.stages, batch, target)
                learner.update()
        if spec.checkpoint:
            learners[-1].save()
    return [learner.gather() for learner in learners]


class _Learner:
    """One model that is trained under one schedule, and what its steps took on this rank.

    Attributes
    ----------
    done
        Steps that were done before, by the run that is resumed.
    """

    def __init__(self, pipeline: Pipeline, stages: dict[int, nn.Module], spec: RunSpec) -> None:
        self.stages, self.error = stages, 0.0
        self._pipeline, self._spec = pipeline, spec
        self._losses: list[float] = []
        self._calls_s: list[float] = []
        self._peak = self._received = 0
        self._records: list[tuple[OpRecord, ...]] = []
        parameters = [parameter for stage in stages.values() for parameter in stage.parameters()]
        self._optimizer = torch.optim.AdamW(parameters, lr=spec.learning_rate)
        self.done = 0
        if spec.resume:
            load_checkpoint(spec.resume, pipeline, self._optimizer)
            self.done = pipeline.steps
            for group in self._optimizer.param_groups:
                group["lr"] = spec.learning_rate  # of this run, and not of the one before

    def step(self, batch: Tensor, target: Tensor) -> None:
        dist.barrier()  # so that a step's time is this schedule's alone
        self._losses.append(self._pipeline.step(batch, target))
        report = self._pipeline.report
        self._calls_s.append(report.step_s)
        self._peak = max(self._peak, report.peak_bytes)
        self._received = max(self._received, report.received_bytes)
        self._records.append(report.records)

    def update(self) -> None:
        if self._spec.clip:
            self._pipeline.clip_grad_norm_(self._spec.clip)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def save(self) -> None:
        save_checkpoint(self._spec.checkpoint, self._pipeline, self._optimizer)

    def gather(self) -> Trained:
        """What all ranks of the first replica saw; of calls, the slowest of all processes'."""
        whole: list[tuple[list[float], int, int, list[tuple[OpRecord, ...]]] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(whole, (self._calls_s, self._peak, self._received, self._records))
        everyone = [each for each in whole if each is not None]
        ranks = everyone[: self._spec.ranks]
        steps = [makespan_s(records) for records in zip(*(each[3] for each in ranks), strict=True)]
        middle = median(steps[2:] or steps)
        typical = min(range(len(steps)), key=lambda step: abs(steps[step] - middle))
        return Trained(
            losses=tuple(self._losses),
            steps_s=tuple(steps),
            calls_s=tuple(max(calls) for calls in zip(*(each[0] for each in everyone), strict=True)),
            peaks=tuple(each[1] for each in ranks),
            received=tuple(each[2] for each in ranks),
            first_step=self.done + 1,
            gradient_error=self.error,
            records=tuple(each[3][typical] for each in ranks),
        )


def _gradient_error(
    rank: int,
    spec: RunSpec,
    config: AnyConfig,
    stages: dict[int, nn.Module],
    batch: Tensor,
    target: Tensor,
) -> float:
    """Largest relative error (in the maximum norm, of each parameter) against the unsplit model, on every rank."""
    mine = {
        name: None if parameter.grad is None else parameter.grad.clone()
        for stage in stages.values()
        for name, parameter in stage.named_parameters()
    }
    whole: list[dict[str, Tensor | None] | None] = [None] * dist.get_world_size()
    dist.gather_object(mine, whole if rank == 0 else None, dst=0)
    worst = [0.0]
    if rank == 0:
        found = {name: grad for part in whole if part is not None for name, grad in part.items()}
        model = build_full(config, spec.seed)
        if spec.resume:
            model.load_state_dict(torch.load(spec.resume, weights_only=True)["model"])
        next_byte_loss(model(batch), target).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        for name, parameter in model.named_parameters():
            expected, got = parameter.grad, found[name]
            assert expected is not None
            if got is None:
                worst.append(float("inf"))
            else:
                scale = float(expected.abs().max()) or 1.0
                worst.append(float((got - expected).abs().max()) / scale)
    box: list[object] = [max(worst)]
    dist.broadcast_object_list(box, src=0)
    value = box[0]
    assert isinstance(value, float)
    return value
