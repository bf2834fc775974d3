"""Earliest starts of the n-th F and the n-th backward of every stage under memory limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from ..core.instance import UNLIMITED
from ..core.schedule import Array
from .counts import FAR, Counts
from .paths import PASS, F, Paths

# Compiled with counts.py 9bfd8e6c


@dataclass(frozen=True, slots=True)
class OrderHeads:
    """Earliest starts by order, of the micro-batches of a direction.

    Parameters
    ----------
    counts
        Of the direction.
    forward, backward
        Earliest start of the n-th F and of the n-th backward that a stage runs, shape (S, M).
    """

    counts: Counts
    forward: Array
    backward: Array

    @property
    def window(self) -> Array:
        """For each stage, how many F's may be ahead of the backwards, at most M; shape (S,)."""
        return self.counts.window


def order_heads(paths: Paths) -> OrderHeads | None:
    """Earliest starts by order where all micro-batches are alike, so that the n-th may be taken for number n.

    None where they are not, where there is no limit (then the other bounds do), or where some stage cannot run even one
    micro-batch.
    """
    return heads_of(paths, 0) if len(paths.count) == 1 else None


def heads_of(paths: Paths, direction: int) -> OrderHeads | None:
    """Earliest starts by order, of one direction.

    Only counts matter: the n-th F of a stage needs n F's of the stage before, the n-th backward needs n backwards of
    the next stage and n own F's. What n ops take, and n micro-batches hold, is at least what the n cheapest do. "Done
    at least" and "at most" below are counts of micro-batches at one stage s; t stands for the other stages on its rank.

    *F number j* (from 0) needs memory: with b backwards done, b <= j, the rank holds, for j + 1 - b micro-batches, what
    F took here and at t < s; for b others it holds what backwards retain here and at t > s, and what F took at t < s,
    less what was freed since. What the limit asks to be freed takes time. Some b was the true one; the least time over
    all b is a bound. That time counts from the rank's first start: j F's here and b backwards; j + 1 F's at t < s; b
    F's and backwards at t > s; and the freeing. It also counts from the start of backward number i < b: at most i + k
    micro-batches had begun here then, k being the window, and at most i had ended; what is more is still to come.
    It also waits for ops of other stages that must come first, as `Counts.turns` says.

    *Backward number j* comes after F number j, whose freeing is done, and likewise counts from the rank's first start
    and from the start of backward i < j; it needs j + 1 F's here and at t < s, and j + 1 of everything at t > s.

    A fused backward does the work of I and W: W counts as what it adds to I at least.
    """
    limit = paths.instance.limit
    counts = Counts(paths, direction)
    if bool((limit >= UNLIMITED).all()) or len(counts.batches) == 0 or bool((counts.window < 1).any()):
        return None
    stages, number = len(counts.owner), len(counts.batches)
    first = np.array([int(np.flatnonzero(counts.owner == rank)[0]) for rank in counts.owner], dtype=np.int64)
    # From F of the stage before, and from the backward of the next: their slots in `precedence.RULES`.
    lag = paths.lag[:, :, counts.batches].min(axis=2)
    hop = np.stack([paths.ticks[row][:, counts.batches].min(axis=1) for row in (F, PASS)])
    forward = np.zeros((stages, number), dtype=np.int64)
    backward = np.zeros_like(forward)
    rate, most, least = counts.freeing
    _fill(
        counts.forward,
        counts.passed,
        counts.lower,
        counts.upper,
        counts.ahead,
        counts.behind,
        counts.most_behind,
        counts.freed_before,
        counts.room,
        counts.window,
        first,
        hop,
        np.stack([lag[0, :, 0], lag[1, :, 1]]),
        # A little less, for the rounding of floating point: a lower bound must not be above.
        np.where(most > 0, rate, 0) * (1 - 1e-12),
        np.maximum(most, 1),
        np.where(most > 0, least, 0),
        *counts.turns,
        forward,
        backward,
    )
    return OrderHeads(counts, forward, backward)


