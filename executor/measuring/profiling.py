"""Measure stages and messages inside a running pipeline, so that the figures hold what a run will meet."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import median

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from adaptpipe.solver import (
    Affine,
    InputError,
    Kind,
    Op,
    Part,
    Placement,
    Problem,
    Profile,
    Schedule,
    bare_problem,
)

from ..crew import Crew
from ..programs.reserve import borders
from ..programs.route import WINDOW
from ..running.pipeline import Loss, Pipeline
from ..running.startup import patience
from ..stages.device import device_of
from ..waiting import gather
from ..weights import coverage
from ..weights.cutting import even_parts
from .bench import LEAST_UNIT_S
from .delays import message_delays
from .samples import Samples, link

_ROUNDS, _STEPS = 3, 3
"""In a round, a third of the micro-batches has its backward fused, a third split, a third split and cut, so that what
disturbs the machine meets all three; in the next round another third. And steps measured in each round, after one that
warms up and is left out; one less where there are several sizes, which make up for each other's disturbances."""

_WHAT = "the measurements"


def measure(
    placement: Placement,
    stages: Mapping[int, nn.Module],
    loss_fn: Loss,
    batch_of: Callable[[int], tuple[Tensor, Tensor]],
    sizes: Sequence[int],
    *,
    units: int = 4,
    mesh: DeviceMesh | None = None,
    timeout_s: float = 60.0,
) -> Profile:
    """Seconds and bytes of every stage, at several micro-batch sizes, and of messages; all ranks call it together.

    Every stage runs F of all micro-batches, then the backward of all: fused, split into I and W, or split with W cut
    into its units, which run apart. Figures are medians; where ops run on the processor, of the time for which each had
    it, all scaled by one factor to the clock. Weights and buffers are left as they were; gradients that are there are
    kept.

    Parameters
    ----------
    placement
        Stage to rank.
    stages
        This rank's stages.
    loss_fn
        Mean loss of a micro-batch.
    batch_of
        Batch and target of that many samples, on every rank.
    sizes
        Micro-batch sizes to measure, in samples.
    units
        Units that a stage's weight gradient is cut into, at most. They are as even as they can be when none of them
        shares a tensor with another, so that each frees the same bytes in whatever order they run; a stage with few
        weight gradients, or short ones, has fewer.
    mesh
        As of `Pipeline`; what counts is the first replica.
    timeout_s
        Seconds a rank may wait for a message.

    Raises
    ------
    InputError
        When `units` is below 1.

    Returns
    -------
    Profile
        One part for each stage, the same on every rank. Message times need the ranks' clocks to agree, as they do on
        one machine.
    """
    if units < 1:
        raise InputError(f"units: {units} is below 1")
    count = max(6, placement.ranks + 1)
    crew = Crew.of(mesh)
    saved = [(buffer, buffer.clone()) for stage in stages.values() for buffer in stage.buffers()]
    grads = [(parameter, parameter.grad) for stage in stages.values() for parameter in stage.parameters()]
    device = device_of(stages)
    samples = Samples(on_cpu=all(gather(device is None or device.type == "cpu", patience(timeout_s), _WHAT)))
    delays: dict[int, list[float]] = defaultdict(list)
    work: tuple[tuple[int, ...], ...] | None = None
    recomputed: dict[int, int] = {}
    ordered = sorted(set(sizes), reverse=True)  # the largest says what can be cut
    steps = _STEPS if len(ordered) == 1 else _STEPS - 1
    # Sizes take turns too: else one of them, and with it the slope, would bear what disturbs the machine for a while.
    for turn, size in product(range(_ROUNDS), ordered):
        batch, target = batch_of(size * count)
        problem = bare_problem(placement, size * count, [size])
        for parameter, _ in grads:
            parameter.grad = None
        if work is None:
            with Pipeline(
                problem, _waves(problem, turn), stages, loss_fn, mesh=mesh, execution="static", timeout_s=timeout_s
            ) as pipeline:
                recomputed = pipeline.recomputed_bytes(batch, target)
                pipeline.step(batch, target)  # the first has never seen these stages
                work = _unit_work(placement, pipeline, units, timeout_s)
        cut = replace(problem, weight_units=tuple(tuple(Affine(0, part) for part in _parts(each)) for each in work))
        with Pipeline(
            cut, _waves(cut, turn), stages, loss_fn, mesh=mesh, execution="static", timeout_s=timeout_s
        ) as pipeline:
            for step in range(steps + 1):
                pipeline.step(batch, target)
                if step:
                    everyone = crew.first(gather(pipeline.report.records, timeout_s, _WHAT))
                    samples.add(size, everyone)
                    delays[size] += message_delays(placement, everyone)
    assert work is not None, "there is at least one size"
    for buffer, value in saved:
        buffer.copy_(value)
    for parameter, grad in grads:
        parameter.grad = grad
    own = {
        s: (static_bytes(stage) + recomputed[s], trained_bytes(stage), coverage(stage)) for s, stage in stages.items()
    }
    fixed = {s: values for part in gather(own, timeout_s, _WHAT) for s, values in part.items()}
    parts = tuple(
        Part(
            name=f"stage {s}",
            static=fixed[s][0],
            measurements=tuple(samples.measurement(s, size, work[s]) for size in reversed(ordered)),
            deferred=fixed[s][2],
            unit_work=work[s] or (1,),
            weights=fixed[s][1],
        )
        for s in range(placement.stage_count)
    )
    latency, bandwidth = link(parts, delays)
    return Profile(device_name(), parts, latency, bandwidth)


