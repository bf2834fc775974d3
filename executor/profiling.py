"""Measure stages and messages inside a running pipeline, so that the figures hold what a run will meet."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adaptpipe.solver import Kind, Measurement, Op, Part, Placement, Problem, Profile, Schedule

from .delays import message_delays
from .pipeline import Loss, Pipeline
from .report import OpRecord
from .transport import WINDOW
from .weights import coverage

T = TypeVar("T")

_ROUNDS, _STEPS = 3, 2
"""Turns of split and fused backwards, so that what disturbs the machine meets both; and steps measured in each, after
one that warms up and is left out."""


def measure(
    placement: Placement,
    stages: Mapping[int, nn.Module],
    loss_fn: Loss,
    batch_of: Callable[[int], tuple[Tensor, Tensor]],
    sizes: Sequence[int],
    *,
    timeout_s: float = 60.0,
) -> Profile:
    """Seconds and bytes of every stage, at several micro-batch sizes, and of messages; all ranks call it together.

    Every stage runs F of all micro-batches, then the backward of all: once split into I and W, once fused. Figures are
    medians. Weights and buffers are left as they were; gradients that are there are kept.

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
    timeout_s
        Seconds a rank may wait for a message.

    Returns
    -------
    Profile
        One part for each stage, the same on every rank. Message times need the ranks' clocks to agree, as they do on
        one machine.
    """
    count = max(4, placement.ranks + 1)
    saved = [(buffer, buffer.clone()) for stage in stages.values() for buffer in stage.buffers()]
    grads = [(parameter, parameter.grad) for stage in stages.values() for parameter in stage.parameters()]
    found: dict[int, dict[Kind, _Samples]] = {}
    delays: dict[int, list[float]] = defaultdict(list)
    for size in sorted(set(sizes)):
        batch, target = batch_of(size * count)
        problem = bare_problem(placement, size * count, [size])
        found[size] = {}
        for fused in (False, True) * _ROUNDS:
            schedule = _waves(problem, fused)
            for parameter, _ in grads:
                parameter.grad = None
            with Pipeline(problem, schedule, stages, loss_fn, timeout_s=timeout_s) as pipeline:
                for step in range(_STEPS + 1):
                    pipeline.step(batch, target)
                    if step:
                        everyone = _gather(pipeline.report.records)
                        _collect(everyone, found[size])
                        delays[size] += message_delays(placement, everyone)
    for buffer, value in saved:
        buffer.copy_(value)
    for parameter, grad in grads:
        parameter.grad = grad
    own = {s: (_static_bytes(stage), coverage(stage)) for s, stage in stages.items()}
    fixed = {s: values for part in _gather(own) for s, values in part.items()}
    parts = tuple(
        Part(
            name=f"stage {s}",
            static=fixed[s][0],
            measurements=tuple(_measurement(s, size, found[size]) for size in sorted(found)),
            deferred=fixed[s][1],
        )
        for s in range(placement.stage_count)
    )
    latency, bandwidth = _link(parts, delays)
    return Profile(_device(), parts, latency, bandwidth)


class _Samples:
    """What was seen of one kind of op, by stage."""

    def __init__(self) -> None:
        self.seconds: dict[int, list[float]] = defaultdict(list)
        self.held: dict[int, list[int]] = defaultdict(list)
        self.message: dict[int, list[int]] = defaultdict(list)


def message_reserve(profile: Profile, placement: Placement) -> tuple[int, ...]:
    """For each rank, bytes that messages may hold besides its ops: the windows of its receives, and as much in flight.

    Parameters
    ----------
    profile
        One part for each stage; messages count at the largest size measured.
    placement
        Stage to rank.
    """
    reserve = [0] * placement.ranks
    for row in placement.stages:
        for stage, (here, there) in enumerate(pairwise(row)):
            if here != there:
                message = max(m.message for m in profile.parts[stage].measurements)
                for rank in (here, there):  # one end sends activations and receives gradients, the other the reverse
                    reserve[rank] += 2 * WINDOW * message
    return tuple(reserve)


def bare_problem(placement: Placement, samples: int, sizes: Sequence[int]) -> Problem:
    """A problem of the right shape, before its prices are known.

    Raises
    ------
    InputError
        When the sizes do not make up the batch.
    """
    return Problem.from_dict(
        {
            "pipeline": {"ranks": placement.ranks, "placement": [list(row) for row in placement.stages]},
            "batch": {"samples": samples, "microbatch_sizes": list(sizes)},
            "costs": {key: {} for key in ("forward", "backward_input", "backward_weight")},
        }
    )


def _waves(problem: Problem, fused: bool) -> Schedule:
    """All forwards, then all backwards: the one order that every placement can run."""
    placement, sizes = problem.placement, problem.default_sizes()
    rows = []
    for rank in range(placement.ranks):
        row: list[Op] = []
        mine = [
            (s, j)
            for s in range(placement.stage_count)
            for j in range(len(sizes))
            if placement.rank_of(s, j, len(sizes)) == rank
        ]
        row += [Op(s, Kind.F, j) for s, j in mine]
        for s, j in sorted(mine, key=lambda each: (-each[0], each[1])):
            row += [Op(s, Kind.B, j)] if fused else [Op(s, Kind.I, j), Op(s, Kind.W, j)]
        rows.append(tuple(row))
    return Schedule(placement, sizes, tuple(rows))


def _gather(mine: T) -> list[T]:
    whole: list[T | None] = [None] * dist.get_world_size()
    dist.all_gather_object(whole, mine)
    return [each for each in whole if each is not None]


def _collect(everyone: Sequence[Sequence[OpRecord]], found: dict[Kind, _Samples]) -> None:
    for records in everyone:
        for record in records:
            samples = found.setdefault(record.op.kind, _Samples())
            samples.seconds[record.op.stage].append(record.end_s - record.start_s)
            samples.held[record.op.stage].append(record.held_bytes)
            samples.message[record.op.stage].append(record.message_bytes)


def _measurement(stage: int, size: int, found: Mapping[Kind, _Samples]) -> Measurement:
    def seconds(kind: Kind) -> float:
        return median(found[kind].seconds[stage])

    def held(kind: Kind) -> int:
        return int(median(found[kind].held[stage]))

    return Measurement(
        size=size,
        forward_s=seconds(Kind.F),
        backward_input_s=seconds(Kind.I),
        backward_weight_s=seconds(Kind.W),
        backward_s=seconds(Kind.B),
        activation=held(Kind.F),
        retained=held(Kind.I),
        message=int(median(found[Kind.F].message[stage])),
    )


def _link(parts: Sequence[Part], delays: Mapping[int, Sequence[float]]) -> tuple[float, float | None]:
    """Latency in seconds, and bandwidth in bytes per second where sizes tell them apart."""
    points = [
        (max(part.measurements[index].message for part in parts), median(seen))
        for index, (_, seen) in enumerate(sorted(delays.items()))
        if seen
    ]
    if not points:
        return 0.0, None
    (small, fast), (large, slow) = points[0], points[-1]
    if large > small and slow > fast:
        slope = (slow - fast) / (large - small)
        return max(0.0, fast - slope * small), 1 / slope
    return median(seconds for _, seconds in points), None


def _static_bytes(stage: nn.Module) -> int:
    """Weights, buffers, gradients and the two moments of Adam."""
    weights = sum(parameter.nbytes for parameter in stage.parameters())
    trained = sum(parameter.nbytes for parameter in stage.parameters() if parameter.requires_grad)
    return weights + 3 * trained + sum(buffer.nbytes for buffer in stage.buffers())


def _device() -> str:
    return f"{platform.processor() or platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads"
