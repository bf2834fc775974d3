"""What every rank of `adaptpipe run` does: measure, agree on the schedules, train under each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adaptpipe.executor import OpRecord, Pipeline, launch, measure, message_reserve
from adaptpipe.models import (
    AnyConfig,
    MLPConfig,
    build,
    build_full,
    build_stage,
    load_text,
    next_byte_loss,
    split_layers,
    split_text,
    training_batches,
)
from adaptpipe.models.hf import DecoderConfig
from adaptpipe.solver import (
    Granularity,
    InputError,
    NoAnswerError,
    Problem,
    Profile,
    Result,
    Schedule,
    bare_problem,
    check,
)
from adaptpipe.solver.core.granularity import NONE
from adaptpipe.solver.methods import find_method
from adaptpipe.solver.solving import solve

from .baseline import check_methods, find_baseline
from .run_file import RunSpec
from .worth import Worth, choices, worth

R = TypeVar("R")

WORTH_S = 20.0
"""Most seconds of each search with fewer choices: the other ranks wait for it."""


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that rank 0 brings home: the problem measured, both results, what it is worth, both trainings."""

    profile: Profile
    problem: Problem
    baseline: Result
    ours: Result
    worth: Worth | None
    trained: tuple[Trained, Trained]


def configure(spec: RunSpec) -> tuple[AnyConfig, tuple[range, ...], bytes]:
    """Model, layers of each stage, and training text of a run file.

    Raises
    ------
    InputError
        When the methods, the batch, the model's keys, the split or the text do not fit.
    """
    if spec.place().directions > 1:
        raise InputError(
            f"placement = {spec.placement!r}: a stage with replicas cannot be trained yet; use linear, loop, v or wave"
        )
    Granularity.parse(spec.granularity)
    check_methods(spec, bare_problem(spec.place(), spec.samples, spec.microbatch_sizes))
    keys = dict(spec.model)
    kind = keys.pop("kind", None)
    if not isinstance(kind, str):
        raise InputError('model.kind: missing; write kind = "gpt", "mlp" or "hf"')
    config = build(kind, **keys)
    if isinstance(config, DecoderConfig) and config.dropouts:
        key, value = next(iter(config.dropouts.items()))
        raise InputError(
            f"model.{key} = {value}: a run compares the first gradients with the unsplit model's, and chance would "
            f"make them differ; set {' and '.join(f'model.{each} = 0' for each in config.dropouts)}"
        )
    layers = len(config.layer_names)
    stages = spec.place().stage_count
    # A lookup of embeddings costs next to nothing; every other layer costs about its parameters.
    first = config.layer_parameters[0] if isinstance(config, MLPConfig) else 0
    parts = split_layers(layers, stages, [first, *config.layer_parameters[1:]])
    text = load_text(spec.data or None)
    length = config.inputs if isinstance(config, MLPConfig) else config.sequence
    train = split_text(text, length)[0]
    training_batches(config, train, spec.samples, spec.seed)  # refuses a text that the model cannot take
    return config, parts, train


def launch_ranks(function: Callable[[int, int, RunSpec], R], spec: RunSpec) -> tuple[R, ...]:
    """Run a function on all ranks, and tell of bad input before any process starts."""
    config, _, _ = configure(spec)
    preload = config.slow_imports if isinstance(config, DecoderConfig) else ()
    return launch(function, spec.ranks, spec, preload=preload)


def profile_rank(rank: int, ranks: int, spec: RunSpec) -> Profile:
    """Measure the stages of a run file; every rank returns the whole profile."""
    config, parts, text = configure(spec)
    placement = spec.place()
    stages: dict[int, nn.Module] = {s: build_stage(config, spec.seed, parts[s]) for _, s in placement.held[rank]}

    def batch_of(samples: int) -> tuple[Tensor, Tensor]:
        return next(training_batches(config, text, samples, spec.seed))

    return measure(
        placement,
        stages,
        next_byte_loss,
        batch_of,
        spec.measured_sizes,
        units=spec.weight_units,
        timeout_s=spec.timeout_s,
    )


def priced(spec: RunSpec, profile: Profile) -> tuple[Problem, Result]:
    """Problem, and the baseline that its memory limits are set by.

    Raises
    ------
    NoAnswerError
        When there is no baseline.
    """
    placement = spec.place()
    reserve = message_reserve(profile, placement)
    free = profile.problem(placement, spec.samples, spec.microbatch_sizes, reserve=reserve, name=Path(spec.out).name)
    baseline = find_baseline(spec, free)
    if baseline.timeline is None:
        raise NoAnswerError(f"baseline {spec.baseline_name}: {baseline.reason}")
    limits: tuple[int | None, ...]
    if spec.memory_limit == "baseline":
        limits = (max(baseline.timeline.peak_memory),) * placement.ranks
    else:
        limits = (None if spec.memory_limit == "none" else spec.memory_limit,) * placement.ranks
    problem = replace(free, memory=replace(free.memory, limit=limits))
    return problem, baseline