@njit(cache=True)
def _free(short: int, rate: float, most: int, least: int) -> int:  # pragma: no cover
    """Least ticks to free so many bytes."""
    if short <= 0:
        return 0
    return max(int(np.ceil(short * rate)), -(-short // most) * least)


@njit(cache=True)
def _since(
    s: int,
    starts: Array,
    back: int,
    here: int,
    before: int,
    after: int,
    short: int,
    enough: int,
    forward: Array,
    passed: Array,
    lower: Array,
    upper: Array,
    freed: Array,
    window: int,
    wide: int,
    rate: float,
    most: int,
    least: int,
) -> int:  # pragma: no cover
    """Earliest moment by which `back` backwards and `here` F's are done, `before` F's at the rank's stages before,
    `after` F's and backwards at those after, and `short` bytes freed: from the starts of earlier backwards. Stops
    where it has come to `enough`."""
    at = 0
    for i in range(back - 1, max(0, back - 2 * window - 16) - 1, -1):
        more = starts[i] + passed[s, back - i] + forward[s, max(0, here - i - window)]
        more += lower[s, max(0, before - i - wide)] + upper[s, max(0, after - i - window)]
        if short > 0:
            more += _free(short - freed[s, i], rate, most, least)
        at = max(at, more)
        if at >= enough:
            break
    return at


@njit(cache=True)
def _fill(
    forward: Array,
    passed: Array,
    lower: Array,
    upper: Array,
    ahead: Array,
    behind: Array,
    most_behind: Array,
    freed: Array,
    room: Array,
    window: Array,
    first: Array,
    hop: Array,
    lag: Array,
    rate: npt.NDArray[np.float64],
    most: Array,
    least: Array,
    later: Array,
    in_front: Array,
    unfinished: Array,
    heads: Array,
    backs: Array,
) -> None:  # pragma: no cover
    """Fill the tables, shape (S, M), micro-batch after micro-batch: down the stages and up again."""
    stages, count = heads.shape
    forced = np.zeros(stages, np.int64)
    # When the backwards of stages before have ended that must have, for each later stage on the rank.
    waits = np.zeros(stages, np.int64)
    for j in range(count):
        for s in range(stages):
            at = waits[s]
            if s > 0:
                at = max(at, heads[s - 1, j] + hop[0, s - 1] + lag[0, s])
            if j > 0:
                at = max(at, heads[s, j - 1] + hop[0, s])
            # Where there is none yet, this F is the rank's first op.
            begin = heads[first[s], 0] if s != first[s] or j > 0 else at
            wide = window[first[s]]
            base = begin + forward[s, j] + lower[s, j + 1]
            at = max(at, base)
            for index in range(later.shape[1]):
                t = later[s, index]
                if t >= 0:
                    i = j - in_front[s, index] - 1
                    if i >= 0:
                        at = max(at, heads[t, i] + hop[0, t])
                        waits[t] = max(waits[t], backs[s, i] + hop[1, s])
                    if j - unfinished[s, index] >= 0:
                        at = max(at, backs[t, j - unfinished[s, index]] + hop[1, t])
            forced[s] = 0
            if ahead[s, j + 1] > room[s]:
                best, fewest = FAR, FAR
                for b in range(max(0, j + 1 - window[s]), j + 1):
                    own = base + passed[s, b] + upper[s, b]
                    if own >= best and fewest == 0:
                        break
                    short = ahead[s, j + 1 - b] + behind[s, b] - room[s]
                    if short > most_behind[s, b]:
                        continue
                    fewest = min(fewest, max(0, short))
                    own += _free(short, rate[s], most[s], least[s])
                    if own < best:
                        own = max(
                            own,
                            _since(
                                s,
                                backs[s],
                                b,
                                j,
                                j + 1,
                                b,
                                short,
                                best,
                                forward,
                                passed,
                                lower,
                                upper,
                                freed,
                                window[s],
                                wide,
                                rate[s],
                                most[s],
                                least[s],
                            ),
                        )
                        best = min(best, own)
                    if short <= 0:
                        break
                if best < FAR:
                    at, forced[s] = max(at, best), fewest
            heads[s, j] = at
        for s in range(stages - 1, -1, -1):
            at = heads[s, j] + hop[0, s]
            if s + 1 < stages:
                at = max(at, backs[s + 1, j] + hop[1, s + 1] + lag[1, s])
            if j > 0:
                at = max(at, backs[s, j - 1] + hop[1, s])
            begin, wide = heads[first[s], 0], window[first[s]]
            short = max(forced[s], ahead[s, 1] + behind[s, j] - room[s])
            own = begin + forward[s, j + 1] + lower[s, j + 1] + upper[s, j + 1] + passed[s, j]
            at = max(at, own + _free(short, rate[s], most[s], least[s]))
            backs[s, j] = max(
                at,
                _since(
                    s,
                    backs[s],
                    j,
                    j + 1,
                    j + 1,
                    j + 1,
                    short,
                    FAR,
                    forward,
                    passed,
                    lower,
                    upper,
                    freed,
                    window[s],
                    wide,
                    rate[s],
                    most[s],
                    least[s],
                ),
            )
