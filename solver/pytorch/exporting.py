"""A schedule as PyTorch's CSV."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ..core.errors import NoAnswerError
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.schedule import Schedule
from ..evaluate.check import check
from ..evaluate.simulate import simulate
from .beside import beside, write_beside
from .lowering import lower
from .messages import check_messages
from .table import tabulate, write_table


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Parameters
    ----------
    schedule
        The schedule that the CSV holds.
    files
        The CSV, and the file beside it.
    notes
        What is not as it was, for people.
    """

    schedule: Schedule
    files: tuple[Path, Path]
    notes: tuple[str, ...]


def export_csv(problem: Problem, schedule: Schedule, path: str | Path, *, messages: bool = False) -> Exported:
    """Write a schedule as the CSV that `torch.distributed.pipelining` loads, and beside it what a CSV cannot hold.

    Parameters
    ----------
    problem, schedule
        A valid schedule of the problem.
    path
        The CSV; `path` with `.json` at its end holds sizes, problem and planned starts.
    messages
        False: the ops, PyTorch's `compute_only`. True: with upkeep and messages, its `compute_comms`.

    Raises
    ------
    InputError
        When the schedule is for another shape, or a file cannot be written.
    NoAnswerError
        When the schedule is not valid, or has what PyTorch cannot run: stages with two replicas, weight gradients in
        ranges of units, micro-batches of unequal sizes or in slices, updates without a flush.
    """
    found = check(problem, schedule)
    if found:
        raise NoAnswerError(f"the schedule is not valid: {found[0].message}")
    schedule = _runnable(schedule)
    given, schedule = schedule, _numbered_by_loss(schedule)
    notes: tuple[str, ...] = ()
    if schedule is not given:
        notes = (
            "micro-batches are numbered anew, in the order in which the last stage takes them: PyTorch finds a "
            "micro-batch's loss by that order",
        )
    rows = lower(schedule) if messages else schedule.ops
    if messages:
        check_messages(tabulate(rows), schedule.placement)
    timeline = simulate(problem, schedule)
    write_table(path, rows)
    write_beside(path, timeline)
    return Exported(schedule, (Path(path), beside(path)), notes)


def _runnable(schedule: Schedule) -> Schedule:
    """The schedule with its W's whole, or a refusal."""
    if schedule.updates != "step":
        raise NoAnswerError(
            f"the schedule's updates are {schedule.updates!r}, and PyTorch updates weights once a step, after a flush; "
            "export a synchronous schedule, as that of 1F1B"
        )
    if schedule.placement.directions > 1:
        raise NoAnswerError(
            "the placement is bidirectional, and PyTorch runs a stage on one rank; "
            "solve with a placement of one direction: linear, loop, v or wave"
        )
    if schedule.slices > 1:
        raise NoAnswerError(
            f"micro-batches are cut into {schedule.slices} slices along their sequence, and PyTorch runs them whole; "
            "solve without batch.slices"
        )
    for j, size in enumerate(schedule.sizes):
        if size != schedule.sizes[0]:
            raise NoAnswerError(
                f"micro-batch {j} has {size} samples and micro-batch 0 has {schedule.sizes[0]}, and PyTorch cuts a "
                "batch into equal parts; solve with one size in batch.microbatch_sizes"
            )
    ranges: set[tuple[int, int]] = set()
    for rank, row in enumerate(schedule.ops):
        for position, op in enumerate(row):
            if op.kind is Kind.W and (op.stage, op.microbatch) in ranges:
                raise NoAnswerError(
                    f"rank {rank}, position {position}: {op} is one of several parts of {op.stage}W{op.microbatch}, "
                    "and PyTorch computes a weight gradient whole; solve with --granularity fused, or none"
                )
            if op.units is not None:
                ranges.add((op.stage, op.microbatch))
    whole = (tuple(replace(op, units=None) for op in row) for row in schedule.ops)
    return replace(schedule, ops=tuple(whole)) if ranges else schedule


def _numbered_by_loss(schedule: Schedule) -> Schedule:
    """The same schedule with micro-batches numbered in the order of the last stage's forwards.

    `_PipelineScheduleRuntime` keeps losses in a list in the order of the forwards, and takes micro-batch j's from place
    j: another's, or one that is not there yet, where forwards are out of order. Micro-batches of one size may change
    their numbers.
    """
    last = schedule.placement.stage_count - 1
    order = [op.microbatch for row in schedule.ops for op in row if op.stage == last and op.kind is Kind.F]
    if order == sorted(order):
        return schedule
    number = {j: place for place, j in enumerate(order)}
    rows = (tuple(Op(op.stage, op.kind, number[op.microbatch]) for op in row) for row in schedule.ops)
    return replace(schedule, ops=tuple(rows))
