"""The messages of a table: complete, and without ranks that wait for each other for ever.

The proof is a run without a clock in which a message ends when both of its ranks have come to it. That is what blocking
sends and receives do, and what one queue of messages for each rank does, as NCCL's; a transport that buffers, or that
posts receives early, waits for less, so what ends here ends there. What a rank does next depends on nothing but its own
row and on the messages that have ended, so one run is like all: if it ends, all do (Kahn, "The semantics of a simple
language for parallel programming", 1974). It also proves that messages from one rank to another are received in the
order in which they are sent, for PyTorch tells them apart by their order alone: where the orders differ, both ranks
wait.
"""

from __future__ import annotations

from ..core.errors import NoAnswerError
from ..core.ops import Kind, Op
from ..core.placement import Placement
from .actions import Action, Transfer, Way
from .table import Cell, Table

Ends = dict[Transfer, Cell]


def has_messages(table: Table) -> bool:
    """Whether a table says what is sent and received, and not only what is computed."""
    return any(isinstance(cell.action, Transfer) for row in table for cell in row)


def check_messages(table: Table, placement: Placement) -> None:
    """Prove that the messages of a table can all be sent and received, and bring what the ops need.

    Raises
    ------
    NoAnswerError
        When ranks would wait for each other (each rank, its message and the rank it waits for are named), when a
        message has one end only, or when it comes too early or too late for its op.
    """
    ends: Ends = {}
    for row in table:
        for cell in row:
            if isinstance(cell.action, Transfer):
                _check_end(cell, cell.action, placement, ends)
                ends[cell.action] = cell
    at = _run(table)
    if any(place < len(row) for place, row in zip(at, table, strict=True)):
        raise NoAnswerError(_stuck(table, at, ends))
    _check_ops(table, placement, ends)


def _check_end(cell: Cell, end: Transfer, placement: Placement, ends: Ends) -> None:
    if end in ends:
        raise NoAnswerError(f"{cell} is there twice, first at column {ends[end].column}")
    row, other = placement.stages[0], end.other_stage
    if not 0 <= other < len(row):
        raise NoAnswerError(f"{cell}: there is no stage {other} to {'send to' if end.sends else 'receive from'}")
    if row[other] == cell.rank:
        raise NoAnswerError(
            f"{cell}: stage {other} is on the same rank, where tensors need no message; delete the cell"
        )


def _run(table: Table) -> list[int]:
    """For each rank, how many of its cells it gets past."""
    at = [0] * len(table)
    waiting: dict[Transfer, int] = {}  # the ends that ranks have come to, and those ranks
    moving = list(range(len(table)))
    while moving:
        rank = moving.pop()
        while at[rank] < len(table[rank]):
            action = table[rank][at[rank]].action
            if isinstance(action, Transfer):
                other = waiting.pop(action.other_end, None)
                if other is None:
                    waiting[action] = rank
                    break
                at[other] += 1
                moving.append(other)
            at[rank] += 1
    return at


def _stuck(table: Table, at: list[int], ends: Ends) -> str:
    """What ranks that do not end are waiting for: a circle if there is one, else a message without its other end."""
    heads = {rank: row[at[rank]] for rank, row in enumerate(table) if at[rank] < len(row)}
    lost = ""
    for start in heads:
        trail: list[int] = []
        rank = start
        while rank not in trail:
            trail.append(rank)
            action = heads[rank].action
            assert isinstance(action, Transfer), "ranks wait for nothing but messages"
            other = ends.get(action.other_end)
            if other is None:
                lost = lost or f"{heads[rank]} has no other end: {action.other_end} is nowhere"
                break
            rank = other.rank
        else:
            return _circle(trail[trail.index(rank) :], heads, ends)
    assert lost, "who waits for a message that has both ends waits for a rank that waits"
    return lost


def _circle(ranks: list[int], heads: dict[int, Cell], ends: Ends) -> str:
    parts = []
    for rank in ranks:
        action = heads[rank].action
        assert isinstance(action, Transfer)
        other = ends[action.other_end]
        parts.append(f"{heads[rank]} waits for rank {other.rank} to come to {other.action} (column {other.column})")
    return f"deadlock where sends block: {'; '.join(parts)}"


def _check_ops(table: Table, placement: Placement, ends: Ends) -> None:
    """Every message after the op that makes it and before the one that needs it, and none missing."""
    for row in table:
        seen = set[Action]()
        for cell in row:
            action = cell.action
            if isinstance(action, Transfer) and action.sends and not seen.intersection(_makers(action)):
                raise NoAnswerError(f"{cell}: is sent before it is there; {_makers(action)[0]} must come before")
            if isinstance(action, Op) and action.kind is not Kind.W:
                receive, send = around(action, placement)
                if receive is not None and receive not in seen:
                    raise NoAnswerError(f"{cell}: {receive} must come before, and does not")
                if send is not None and send not in ends:
                    raise NoAnswerError(f"{cell}: what it makes is not sent; {send} is nowhere")
            seen.add(action)


def _makers(send: Transfer) -> tuple[Op, ...]:
    kinds = (Kind.F,) if send.forward else (Kind.B, Kind.I)
    return tuple(Op(send.stage, kind, send.microbatch) for kind in kinds)


def around(op: Op, placement: Placement) -> tuple[Transfer | None, Transfer | None]:
    """What is received before an op and sent after it; None where the other stage is on the same rank, or is none.

    Examples
    --------
    >>> from adaptpipe.solver import place
    >>> print(*around(Op(2, Kind.F, 0), place("v", 2, 2)))
    None 2SEND_F0
    """
    if op.kind is Kind.W:
        return None, None
    ways: tuple[Way, Way] = ("RECV_F", "SEND_F") if op.kind is Kind.F else ("RECV_B", "SEND_B")
    receive, send = (Transfer(op.stage, way, op.microbatch) for way in ways)
    return (receive if _crosses(receive, placement) else None), (send if _crosses(send, placement) else None)


def _crosses(end: Transfer, placement: Placement) -> bool:
    row = placement.stages[0]
    return 0 <= end.other_stage < len(row) and row[end.other_stage] != row[end.stage]
