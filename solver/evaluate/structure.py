"""What makes a schedule malformed or stuck, found without a clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.instance import Instance
from ..core.ops import Kind
from ..core.precedence import op_nodes
from ..core.problem import Problem
from ..core.schedule import Array, Schedule


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong with a schedule.

    Parameters
    ----------
    rank, position
        Where; position is None when it concerns no op that is there.
    message
        Place, value and bound.
    """

    rank: int
    position: int | None
    message: str


def malformed(instance: Instance, schedule: Schedule) -> list[Violation]:
    """Ops on a wrong rank, missing, or too many; slices that do not take turns."""
    found = [] if _complete(instance, schedule) else _misplaced(schedule) + _miscounted(instance.problem, schedule)
    return found + _out_of_turn(instance, schedule) if schedule.slices > 1 else found


def _complete(instance: Instance, schedule: Schedule) -> bool:
    """Whether nothing is wrong, for the schedules that have no ranges of units: counts in arrays are fast."""
    table = schedule.table
    if (table.start >= 0).any():
        return False
    rank = np.repeat(np.arange(instance.ranks), np.diff(table.offsets))
    if (instance.rank[table.stage, table.microbatch] != rank).any():
        return False
    counts = np.bincount(op_nodes(schedule), minlength=len(instance.before)).reshape(3, -1)
    split = np.zeros_like(counts[0])
    is_input = table.kind == Kind.I
    np.add.at(split, table.stage[is_input] * instance.microbatches + table.microbatch[is_input], 1)
    return bool((counts[:2] == 1).all() and (counts[2] == split).all())


def _misplaced(schedule: Schedule) -> list[Violation]:
    placement, count = schedule.placement, schedule.microbatches
    found = []
    for rank, row in enumerate(schedule.ops):
        for position, op in enumerate(row):
            owner = placement.rank_of(op.stage, op.microbatch, count)
            if owner != rank:
                found.append(
                    Violation(rank, position, f"rank {rank}, position {position}: {op} belongs to rank {owner}")
                )
    return found


def _miscounted(problem: Problem, schedule: Schedule) -> list[Violation]:
    found: list[Violation] = []
    first: dict[tuple[int, Kind, int], tuple[int, int]] = {}
    weights: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    for rank, row in enumerate(schedule.ops):
        for position, op in enumerate(row):
            units = len(problem.weight_units[op.stage])
            if op.kind is Kind.W:
                start, stop = op.units or (0, units)
                if stop > units:
                    text = f"rank {rank}, position {position}: {op} ends beyond unit {units - 1}, the stage's last"
                    found.append(Violation(rank, position, text))
                weights.setdefault((op.stage, op.microbatch), []).append((start, stop, rank, position))
                continue
            there = first.setdefault((op.stage, op.kind, op.microbatch), (rank, position))
            if there != (rank, position):
                text = f"rank {rank}, position {position}: {op} is there twice, first at position {there[1]}"
                text += f" of rank {there[0]}" if there[0] != rank else ""
                found.append(Violation(rank, position, text))
    placement, count = schedule.placement, schedule.microbatches
    for stage in range(placement.stage_count):
        units = len(problem.weight_units[stage])
        for j in range(count):
            rank = placement.rank_of(stage, j, count)
            place = {kind: first.get((stage, kind, j)) for kind in (Kind.F, Kind.I, Kind.B)}
            if place[Kind.F] is None:
                found.append(Violation(rank, None, f"rank {rank}: {stage}F{j} is missing"))
            fused, split = place[Kind.B], place[Kind.I]
            if fused is None and split is None:
                found.append(
                    Violation(rank, None, f"rank {rank}: {stage}B{j}, or {stage}I{j} and {stage}W{j}, is missing")
                )
            if fused is not None and split is not None:
                text = (
                    f"rank {rank}, position {split[1]}: {stage}I{j} beside {stage}B{j} at position {fused[1]}; "
                    "one of them is enough"
                )
                found.append(Violation(rank, split[1], text))
            ranges = sorted(weights.get((stage, j), []))
            if fused is not None and ranges:
                text = f"rank {rank}, position {ranges[0][3]}: {stage}W{j} beside {stage}B{j}, which holds it already"
                found.append(Violation(rank, ranges[0][3], text))
            elif fused is None and split is not None:
                found += _uncovered(stage, j, rank, units, ranges)
    return found


def _uncovered(stage: int, j: int, rank: int, units: int, ranges: list[tuple[int, int, int, int]]) -> list[Violation]:
    reached = 0
    for start, stop, _, position in ranges:
        if start < reached:
            text = f"rank {rank}, position {position}: unit {start} of {stage}W{j} is computed twice"
            return [Violation(rank, position, text)]
        if start > reached:
            break
        reached = stop
    if reached < units:
        what = f"{stage}W{j}" if not ranges else f"unit {reached} of {stage}W{j}"
        return [Violation(rank, None, f"rank {rank}: {what} is missing")]
    return []


def _out_of_turn(instance: Instance, schedule: Schedule) -> list[Violation]:
    table, nodes = schedule.table, op_nodes(schedule)
    rows, produces = np.arange(len(nodes)), table.kind != Kind.W
    at = np.full(len(instance.before), -1, dtype=np.int64)
    at[nodes[produces]] = rows[produces]
    other = np.where(instance.earlier[nodes] >= 0, at[instance.earlier[nodes]], -1)
    found, flat = [], [op for row in schedule.ops for op in row]
    for row in np.flatnonzero(other > rows).tolist():
        rank = int(np.searchsorted(table.offsets, row, side="right")) - 1
        position, later, op = row - int(table.offsets[rank]), int(other[row] - table.offsets[rank]), flat[row]
        direction = "first to last in the forward" if op.kind is Kind.F else "last to first in the backward"
        text = f"rank {rank}, position {position}: {op} is before {flat[other[row]]}, at position {later}"
        text += f"; the {schedule.slices} slices of a micro-batch run {direction}"
        found.append(Violation(rank, position, text))
    return found


def deadlock(schedule: Schedule, before: Array, heads: Array) -> Violation:
    """The cycle of ops that wait for each other, from where each rank is stuck.

    Parameters
    ----------
    before
        Ops that each op waits for, shape (n, 2).
    heads
        For each rank, the op that it cannot start; the offset of the next rank where it has ended.
    """
    offsets = schedule.table.offsets
    flat = [(rank, position, op) for rank, row in enumerate(schedule.ops) for position, op in enumerate(row)]

    def awaited(rank: int) -> int:
        for source in before[heads[rank]]:
            owner = flat[source][0] if source >= 0 else rank
            if source >= 0 and source >= heads[owner]:
                return int(source)
        raise AssertionError("a rank that is stuck waits for an op that has not run")

    rank = next(r for r in range(len(heads)) if heads[r] < offsets[r + 1])
    trail: list[int] = []
    while rank not in trail:
        trail.append(rank)
        rank = flat[awaited(rank)][0]
    loop = trail[trail.index(rank) :]
    parts = []
    for r in loop:
        head, source = flat[heads[r]], flat[awaited(r)]
        parts.append(
            f"rank {r}, position {head[1]}: {head[2]} waits for {source[2]} (rank {source[0]}, position {source[1]})"
        )
    return Violation(loop[0], flat[heads[loop[0]]][1], "deadlock: " + "; ".join(parts))
