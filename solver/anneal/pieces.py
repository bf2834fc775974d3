"""Compiled account of what ops are: their prices, the pieces that come and go, and whose they are.

Pieces of one family, as long and as large as each other, are alike: which of them belongs to which backward is decided
after a move. A piece that is taken away may so be another's than that of the backward that is fused; all pieces
between the two are then passed on by one, each to a backward before which its own did not come.
"""

from __future__ import annotations

from typing import Any

from .arrays import Now, Ops, Work
from .bare import bare, inner

# Compiled with arrays.py f068824a
# Compiled with bare.py 8636d929

NONE, FUSE, UNFUSE, SPLIT, MERGE, SHIFT = range(6)
"""Kinds of moves; NONE changes the order only."""

OLD_TICKS, OLD_PEAK, OLD_NET, OLD_LOW, OLD_HIGH, OLD_FAMILY, OP = range(7)
"""Places in a row of `Work.saved`: what an op was, and its number. Row 0 is the op that changes; row 1 one that changes
as well, comes, or goes."""

SAVED = 7
"""Their number."""


@bare
def code(op: int, ops: Ops, now: Now) -> Any:  # pragma: no cover
    """What an op is, as one number: ((q * (U + 1) + low) * (U + 1) + high) * 4 + `Kind`, 0 and 0 but for ranges."""
    pairs, width = len(ops.alike), ops.unit_ticks.shape[1]
    if op < pairs:
        return 4 * width * width * op
    if op < 2 * pairs:
        q = op - pairs
        return 4 * width * width * q + (1 if now.parts[q] > 0 else 3)
    return 4 * (((now.own[op] - pairs) * width + now.low[op]) * width + now.high[op]) + 2


@bare
def keep(ops: Ops, now: Now) -> None:  # pragma: no cover
    """Note the schedule as the best."""
    for r in range(len(ops.static)):
        end = ops.first[r] + now.used[r]
        for place in range(ops.first[r], end):
            now.best[place] = code(now.order[place], ops, now)
        now.best[end : ops.first[r + 1]] = -1


@inner
def family_of(q: int, low: int, high: int, ops: Ops) -> Any:  # pragma: no cover
    """Family of a piece."""
    width = ops.unit_ticks.shape[1]
    return 2 * len(ops.alike) + (ops.alike[q] * width + low) * width + high


@inner
def whole_of(back: int, ops: Ops) -> Any:  # pragma: no cover
    """Family of the whole weight gradient of a backward."""
    q = back - len(ops.alike)
    return family_of(q, 0, ops.units[q], ops)


@inner
def cut(piece: int, q: int, low: int, high: int, ops: Ops, now: Now) -> None:  # pragma: no cover
    """Let a piece be units low..high-1 of a backward."""
    ticks = ops.unit_ticks[q, high] - ops.unit_ticks[q, low]
    if low > 0:
        ticks += ops.overhead[q]
    now.ticks[piece] = max(ticks, 1)
    now.peak[piece] = 0
    now.net[piece] = ops.unit_bytes[q, low] - ops.unit_bytes[q, high]
    now.low[piece], now.high[piece] = low, high
    now.family[piece] = family_of(q, low, high, ops)


@inner
def turn_fused(back: int, ops: Ops, now: Now) -> None:  # pragma: no cover
    """Let a backward be a B."""
    q = back - len(ops.alike)
    now.ticks[back], now.peak[back], now.net[back] = ops.fused_ticks[q], 0, -ops.activation[q]


@inner
def turn_split(back: int, ops: Ops, now: Now) -> None:  # pragma: no cover
    """Let a backward be an I."""
    q = back - len(ops.alike)
    now.ticks[back], now.peak[back], now.net[back] = ops.split_ticks[q], ops.split_peak[q], ops.split_net[q]


@inner
def save(row: int, op: int, now: Now, work: Work) -> None:  # pragma: no cover
    """Note what an op is, for `restore`."""
    work.saved[row, OLD_TICKS], work.saved[row, OLD_PEAK], work.saved[row, OLD_NET] = (
        now.ticks[op], now.peak[op], now.net[op]
    )  # fmt: skip
    work.saved[row, OLD_LOW], work.saved[row, OLD_HIGH] = now.low[op], now.high[op]
    work.saved[row, OLD_FAMILY], work.saved[row, OP] = now.family[op], op


@inner
def restore(now: Now, work: Work) -> None:  # pragma: no cover
    """Let the ops of a move be again what they were."""
    for row in range(2):
        op = work.saved[row, OP]
        now.ticks[op], now.peak[op], now.net[op] = (
            work.saved[row, OLD_TICKS], work.saved[row, OLD_PEAK], work.saved[row, OLD_NET]
        )  # fmt: skip
        now.low[op], now.high[op] = work.saved[row, OLD_LOW], work.saved[row, OLD_HIGH]
        now.family[op] = work.saved[row, OLD_FAMILY]


@inner
def settle(kind: int, after: int, ops: Ops, now: Now, work: Work) -> None:  # pragma: no cover
    """What a move that is taken leaves behind: pieces that come and go, and whose they are.

    Parameters
    ----------
    kind
        Of the move.
    after
        First slot after its window.
    """
    pairs = len(ops.alike)
    op, other = work.saved[0, OP], work.saved[1, OP]
    r = ops.rank[op]
    if kind == FUSE:
        now.parts[op - pairs] = 0
        owner, place = now.own[other], after
        while owner != op:
            piece = now.order[place]
            place += 1
            if now.family[piece] == now.family[other]:
                owner, now.own[piece] = now.own[piece], owner
    elif kind == UNFUSE:
        now.parts[op - pairs] = 1
    elif kind != SHIFT:
        now.parts[now.own[op] - pairs] += 1 if kind == SPLIT else -1

    if kind in (FUSE, MERGE):
        now.pool[ops.pool_first[r] - ops.pool_first[0] + now.pooled[r]] = other
        now.pooled[r] += 1
        last = now.live[now.used[-1] - 1]
        now.live[now.place[other]] = last
        now.place[last] = now.place[other]
        now.used[-1] -= 1
    elif kind in (UNFUSE, SPLIT):
        now.pooled[r] -= 1
        now.live[now.used[-1]] = other
        now.place[other] = now.used[-1]
        now.used[-1] += 1
    if kind in (SPLIT, MERGE, SHIFT):
        hand_on(op, ops, now)
    if kind in (SPLIT, UNFUSE, SHIFT):
        hand_on(other, ops, now)


@inner
def hand_on(piece: int, ops: Ops, now: Now) -> None:  # pragma: no cover
    """Pieces of one family are to follow each other as their backwards do: exchange whose a new one is."""
    r, family, at = ops.rank[piece], now.family[piece], now.slot[piece]
    mine = piece
    place = at - 1
    while place > now.slot[now.own[mine]]:
        other = now.order[place]
        if now.family[other] == family:
            if now.slot[now.own[other]] < now.slot[now.own[mine]]:
                break
            now.own[mine], now.own[other] = now.own[other], now.own[mine]
            mine = other
        place -= 1
    mine = piece
    for place in range(at + 1, ops.first[r] + now.used[r]):
        other = now.order[place]
        if now.family[other] == family:
            if now.slot[now.own[other]] > now.slot[now.own[mine]]:
                break
            now.own[mine], now.own[other] = now.own[other], now.own[mine]
            mine = other