def message_reserve(profile: Profile, placement: Placement) -> tuple[int, ...]:
    """For each rank, bytes that messages may hold besides its ops: the windows of its receives, and as much in flight.

    As much again for messages between two stages of the rank itself.

    Parameters
    ----------
    profile
        One part for each stage; messages count at the largest size measured.
    placement
        Stage to rank.
    """
    largest = [max(m.message for m in part.measurements) for part in profile.parts]
    return tuple(2 * WINDOW * sum(largest[stage] for stage in stages) for stages in borders(placement))


def _waves(problem: Problem, turn: int) -> Schedule:
    """All forwards, then all backwards: the one order that every placement can run.

    Weight gradients run after all other backwards of their stage, the units of one apart from each other: as they will
    when they fill gaps, with nothing of theirs left in the caches.
    """
    placement, sizes = problem.placement, problem.default_sizes()
    rows = []
    for rank in range(placement.ranks):
        mine = [
            [Op(s, Kind.F, j) for j in range(len(sizes)) if placement.rank_of(s, j, len(sizes)) == rank]
            for s in range(placement.stage_count)
        ]
        row = [op for ops in mine for op in ops]
        for ops in reversed(mine):
            waiting: list[Op] = []
            for s, j in ((op.stage, op.microbatch) for op in ops):
                way = (j + turn) % 3
                row.append(Op(s, Kind.B if way == 0 else Kind.I, j))
                units = len(problem.weight_units[s]) if way == 2 else 1
                if way:
                    waiting += [Op(s, Kind.W, j, None if units == 1 else (u, u + 1)) for u in range(units)]
            row += sorted(waiting, key=lambda op: (op.units or (0, 1), op.microbatch))
        rows.append(tuple(row))
    return Schedule(placement, sizes, tuple(rows))


def _unit_work(placement: Placement, pipeline: Pipeline, units: int, timeout_s: float) -> tuple[tuple[int, ...], ...]:
    """For each stage, the work of its units, by the last step; empty where W has nothing to do."""
    mine = {}
    for stage, groups in pipeline.weight_groups().items():
        whole = median(
            record.end_s - record.start_s
            for record in pipeline.report.records
            if (record.op.stage, record.op.kind) == (stage, Kind.W)
        )
        mine[stage] = even_parts(groups, max(1, min(units, int(whole / LEAST_UNIT_S))))
    everyone = {stage: parts for part in gather(mine, timeout_s, _WHAT) for stage, parts in part.items()}
    return tuple(everyone[stage] for stage in range(placement.stage_count))


def _parts(work: Sequence[int]) -> tuple[int, ...]:
    """Work in parts of a million, which no problem finds too large."""
    return tuple(round(each * 10**6 / sum(work)) for each in work) or (0,)


def static_bytes(stage: nn.Module) -> int:
    """Weights, buffers, gradients and the two moments of Adam."""
    weights = sum(parameter.nbytes for parameter in stage.parameters())
    return weights + 3 * trained_bytes(stage) + sum(buffer.nbytes for buffer in stage.buffers())


def trained_bytes(stage: nn.Module) -> int:
    """Weights that an optimizer changes: one version of them."""
    return sum(parameter.nbytes for parameter in stage.parameters() if parameter.requires_grad)


def device_name(device: torch.device | None = None) -> str:
    """The processor, torch and its threads, or the GPU and torch, for people."""
    if device is not None and device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{platform.processor() or platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads"
