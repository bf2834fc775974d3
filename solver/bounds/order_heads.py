"""Earliest starts of the n-th F and the n-th backward of every stage under memory limits, where each rank has one
stage and all micro-batches are alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from ..core.instance import UNLIMITED, Instance
from ..core.schedule import Array
from .paths import PASS, REST, F, Paths


@dataclass(frozen=True, slots=True)
class OrderHeads:
    """Earliest starts by order.

    Parameters
    ----------
    forward, backward
        Earliest start of the n-th F and of the n-th backward that a stage runs, shape (S, m).
    window
        For each stage, how many F's may be ahead of the backwards, at most m; shape (S,).
    """

    forward: Array
    backward: Array
    window: Array


def applies(instance: Instance) -> bool:
    """Whether each rank has one stage, one direction, and micro-batches that are alike.

    Also asked: a limit somewhere (otherwise the other bounds do), whole weight gradients, and a fused backward that is
    not faster than I alone.
    """
    return (
        instance.problem.placement.directions == 1
        and instance.stages == instance.ranks
        and len(set(instance.sizes)) == 1
        and instance.unit_ticks.shape[2] == 2
        and bool((instance.backward >= instance.backward_input).all())
        and bool((instance.limit < UNLIMITED).any())
    )


def order_heads(paths: Paths) -> OrderHeads | None:
    """Earliest starts by order; None where `applies` is false or some stage cannot run even one micro-batch.

    Micro-batches are alike, so only counts matter: the n-th F of a stage needs n F's of the stage before, the n-th
    backward needs n backwards of the next stage and n own F's. With k the F's that may be ahead:

    *F number j* (from 0) needs memory: with b backwards and w weight gradients done, w <= b <= j, it holds
    activation x (j + 1) - (activation - retained) b - retained w, within the room. Some b was the true one, and then
    w is at least what that b asks. Until then the stage has run j F's, b backwards and w W's since its first F; and
    since the start of backward number i < b at least b - i backwards, w - i W's and j - i - k F's, because before that
    start at most i W's and i + k F's can have been done. The least time over all b is a bound.

    *Backward number j* comes after F number j, which forced some number w of W's, and likewise after backward i < j by
    j - i backwards, w - i W's and j + 1 - i - k F's.

    A fused backward does the work of I and W in `backward`: W counts as min(W, backward - I).
    """
    instance = paths.instance
    if not applies(instance):
        return None
    count = instance.microbatches
    room = np.array(
        [
            UNLIMITED if limit >= UNLIMITED else limit - static
            for limit, static in zip(instance.limit.tolist(), instance.static.tolist(), strict=True)
        ],
        dtype=np.int64,
    )[instance.rank[:, 0]]
    held, kept = instance.activation[:, 0], instance.retained[:, 0]
    window = np.where(held > 0, np.minimum(np.maximum(room, 0) // np.maximum(held, 1), count), count)
    if (window == 0).any():
        return None
    # From F of the stage before, and from the backward of the next: their slots in `precedence.RULES`.
    lag_there, lag_back = paths.lag[0, :, 0, 0].copy(), paths.lag[1, :, 0, 1].copy()
    forward = np.zeros((instance.stages, count), dtype=np.int64)
    backward = np.zeros_like(forward)
    _fill(
        count,
        room,
        held,
        kept,
        window,
        paths.ticks[F, :, 0].copy(),
        paths.ticks[PASS, :, 0].copy(),
        paths.ticks[REST, :, 0].copy(),
        lag_there,
        lag_back,
        forward,
        backward,
    )
    return OrderHeads(forward, backward, window)


@njit(cache=True)
def _weights_needed(short: int, freed: int, kept: int, b: int) -> int:  # pragma: no cover
    """W's that must be done beside b backwards to have freed `short` bytes; -1: not even all b."""
    rest = short - freed * b
    if rest <= 0:
        return 0
    if kept <= 0:
        return -1
    w = -(-rest // kept)
    return w if w <= b else -1


@njit(cache=True)
def _since(starts: Array, b: int, f: int, w: int, k: int, tf: int, ti: int, tw: int) -> int:  # pragma: no cover
    """Earliest moment with f F's, b backwards and w W's done, from the starts of the backwards before number b."""
    at = 0
    for i in range(max(0, b - 2 * k - 2), b):
        at = max(at, starts[i] + (b - i) * ti + max(0, w - i) * tw + max(0, f - i - k) * tf)
    return at


@njit(cache=True)
def _fill(
    count: int,
    room: Array,
    held: Array,
    kept: Array,
    window: Array,
    tf: Array,
    ti: Array,
    tw: Array,
    there: Array,
    back: Array,
    forward: Array,
    backward: Array,
) -> None:  # pragma: no cover
    """Fill the tables, shape (S, count), micro-batch after micro-batch: down the stages and up again."""
    stages = len(room)
    forced = np.zeros(stages, np.int64)
    for j in range(count):
        for s in range(stages):
            at = 0
            if s > 0:
                at = forward[s - 1, j] + tf[s - 1] + there[s]
            if j > 0:
                at = max(at, forward[s, j - 1] + tf[s])
            short = held[s] * (j + 1) - room[s]
            forced[s] = 0
            if short > 0:
                freed, best, least = held[s] - kept[s], -1, count
                for b in range(1, j + 1):
                    w = _weights_needed(short, freed, kept[s], b)
                    if w < 0:
                        continue
                    least = min(least, w)
                    own = forward[s, 0] + j * tf[s] + b * ti[s] + w * tw[s]
                    own = max(own, _since(backward[s], b, j, w, window[s], tf[s], ti[s], tw[s]))
                    if best < 0 or own < best:
                        best = own
                    if w == 0 and freed >= 0:
                        break
                at, forced[s] = max(at, best), least
            forward[s, j] = at
        for s in range(stages - 1, -1, -1):
            at = forward[s, j] + tf[s]
            if s + 1 < stages:
                at = max(at, backward[s + 1, j] + ti[s + 1] + back[s])
            at = max(at, forward[s, 0] + (j + 1) * tf[s] + j * ti[s] + forced[s] * tw[s])
            at = max(at, _since(backward[s], j, j + 1, forced[s], window[s], tf[s], ti[s], tw[s]))
            backward[s, j] = at
