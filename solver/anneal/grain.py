"""Compiled proposals of another granularity: fuse, unfuse, split, merge and shift, and what they leave behind.

Pieces of one family, as long and as large as each other, are alike: which of them belongs to which backward is decided
after the move. A piece that is taken away may so be another's than that of the backward that is fused; all pieces
between the two are then passed on by one, each to a backward before which its own did not come.
"""

from __future__ import annotations

from typing import Any

from .arrays import Now, Ops, Work
from .bare import bare, inner
from .chance import Words, below

# Compiled with bare.py 221046b1
# Compiled with chance.py f17f7c7d

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
def regrain(
    op: int,
    start: int,
    stop: int,
    fusing: bool,
    cutting: bool,
    ops: Ops,
    now: Now,
    work: Work,
    random: Words,
    reach: int,
) -> tuple[int, int, int, int]:  # pragma: no cover
    """Change what an op is, if there is a way: backwards are fused and unfused, pieces split, merged, or their border
    shifted, or fused with a backward before them.

    What the ops are is changed at once; `restore` takes it back.

    Parameters
    ----------
    op
        A backward or a piece.
    start, stop
        Slots of its rank in use.
    fusing, cutting
        Whether there may be fused backwards, and parts of weight gradients.
    reach
        Places that a piece comes to lie away from what it is split off, as a rule.

    Returns
    -------
    tuple of int
        Kind of the move (`NONE`: there is no way); first slot; number of slots before and after it.
    """
    pairs = len(ops.alike)
    if op < 2 * pairs:
        if not fusing:
            return NONE, 0, 0, 0
        if now.parts[op - pairs] == 0:
            return unfuse(op, stop, ops, now, work, random, reach)
        return fuse(op, stop, ops, now, work, random, reach)
    cutting = cutting and ops.units[now.own[op] - pairs] > 1
    if fusing and (not cutting or below(random, 2) == 0):
        # The last backward before the piece that could have it.
        at = now.slot[op]
        for place in range(at - 1, max(start, at - 4 * reach) - 1, -1):
            before = now.order[place]
            if before >= 2 * pairs:
                if now.family[before] == now.family[op]:
                    break
            elif before >= pairs and now.parts[before - pairs] == 1 and whole_of(before, ops) == now.family[op]:
                return fuse(before, stop, ops, now, work, random, reach)
        return NONE, 0, 0, 0
    if not cutting:
        return NONE, 0, 0, 0
    if now.parts[now.own[op] - pairs] == 1 or below(random, 2) == 0:
        return split(op, start, stop, ops, now, work, random, reach)
    return join(op, start, stop, ops, now, work, random, reach)


@inner
def fuse(
    back: int, stop: int, ops: Ops, now: Now, work: Work, random: Words, reach: int
) -> tuple[int, int, int, int]:  # pragma: no cover
    """I becomes B, and the next whole W of its family goes; B lies where I was, or nearer to where W was."""
    pairs = len(ops.alike)
    q, at = back - pairs, now.slot[back]
    if now.parts[q] != 1:
        return NONE, 0, 0, 0
    whole, gone = whole_of(back, ops), -1
    for place in range(at + 1, min(stop, at + 4 * reach)):
        if now.family[now.order[place]] == whole:
            gone = place
            break
    if gone < 0:
        return NONE, 0, 0, 0
    was = gone - at + 1
    lies = 0 if was == 2 or below(random, 2) == 0 else below(random, was - 1)
    for i in range(was):
        work.old[i] = now.order[at + i]
    for i in range(lies):
        work.window[i] = work.old[i + 1]
        if now.family[work.old[i + 1]] == now.family[back]:
            return NONE, 0, 0, 0
    work.window[lies] = back
    for i in range(lies + 1, was - 1):
        work.window[i] = work.old[i]
    save(0, back, now, work)
    save(1, now.order[gone], now, work)
    turn_fused(back, ops, now)
    return FUSE, at, was, was - 1


