"""Compiled proposals of another granularity: fuse, unfuse, split, merge and shift."""

from __future__ import annotations

from .arrays import Now, Ops, Work
from .bare import inner
from .chance import Words, below
from .pieces import FUSE, MERGE, NONE, SHIFT, SPLIT, UNFUSE, cut, save, turn_fused, turn_split, whole_of

# Compiled with arrays.py f068824a
# Compiled with bare.py 8636d929
# Compiled with chance.py 55b96f21
# Compiled with pieces.py 67154a81


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
