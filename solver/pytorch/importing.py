"""PyTorch's CSV as a schedule."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.bare import bare_problem
from ..core.errors import InputError, NoAnswerError
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.schedule import Schedule
from ..evaluate.check import check
from .actions import Transfer, Upkeep
from .beside import beside, read_beside
from .messages import check_messages, has_messages
from .table import Table, placement_of, read_table

Rows = tuple[tuple[Op, ...], ...]


@dataclass(frozen=True, slots=True)
class Imported:
    """What was read.

    Parameters
    ----------
    schedule
        The schedule, valid.
    problem
        Name of the problem it is for, if known.
    notes
        What the schedule does not hold, and what was assumed, for people.
    """

    schedule: Schedule
    problem: str
    notes: tuple[str, ...]


def import_csv(path: str | Path, problem: Problem | None = None) -> Imported:
    """Read a schedule from PyTorch's CSV, with the ops alone or with messages.

    The placement is what the rows say. The samples of each micro-batch are what the file beside the CSV says, if there
    is one, else what the problem says, else 1.

    Parameters
    ----------
    path
        The CSV, as `export_csv`, PyTorch's `_dump_csv` or a hand writes it.
    problem
        What the schedule must be valid for. None: any problem of its shape without memory limits.

    Raises
    ------
    InputError
        With row, column and text of a cell that is none of PyTorch's; when a stage is on two ranks or on none; when the
        shape is not the problem's.
    NoAnswerError
        When an op is missing, doubled or comes too early, when memory would pass a limit, or when ranks would wait for
        each other; the message names the ops.
    """
    table = read_table(path)
    try:
        placement = placement_of(table)
        if has_messages(table):
            check_messages(table, placement)
        ops = _ops(table)
        count = _microbatches(ops)
    except (InputError, NoAnswerError) as error:
        raise type(error)(f"{path}: {error}") from None
    notes = _left_out(table)
    given, ops = ops, _from_zero(ops, placement.stage_count - 1)
    if ops is not given:
        count -= 1
        notes.append(
            "the last stage's forwards are numbered from 1, as Schedule1F1B numbers them; they are read as from 0"
        )
    said = read_beside(path, placement, count)
    if said is not None:
        sizes, name = tuple(said.sizes), said.problem
        notes.append(f"sizes are those of {beside(path)}")
    elif problem is not None:
        sizes, name = _sizes(path, problem, count), problem.name
    else:
        sizes, name = (1,) * count, ""
        notes.append("a CSV does not say how large micro-batches are: 1 sample each; --problem says it")
    source = path if said is None else beside(path)
    try:
        schedule = Schedule(placement, sizes, ops)
        found = check(problem or bare_problem(placement, sum(sizes), sorted(set(sizes))), schedule)
    except InputError as error:
        if problem is not None and problem.placement.stages != placement.stages:
            raise InputError(f"{path}: {error}; its rows are the ranks, and say which stages each holds") from None
        raise InputError(f"{source}: {error}") from None
    if found:
        raise NoAnswerError(f"{path}: {found[0].message}")
    return Imported(schedule, problem.name if problem is not None else name, tuple(notes))


def _ops(table: Table) -> Rows:
    return tuple(tuple(cell.action for cell in row if isinstance(cell.action, Op)) for row in table)


def _microbatches(ops: Rows) -> int:
    """How many micro-batches there are; numbers without gaps."""
    first = {op.microbatch: op for row in ops for op in row}
    missing = next((j for j in range(len(first)) if j not in first), None)
    if missing is not None:
        raise InputError(
            f"{first[max(first)]} is there, and micro-batch {missing} is not; they are numbered from 0 without gaps"
        )
    if not first:
        raise InputError("no cell holds an op")
    return len(first)


def _from_zero(ops: Rows, last: int) -> Rows:
    """The ops with the last stage's forwards numbered from 0, if that they are not is all that is wrong.

    `Schedule1F1B.pipeline_order` of torch 2.13 counts them from 1, while every other op counts from 0.
    """

    def odd(op: Op) -> bool:
        return op.stage == last and op.kind is Kind.F

    forwards = {op.microbatch for row in ops for op in row if odd(op)}
    others = {op.microbatch for row in ops for op in row if not odd(op)}
    if others != set(range(len(others))) or forwards != {j + 1 for j in others}:
        return ops
    return tuple(tuple(replace(op, microbatch=op.microbatch - 1) if odd(op) else op for op in row) for row in ops)


def _sizes(path: str | Path, problem: Problem, count: int) -> tuple[int, ...]:
    if count not in problem.uniform_counts():
        raise InputError(
            f"{path}: {count} micro-batches, and the problem's {problem.samples} samples are no sum of {count} "
            f"near-equal sizes of {list(problem.sizes)}; change batch.samples or batch.microbatch_sizes"
        )
    return problem.uniform_sizes(count)


def _left_out(table: Table) -> list[str]:
    cells = [cell for row in table for cell in row]
    pairs = sum(1 for count in Counter((c.rank, c.column) for c in cells).values() if count > 1)
    kinds = [
        (pairs, "overlapped pairs are their ops, one after the other"),
        (
            sum(isinstance(c.action, Transfer) for c in cells),
            "message cells are proved and left out: they are made anew",
        ),
        (sum(isinstance(c.action, Upkeep) for c in cells), "cells UNSHARD, RESHARD and REDUCE_GRAD are left out"),
    ]
    return [f"{count:,} {what}" for count, what in kinds if count]
