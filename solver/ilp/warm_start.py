"""A known schedule as values of the variables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.ops import Kind, Op
from ..core.schedule import Array, Schedule
from .sets import BACKWARD, FORWARD, WEIGHT, Sets
from .variables import Variables

ROWS = {Kind.F: (FORWARD,), Kind.I: (BACKWARD,), Kind.W: (WEIGHT,), Kind.B: (BACKWARD, WEIGHT)}
"""What each op stands for in the model: a fused backward has a W of no duration, or is I and W in a row."""


@dataclass(frozen=True)
class Order:
    """A schedule in the model's terms.

    Parameters
    ----------
    rows
        For each rank, its ops (numbers of `Sets`) in order.
    fused
        Whether each backward is fused, by stage and micro-batch.
    """

    rows: tuple[tuple[int, ...], ...]
    fused: dict[tuple[int, int], bool]


def order_of(sets: Sets, schedule: Schedule) -> Order | None:
    """The order of a schedule; None where it cuts a weight gradient into ranges, which the model does not have.

    Micro-batches that are alike are relabelled so that they pass in order, which changes no time and no bytes.
    """
    if any(op.units is not None for row in schedule.ops for op in row):
        return None
    label, group = _labels(sets, schedule), sets.prices.group
    fused = dict.fromkeys(((int(s), int(j)) for s, j in np.argwhere(sets.prices.fusible)), False)
    rows = []
    for row in schedule.ops:
        nodes: list[int] = []
        for op in row:
            for part in ROWS[op.kind]:
                # A W keeps to its own I, or is numbered by itself; see `Sets.queue`.
                members = list(sets.classes[group[op.microbatch]])
                own = part == WEIGHT and sets.prices.fusible[op.stage, members].any()
                microbatch = label[BACKWARD if own else part, op.stage, op.microbatch]
                nodes.append(sets.node(part, op.stage, microbatch))
                if op.kind is Kind.B and (op.stage, microbatch) in fused:
                    fused[op.stage, microbatch] = True
        rows.append(tuple(nodes))
    return Order(tuple(rows), fused)


def _labels(sets: Sets, schedule: Schedule) -> dict[tuple[int, int, int], int]:
    """(row, stage, micro-batch) to the micro-batch it is in order."""
    label: dict[tuple[int, int, int], int] = {}
    seen: dict[tuple[int, int, int], int] = {}

    def number(row: int, op: Op) -> None:
        group = int(sets.prices.group[op.microbatch])
        place = seen.get((row, op.stage, group), 0)
        seen[row, op.stage, group] = place + 1
        label[row, op.stage, op.microbatch] = sets.classes[group][place]

    for ops in schedule.ops:
        for op in ops:
            for row in ROWS[op.kind]:
                number(row, op)
    return label


def warm_start(v: Variables, order: Order) -> None:
    """Give every variable its value in a known schedule, each op as early as it can be."""
    start, end, place = _times(v.sets, order)
    for node, variable in enumerate(v.start):
        variable.setInitialValue(int(start[node]), check=False)
    for key, variable in v.fused.items():
        variable.setInitialValue(int(order.fused[key]))
    for (one, other), variable in v.order.items():
        variable.setInitialValue(int(place[one] < place[other]))
    for index, node in enumerate(sorted(v.moment, key=lambda node: int(place[node]))):
        v.moment[node].setInitialValue(index)
    value = int(end.max())
    if v.first:
        value = 0
        for variable, row in zip(v.first, order.rows, strict=True):
            first = int(start[list(row)].min()) if row else 0
            variable.setInitialValue(first)
            value = max(value, int(end[list(row)].max()) - first if row else 0)
    v.value.setInitialValue(max(value, int(v.value.lowBound)), check=False)
    _choose_tight(v, start, end, place)


def _times(sets: Sets, order: Order) -> tuple[Array, Array, Array]:
    """Start and end of every op, in steps, and its place in an order in which they can be run; shapes (n,)."""
    ticks = sets.split.copy()
    for (s, j), choice in order.fused.items():
        if choice:
            nodes = [sets.node(row, s, j) for row in (BACKWARD, WEIGHT)]
            ticks[nodes] = sets.fused[nodes]
    inputs: dict[int, list[tuple[int, int]]] = {}
    for one, other, lag in sets.flow:
        inputs.setdefault(other, []).append((one, lag))
    start, place = np.zeros(sets.count, dtype=np.int64), np.full(sets.count, -1, dtype=np.int64)
    clock, done, total, moved = [0] * len(order.rows), [0] * len(order.rows), 0, True
    while moved:
        moved = False
        for rank, row in enumerate(order.rows):
            while done[rank] < len(row):
                node = row[done[rank]]
                needs = inputs.get(node, [])
                if any(place[one] < 0 for one, _ in needs):
                    break
                arrivals = (int(start[one] + ticks[one]) + lag for one, lag in needs)
                start[node] = max(clock[rank], *arrivals, 0)
                clock[rank] = int(start[node] + ticks[node])
                place[node], total, moved = total, total + 1, True
                done[rank] += 1
    assert total == sets.count, "a schedule that runs still does when alike micro-batches are relabelled"
    return start, start + ticks, place


def _choose_tight(v: Variables, start: Array, end: Array, place: Array) -> None:
    inputs = {other: (one, lag) for one, other, lag in v.sets.flow}
    options: dict[int, list[int]] = {}
    for node, other in v.tight:
        options.setdefault(node, []).append(other)
    for node, others in options.items():
        arrival = end[inputs[node][0]] + inputs[node][1] if node in inputs else 0
        chosen = next(
            (
                other
                for other in others
                if (other == node and arrival == start[node])
                or (other not in (node, -1) and place[other] < place[node] and end[other] == start[node])
            ),
            -1,
        )
        for other in others:
            v.tight[node, other].setInitialValue(int(other == chosen))
