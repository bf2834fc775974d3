"""What an op waits for: the one place that says so.

Every other part (simulator, checker, graph, bounds, search, lowering) reads these rules, directly or through the arrays
that are made from them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .ops import Kind, Op
from .schedule import Schedule

ROW = {Kind.F: 0, Kind.I: 1, Kind.B: 1, Kind.W: 2}
"""Row of an op's node: an I and a B of the same stage and micro-batch stand for the same node."""

RULES: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0, -1),),
    ((0, 0), (1, +1)),
    ((1, 0),),
)
"""For each row, the (row, stage offset) it needs: F the previous stage's F; I or B its own F and the next stage's I or
B; W its own I."""


SLICE_RULES: tuple[int, ...] = (-1, +1, 0)
"""For each row, the slice of the same micro-batch, relative to an op's own, whose op of that row and stage has to come
first in their rank's list; 0: none. A slice's forward attends to the keys and values of the slices before it, and the
gradients of its own come from the slices after it. All slices of a stage are on one rank, so no message is awaited."""

_ROWS = np.array([ROW[kind] for kind in sorted(Kind)], dtype=np.int64)


def node(kind: Kind, stage: int, microbatch: int, stages: int, microbatches: int) -> int:
    """Number of the node of an op: F, then I or B, then W; in each by stage, then micro-batch."""
    return (ROW[kind] * stages + stage) * microbatches + microbatch


def predecessors(op: Op, stages: int) -> tuple[tuple[int, int], ...]:
    """(row, stage) of the nodes an op waits for, of its own micro-batch.

    Examples
    --------
    >>> predecessors(Op(1, Kind.I, 0), stages=4)
    ((0, 1), (1, 2))
    """
    return tuple((row, op.stage + offset) for row, offset in RULES[ROW[op.kind]] if 0 <= op.stage + offset < stages)


def predecessor_nodes(stages: int, microbatches: int) -> npt.NDArray[np.int64]:
    """Nodes that each node waits for, shape (3 * stages * microbatches, 2); -1 where there is none."""
    grid = np.arange(3 * stages * microbatches, dtype=np.int64).reshape(3, stages, microbatches)
    before = np.full((3, stages, microbatches, 2), -1, dtype=np.int64)
    for row, rules in enumerate(RULES):
        for slot, (source, offset) in enumerate(rules):
            low, high = max(0, -offset), stages - max(0, offset)
            before[row, low:high, :, slot] = grid[source, low + offset : high + offset]
    return before.reshape(-1, 2)


def earlier_nodes(stages: int, microbatches: int, slices: int) -> npt.NDArray[np.int64]:
    """For each node the one that `SLICE_RULES` puts earlier on its rank, shape (3 * stages * microbatches,); -1: none.

    Parameters
    ----------
    stages
        S.
    microbatches
        Slices of all micro-batches.
    slices
        Slices of each.

    Examples
    --------
    >>> earlier_nodes(stages=1, microbatches=4, slices=2).reshape(3, 4).tolist()
    [[-1, 0, -1, 2], [5, -1, 7, -1], [-1, -1, -1, -1]]
    """
    nodes = np.arange(3 * stages * microbatches, dtype=np.int64).reshape(3, stages, microbatches)
    step = np.array(SLICE_RULES, dtype=np.int64)[:, None, None]
    place = np.arange(microbatches) % slices + step
    return np.where((step != 0) & (place >= 0) & (place < slices), nodes + step, -1).reshape(-1)


def op_nodes(schedule: Schedule) -> npt.NDArray[np.int64]:
    """Node of every op, shape (n,)."""
    table, stages, microbatches = schedule.table, schedule.placement.stage_count, schedule.microbatches
    return (_ROWS[table.kind] * stages + table.stage) * microbatches + table.microbatch