def plan(spec: RunSpec, profile: Profile) -> tuple[Problem, Result, Result, Worth | None]:
    """Problem, baseline, our schedule, and what its choices are worth.

    Raises
    ------
    NoAnswerError
        When either has no schedule.
    """
    problem, baseline = priced(spec, profile)
    _tell(0, f"solving for at most {spec.time_limit:g} s")
    granularity = Granularity.parse(spec.granularity)
    ours = solve(problem, spec.method, objective=spec.objective, time_limit=spec.time_limit, granularity=granularity)
    if ours.timeline is None:
        raise NoAnswerError(f"{ours.method}: {ours.reason}")
    over = check(problem, baseline.schedule)
    if over:
        raise NoAnswerError(f"baseline {spec.baseline_name}: {over[0].message}; raise memory_limit")
    if granularity == NONE or find_method(spec.method).build is not None:
        return problem, baseline, ours, None
    again = min(spec.time_limit, WORTH_S)
    kinds = len(choices(problem, granularity))
    _tell(
        0, f"solving with fewer choices, {1 + kinds * (kinds > 1)} times for at most {again:g} s: what are they worth?"
    )
    found = worth(
        problem,
        ours,
        lambda fewer: solve(problem, spec.method, objective=spec.objective, time_limit=again, granularity=fewer),
    )
    return problem, baseline, ours, found


def run_rank(rank: int, ranks: int, spec: RunSpec) -> Outcome | InputError | NoAnswerError | None:
    """Profile, plan and train; rank 0 returns the outcome, or why there is none."""
    config, parts, text = configure(spec)
    _tell(rank, f"measuring {len(parts)} stages on {ranks} ranks")
    profile = profile_rank(rank, ranks, spec)
    box: list[object] = [None]
    if rank == 0:
        try:
            box = [plan(spec, profile)]
        except (InputError, NoAnswerError) as error:
            box = [error]
    dist.broadcast_object_list(box, src=0)
    planned = box[0]
    if isinstance(planned, InputError | NoAnswerError):
        return planned if rank == 0 else None
    assert isinstance(planned, tuple)
    problem, baseline, ours, value = planned
    names = " and ".join(result.found_by or result.method for result in (baseline, ours))
    _tell(rank, f"training {spec.steps} steps each under {names}, in turns")
    first, second = train(rank, spec, config, parts, text, problem, (baseline.schedule, ours.schedule))
    return Outcome(profile, problem, baseline, ours, value, (first, second)) if rank == 0 else None


def _tell(rank: int, text: str) -> None:
    if rank == 0:
        print(text, file=sys.stderr, flush=True)


def train(
    rank: int,
    spec: RunSpec,
    config: AnyConfig,
    parts: tuple[range, ...],
    text: bytes,
    problem: Problem,
    schedules: tuple[Schedule, Schedule],
) -> list[Trained]:
    """Train a model of its own under each schedule, step by step in turns: what disturbs the machine meets both."""
    with ExitStack() as stack:
        learners = []
        for schedule in schedules:
            stages: dict[int, nn.Module] = {
                stage: build_stage(config, spec.seed, parts[stage]) for _, stage in problem.placement.held[rank]
            }
            pipeline = stack.enter_context(
                Pipeline(problem, schedule, stages, next_byte_loss, timeout_s=spec.timeout_s)
            )
            learners.append(_Learner(pipeline, stages, spec))
        batches = training_batches(config, text, spec.samples, spec.seed)
        for step in range(spec.steps):
            batch, target = next(batches)
            for learner in learners:
                learner.step(batch, target)
                if step == 0:
                    learner.error = _gradient_error(rank, spec, config, learner.stages, batch, target)
                learner.update()
    return [learner.gather() for learner in learners]


class _Learner:
    """One model that is trained under one schedule, and what its steps took on this rank."""

    def __init__(self, pipeline: Pipeline, stages: dict[int, nn.Module], spec: RunSpec) -> None:
        self.stages, self.error = stages, 0.0
        self._pipeline = pipeline
        self._losses: list[float] = []
        self._calls_s: list[float] = []
        self._peak = self._received = 0
        self._records: list[tuple[OpRecord, ...]] = []
        parameters = [parameter for stage in stages.values() for parameter in stage.parameters()]
        self._optimizer = torch.optim.AdamW(parameters, lr=spec.learning_rate)

    def step(self, batch: Tensor, target: Tensor) -> None:
        dist.barrier()  # so that a step's time is this schedule's alone
        self._losses.append(self._pipeline.step(batch, target))
        report = self._pipeline.report
        self._calls_s.append(report.step_s)
        self._peak = max(self._peak, report.peak_bytes)
        self._received = max(self._received, report.received_bytes)
        self._records.append(report.records)

    def update(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad()

    def gather(self) -> Trained:
        """What all ranks saw."""
        whole: list[tuple[list[float], int, int, list[tuple[OpRecord, ...]]] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(whole, (self._calls_s, self._peak, self._received, self._records))
        ranks = [each for each in whole if each is not None]
        steps = []
        for records in zip(*(each[3] for each in ranks), strict=True):
            ran = [record for row in records for record in row]
            steps.append(max(record.end_s for record in ran) - min(record.start_s for record in ran))
        middle = median(steps[2:] or steps)
        typical = min(range(len(steps)), key=lambda step: abs(steps[step] - middle))
        return Trained(
            losses=tuple(self._losses),
            steps_s=tuple(steps),
            calls_s=tuple(max(calls) for calls in zip(*(each[0] for each in ranks), strict=True)),
            peaks=tuple(each[1] for each in ranks),
            received=tuple(each[2] for each in ranks),
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


def predicted_s(result: Result) -> float:
    """Makespan of a result in seconds."""
    from adaptpipe.solver.core.problem import SECONDS

    assert result.timeline is not None
    return float(result.timeline.makespan * SECONDS[result.timeline.problem.unit])
