"""What every rank of `adaptpipe run` and `profile` does: measure, agree on the schedules, train under each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor, nn

from adaptpipe.executor import check_checkpoint, launch, measure
from adaptpipe.models import build_full, build_stage, describe_split, next_byte_loss, training_batches
from adaptpipe.models.hf import DecoderConfig
from adaptpipe.solver import InputError, NoAnswerError, Problem, Profile, Result

from .common import say
from .learning import Trained, mesh_of, train
from .planning import configure, plan
from .run_file import RunSpec
from .worth import Worth

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that rank 0 brings home.

    Parameters
    ----------
    profile
        What was measured; None where a plan was run as it is.
    problem
        What was solved.
    results
        The baseline, where there is one, and ours.
    worth
        What our choices are worth.
    trained
        For each of the results.
    """

    profile: Profile | None
    problem: Problem
    results: tuple[Result, ...]
    worth: Worth | None
    trained: tuple[Trained, ...]

    @property
    def ours(self) -> Result:
        """Our schedule."""
        return self.results[-1]


def launch_ranks(function: Callable[[int, int, RunSpec], R], spec: RunSpec) -> tuple[R, ...]:
    """Run a function on all ranks, and tell of bad input before any process starts."""
    config, _, _ = configure(spec)
    preload = config.slow_imports if isinstance(config, DecoderConfig) else ()
    return launch(function, spec.processes, spec, preload=preload)


def check_resumed(spec: RunSpec) -> None:
    """Refuse a checkpoint of another model before anything is measured.

    Raises
    ------
    InputError
        Naming what does not fit.
    """
    if spec.resume:
        check_checkpoint(spec.resume, build_full(configure(spec)[0], spec.seed))


def profile_rank(rank: int, ranks: int, spec: RunSpec) -> Profile:
    """Measure the stages of a run file; every rank returns the whole profile."""
    config, parts, text = configure(spec)
    placement = spec.place()
    stages: dict[int, nn.Module] = {
        s: build_stage(config, spec.seed, parts[s]) for _, s in placement.held[rank % spec.ranks]
    }

    def batch_of(samples: int) -> tuple[Tensor, Tensor]:
        return next(training_batches(config, text, samples, spec.seed))

    return measure(
        placement,
        stages,
        next_byte_loss,
        batch_of,
        spec.measured_sizes,
        units=spec.weight_units,
        mesh=mesh_of(spec),
        timeout_s=spec.timeout_s,
    )


def run_rank(rank: int, ranks: int, spec: RunSpec) -> Outcome | InputError | NoAnswerError | None:
    """Profile, plan and train; rank 0 returns the outcome, or why there is none."""
    config, parts, text = configure(spec)
    if rank == 0:
        for line in describe_split(config, parts):
            say(line)
    profile = None
    if not spec.as_planned:
        if rank == 0:
            say(f"measuring {len(parts)} stages on {ranks} ranks")
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
    results = (ours,) if baseline is None else (baseline, ours)
    if rank == 0:
        names = [result.found_by or result.method for result in results]
        turns = "" if baseline is None else ", in turns"
        say(f"training {spec.steps} steps under {' and '.join(names)}{turns}")
    try:
        trained = train(rank, spec, config, parts, text, problem, [result.schedule for result in results])
    except InputError as error:  # raised on every rank, as where the checkpoint is of another model
        return error if rank == 0 else None
    return Outcome(profile, problem, results, value, tuple(trained)) if rank == 0 else None