@inner
def unfuse(
    back: int, stop: int, ops: Ops, now: Now, work: Work, random: Words, reach: int
) -> tuple[int, int, int, int]:  # pragma: no cover
    """B becomes I, and a whole W comes, some places after it."""
    q, at, r = back - len(ops.alike), now.slot[back], ops.rank[back]
    far = below(random, 4 * reach) if below(random, 4) == 0 else below(random, reach)
    if now.pooled[r] == 0 or at + 1 + far > stop:
        return NONE, 0, 0, 0
    piece = now.pool[ops.pool_first[r] - ops.pool_first[0] + now.pooled[r] - 1]
    for i in range(far + 1):
        work.old[i] = work.window[i] = now.order[at + i]
    work.window[far + 1] = piece
    save(0, back, now, work)
    save(1, piece, now, work)
    turn_split(back, ops, now)
    now.own[piece] = back
    cut(piece, q, 0, ops.units[q], ops, now)
    return UNFUSE, at, far + 1, far + 2


@inner
def split(
    piece: int, start: int, stop: int, ops: Ops, now: Now, work: Work, random: Words, reach: int
) -> tuple[int, int, int, int]:  # pragma: no cover
    """A piece of several units becomes two, some places apart."""
    low, high, r = now.low[piece], now.high[piece], ops.rank[piece]
    if high - low < 2 or now.pooled[r] == 0:
        return NONE, 0, 0, 0
    far = below(random, 4 * reach) if below(random, 4) == 0 else below(random, reach)
    later = below(random, 2) == 0
    at = now.slot[piece] if later else now.slot[piece] - far
    if at < start or at + far + 1 > stop:
        return NONE, 0, 0, 0
    border = low + 1 + below(random, high - low - 1)
    other = now.pool[ops.pool_first[r] - ops.pool_first[0] + now.pooled[r] - 1]
    for i in range(far + 1):
        work.old[i] = now.order[at + i]
        work.window[i if later else i + 1] = work.old[i]
    work.window[far + 1 if later else 0] = other
    save(0, piece, now, work)
    save(1, other, now, work)
    q = now.own[piece] - len(ops.alike)
    now.own[other] = now.own[piece]
    if below(random, 2) == 0:
        cut(piece, q, low, border, ops, now)
        cut(other, q, border, high, ops, now)
    else:
        cut(piece, q, border, high, ops, now)
        cut(other, q, low, border, ops, now)
    return SPLIT, at, far + 1, far + 2


@inner
def join(
    piece: int, start: int, stop: int, ops: Ops, now: Now, work: Work, random: Words, reach: int
) -> tuple[int, int, int, int]:  # pragma: no cover
    """A piece takes all units of another, whose are next to its own, or one, or gives one."""
    other, at = -1, now.slot[piece]
    for place in range(max(start, at - 4 * reach + 1), min(stop, at + 4 * reach)):
        each = now.order[place]
        if now.own[each] != now.own[piece] or each < 2 * len(ops.alike):
            continue
        beside = now.high[each] == now.low[piece] or now.low[each] == now.high[piece]
        if beside and (other < 0 or below(random, 2) == 0):
            other = each
    if other < 0:
        return NONE, 0, 0, 0
    q = now.own[piece] - len(ops.alike)
    first, last = min(at, now.slot[other]), max(at, now.slot[other])
    was = last - first + 1
    for i in range(was):
        work.old[i] = work.window[i] = now.order[first + i]
    save(0, piece, now, work)
    save(1, other, now, work)
    below_other = now.high[piece] == now.low[other]
    if below(random, 2) == 0:
        border = now.low[other] if below_other else now.low[piece]
        border += 1 if below(random, 2) == 0 else -1
        if border == min(now.low[piece], now.low[other]) or border == max(now.high[piece], now.high[other]):
            return NONE, 0, 0, 0
        if below_other:
            cut(piece, q, now.low[piece], border, ops, now)
            cut(other, q, border, now.high[other], ops, now)
        else:
            cut(piece, q, border, now.high[piece], ops, now)
            cut(other, q, now.low[other], border, ops, now)
        return SHIFT, first, was, was
    # The larger piece lies where either was.
    stays = first if below(random, 2) == 0 else last
    size = 0
    for i in range(was):
        if first + i == stays:
            work.window[size] = piece
            size += 1
        elif 0 < i < was - 1:
            work.window[size] = work.old[i]
            size += 1
    cut(piece, q, min(now.low[piece], now.low[other]), max(now.high[piece], now.high[other]), ops, now)
    return MERGE, first, was, was - 1


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
