"""Put a schedule on a clock."""

from __future__ import annotations

import numpy as np

from ..core.errors import InputError, NoAnswerError
from ..core.instance import Instance
from ..core.ops import Kind
from ..core.precedence import op_nodes
from ..core.problem import Problem
from ..core.schedule import Array, Schedule
from ..core.stream import weight_copies
from . import kernel
from .structure import deadlock, malformed
from .timeline import Timeline


def require_fit(problem: Problem, schedule: Schedule) -> None:
    """Refuse a schedule that was made for another shape.

    Raises
    ------
    InputError
        When placement, slices, sizes or batch differ from the problem's.
    """
    ours, theirs = problem.placement, schedule.placement
    if (ours.ranks, ours.stage_count) != (theirs.ranks, theirs.stage_count):
        raise InputError(
            f"the schedule is for {theirs.stage_count} stages on {theirs.ranks} ranks, "
            f"the problem has {ours.stage_count} on {ours.ranks}"
        )
    for direction, (expected, found) in enumerate(zip(ours.stages, theirs.stages, strict=False)):
        for stage, (want, have) in enumerate(zip(expected, found, strict=True)):
            if want != have:
                raise InputError(
                    f"stage {stage} (direction {direction}) is on rank {have} in the schedule "
                    f"and on rank {want} in the problem"
                )
    if ours.directions != theirs.directions:
        raise InputError(f"the schedule has {theirs.directions} directions, the problem {ours.directions}")
    if problem.slice_count != schedule.slices:
        raise InputError(
            f"the schedule cuts a micro-batch into {schedule.slices} slices, and the problem into "
            f"{problem.slice_count} (batch.slices)"
        )
    problem.instance(schedule.sizes)


def op_inputs(instance: Instance, schedule: Schedule) -> tuple[Array, Array]:
    """For each op of a well-formed schedule the ops it waits for (-1: none) and the message times, shapes (n, 2)."""
    nodes = op_nodes(schedule)
    maker = np.full(len(instance.before), -1, dtype=np.int64)
    produces = schedule.table.kind != Kind.W
    maker[nodes[produces]] = np.flatnonzero(produces)
    sources = instance.before[nodes]
    before = np.where(sources >= 0, maker[sources], -1)
    return np.ascontiguousarray(before), np.ascontiguousarray(instance.lag[nodes])


def op_ticks(instance: Instance, schedule: Schedule) -> Array:
    """Duration of every op, in ticks, shape (n,)."""
    t = schedule.table
    s, j, last = t.stage, t.microbatch, instance.unit_ticks.shape[2] - 1
    ranged = t.start >= 0
    start, stop = np.where(ranged, t.start, 0), np.where(ranged, np.minimum(t.stop, last), last)
    weight = instance.unit_ticks[s, j, stop] - instance.unit_ticks[s, j, start] + instance.overhead[s] * (start > 0)
    return np.choose(t.kind, [instance.forward[s, j], instance.backward_input[s, j], weight, instance.backward[s, j]])


def op_bytes(instance: Instance, schedule: Schedule) -> tuple[Array, Array, Array]:
    """Bytes every op takes, holds for its own time only, and frees at its end, each of shape (n,)."""
    t = schedule.table
    s, j, last = t.stage, t.microbatch, instance.unit_bytes.shape[2] - 1
    start, stop = np.where(t.start >= 0, t.start, 0), np.where(t.start >= 0, np.minimum(t.stop, last), last)
    activation, retained = instance.activation[s, j], instance.retained[s, j]
    share = instance.unit_bytes[s, j, stop] - instance.unit_bytes[s, j, start]
    nothing = np.zeros_like(share)
    take = np.choose(t.kind, [activation, nothing, nothing, nothing])
    # While I runs, what F left and what W will need overlap: the larger of the two is held.
    swell = np.choose(t.kind, [nothing, np.maximum(retained - activation, 0), nothing, nothing])
    free = np.choose(t.kind, [nothing, activation - retained, share, activation])
    return take, swell, free


def static_bytes(problem: Problem, schedule: Schedule) -> Array:
    """Bytes of each rank before its first op, all versions of weights that the schedule keeps included, shape (p,)."""
    copies = weight_copies(schedule)
    return np.array([problem.static_bytes(rank, copies) for rank in range(problem.ranks)], dtype=np.int64)


def simulate(problem: Problem, schedule: Schedule) -> Timeline:
    """Run a schedule on the problem's clock, every op as early as its rank's order and its inputs allow.

    Parameters
    ----------
    problem, schedule
        A schedule of the problem's shape. Its memory may pass the limits: `check` tells.

    Returns
    -------
    Timeline
        Starts, ends and memory of every op.

    Raises
    ------
    InputError
        When the schedule is for another shape.
    NoAnswerError
        When an op waits for one that is missing, or ranks wait for each other; the message names the ops.
    """
    require_fit(problem, schedule)
    instance = problem.instance(schedule.sizes)
    table = schedule.table
    found = malformed(instance, schedule)
    if found:
        raise NoAnswerError(found[0].message)
    before, lag = op_inputs(instance, schedule)
    ticks = op_ticks(instance, schedule)
    start = np.zeros(len(ticks), dtype=np.int64)
    done = np.zeros(problem.ranks, dtype=np.int64)
    if kernel.earliest(table.offsets, ticks, before, lag, start, done) < len(ticks):
        raise NoAnswerError(deadlock(schedule, before, table.offsets[:-1] + done).message)
    during, after = np.empty_like(start), np.empty_like(start)
    take, swell, free = op_bytes(instance, schedule)
    static = static_bytes(problem, schedule)
    kernel.memory(table.offsets, static, take, swell, free, during, after)
    return Timeline(problem, schedule, start, start + ticks, during, after, static)
