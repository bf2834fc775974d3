"""Earliest start by order + work that is left + cool-down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.schedule import Array
from .order_heads import OrderHeads, heads_of
from .paths import PASS
from .ramps import Rank


def by_order(ranks: Sequence[Rank], tail: Array) -> int:
    """The least time at which all is done that tails lead to, by earliest starts by order of one direction.

    Parameters
    ----------
    ranks
        All ranks of an instance.
    tail
        Of every node, shape (3, S, K), as in `Rank.until`.
    """
    best = 0
    paths = ranks[0].paths
    for direction in range(paths.instance.problem.placement.directions):
        heads = heads_of(paths, direction)
        if heads is None:
            continue
        for stage, owner in enumerate(heads.counts.owner.tolist()):
            best = max(best, _of_stage(ranks[owner], stage, heads, tail))
    return best


def _of_stage(rank: Rank, stage: int, heads: OrderHeads, tail: Array) -> int:
    """The bound by the F's and backwards of one stage.

    When F number j starts, M - j F's of this stage are left. No more than j backwards are done, here and at the rank's
    stages before; at the stages after no more than j F's. So M - j whole backwards are left at each of these, M - j F's
    at those after, and at those before at least M - j - k F's, k being the window there, as no more than j + k can be
    done. When backward number j starts, M - j whole backwards are left here and before; and M - j - k F's, k being the
    windows, as no more than j + k can be done, and as many of everything after. The rank's other direction is left out.
    The idle cool-down after the rank's last F comes on top if an F is still to come, that after its last backward
    always.
    """
    counts = heads.counts
    number = len(counts.batches)
    left = number - np.arange(number)
    below, above = np.flatnonzero(counts.below[stage]), np.flatnonzero(counts.below[:, stage])
    window = int(counts.window[stage])
    with_forward, without = rank.cool(tail)
    beyond = np.maximum(left - window, 0)
    everything = counts.forward + counts.whole
    on_forward = heads.forward[stage] + counts.forward[stage][left] + counts.whole[stage][left] + with_forward
    on_backward = heads.backward[stage] + counts.whole[stage][left] + counts.forward[stage][beyond]
    for s in below:
        beyond_here = np.maximum(left - int(counts.window[s]), 0)
        rest = counts.whole[s][left] + counts.forward[s][beyond_here]
        on_forward, on_backward = on_forward + rest, on_backward + rest
    for s in above:
        on_forward, on_backward = on_forward + everything[s][left], on_backward + everything[s][beyond]
    on_backward = on_backward + np.where(beyond > 0, with_forward, without)
    ticks = rank.paths.ticks_of_kind[PASS, stage] + tail[PASS, stage]
    last = int(heads.backward[stage, -1]) + int(ticks[rank.paths.direction == counts.direction].min())
    return max(int(on_forward.max()), int(on_backward.max()), last)
