"""From ops to PyTorch's full table: upkeep of the stages, and messages.

The rules are those of `torch.distributed.pipelining.schedules` 2.13 (`_add_unshard_reshard`, `_add_reduce_grad`,
`_add_send_recv`), so that a table exported with messages runs as PyTorch would have run the ops alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..core.ops import Kind, Op
from ..core.precedence import ROW, predecessors
from ..core.schedule import Schedule
from .actions import Action, Upkeep
from .messages import around

GATHERED = 3
"""Stages whose weights a rank holds gathered at a time, where they are sharded: those of its next ops."""


def lower(schedule: Schedule) -> tuple[tuple[Action, ...], ...]:
    """Put upkeep and messages around the ops of a valid schedule.

    Ranks take turns, and do one action a turn. A message enters both rows at the moment when it is made, so the moments
    of the turns are an order in which all messages can end, each while both ranks are at it: no valid order of ops is
    without one. `check_messages` proves the same of any table.

    Parameters
    ----------
    schedule
        Valid, one direction, every W whole.

    Returns
    -------
    tuple of tuple of Action
        For each rank, its actions in order.

    Examples
    --------
    >>> from adaptpipe.solver import place
    >>> schedule = Schedule.parse(place("linear", 2), [1], [["0F0", "0B0"], ["1F0", "1B0"]])
    >>> for row in lower(schedule):
    ...     print(*row)
    0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD
    1UNSHARD 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD 1RESHARD
    """
    placement, stages = schedule.placement, schedule.placement.stage_count
    todo = [upkeep(row) for row in schedule.ops]
    rows: list[list[Action]] = [[] for _ in todo]
    here: list[set[tuple[int, int, int]]] = [set() for _ in todo]  # (row, stage, micro-batch) of the inputs at hand
    at = [0] * len(todo)
    while any(at[rank] < len(row) for rank, row in enumerate(todo)):
        moved = False
        for rank, row in enumerate(todo):
            if at[rank] == len(row):
                continue
            action = row[at[rank]]
            if isinstance(action, Op) and not all(
                (kind, stage, action.microbatch) in here[rank] for kind, stage in predecessors(action, stages)
            ):
                continue
            at[rank], moved = at[rank] + 1, True
            rows[rank].append(action)
            if isinstance(action, Op):
                made = (ROW[action.kind], action.stage, action.microbatch)
                here[rank].add(made)
                send = around(action, placement)[1]
                if send is not None:
                    other = placement.stages[0][send.other_stage]
                    rows[rank].append(send)
                    rows[other].append(send.other_end)
                    here[other].add(made)
        assert moved, "a valid schedule ends"
    return tuple(map(tuple, rows))


def upkeep(ops: Sequence[Op]) -> list[Action]:
    """A rank's ops, with the upkeep of its stages.

    A stage's weights are gathered before they are needed, at most three stages' at a time, and dropped when the next
    ops need others. Its gradients are finished, that is reduced over data-parallel ranks and divided, after the last op
    that adds to them.

    Examples
    --------
    >>> print(*upkeep([Op(0, Kind.F, 0), Op(0, Kind.I, 0), Op(0, Kind.W, 0)]))
    0UNSHARD 0F0 0I0 0W0 0REDUCE_GRAD 0RESHARD
    """
    left = Counter(op.stage for op in ops if op.kind in (Kind.W, Kind.B))
    soon: list[list[int]] = [[]]  # for each op, from the last to the first: the stages of it and what follows, in order
    for op in reversed(ops):
        soon.append([op.stage, *(stage for stage in soon[-1] if stage != op.stage)])
    row: list[Action] = []
    gathered: list[int] = []
    for op, stages in zip(ops, reversed(soon), strict=False):
        wanted = stages[:GATHERED]
        row += [Upkeep(stage, "RESHARD") for stage in gathered if stage not in wanted]
        row += [Upkeep(stage, "UNSHARD") for stage in wanted if stage not in gathered]
        gathered = sorted(wanted)
        row.append(op)
        if op.kind in (Kind.W, Kind.B):
            left[op.stage] -= 1
            if not left[op.stage]:
                row.append(Upkeep(op.stage, "REDUCE_GRAD"))
    return row + [Upkeep(stage, "RESHARD") for stage in gathered]
