"""What the beam search knows of a problem: one micro-batch's way through all ranks, and the memory-time it takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..bounds.few_ranks import LATEST, Kept, applies
from ..bounds.paths import paths
from ..core.instance import Instance
from ..core.schedule import Array

Links = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class Way(NamedTuple):
    """The F's and backwards of one micro-batch, in the order in which it passes them, as columns; and the ranks.

    Attributes
    ----------
    microbatches
        Micro-batches.
    head
        Earliest start of the first op.
    rank, dur, lag, same, forward, bytes, rest
        Of each op: its rank, ticks, message time before it, whether it follows on the same rank at once, whether it is
        an F, bytes that it takes (F) or frees, and the time from its start to the end of the schedule; shape (n,).
    last_forward, first_backward, cool
        Of each rank: the last op that is an F, the last op, and the cool-down that comes on top of the rank's work
        while F's, or only backwards, are left; see `bounds.ramps`.
    weight_dur, weight_bytes, room
        Of each rank: ticks of a weight gradient, bytes that it frees, and bytes that the rank may hold.
    hold
        Bytes held on each rank by a micro-batch that waits for op i, shape (n, p).
    area
        Least bytes times ticks that it holds there from the start of op i to its end, shape (n + 1, p).
    labels
        Numbers of a label; see `kernel`.
    """

    microbatches: int
    head: int
    rank: Links
    dur: Links
    lag: Links
    same: Links
    forward: Links
    bytes: Array
    rest: Links
    last_forward: Links
    first_backward: Links
    cool: Array
    weight_dur: Array
    weight_bytes: Array
    room: Array
    hold: Floats
    area: Floats
    labels: int


def way_of(instance: Instance) -> Way | None:
    """The way, or None where the search does not apply.

    It needs one direction, alike micro-batches that are not sliced, whole weight gradients that are the same for all
    stages of a rank, fused backwards that gain nothing, I's that free memory, and moments that fit a label's numbers.
    """
    everywhere = len(set(instance.rank[:, 0].tolist())) == instance.ranks
    split = bool((instance.backward >= instance.backward_input + instance.backward_weight).all())
    whole = instance.unit_ticks.shape[2] == 2
    everywhere = everywhere and instance.problem.slices is None
    if not (everywhere and whole and applies(instance) and split and (instance.retained <= instance.activation).all()):
        return None
    lag = instance.lag.reshape(3, instance.stages, instance.microbatches, 2)
    if 2 * int((instance.forward + instance.backward)[:, 0].sum() + lag[:, :, 0].sum()) > LATEST:
        return None
    kept = Kept(paths(instance), tuple(range(instance.ranks)))
    if len(kept.pool_rank) != instance.ranks:
        return None
    n, ranks = len(kept.rank), instance.ranks
    weight_dur, weight_bytes = kept.pool_dur[kept.only].astype(np.int64), kept.pool_bytes[kept.only]
    forward = (kept.group < 0).astype(np.int32)
    hold, area = np.zeros((n, ranks)), np.zeros((n + 1, ranks))
    held: Floats = np.zeros(ranks)
    taken = instance.activation[:, 0]
    stages = instance.stages
    for i in range(n):
        hold[i] = held
        stage = i if i < stages else 2 * stages - 1 - i
        held[kept.rank[i]] += taken[stage] if forward[i] else -taken[stage]
    for i in reversed(range(n)):
        rank = int(kept.rank[i])
        during, after = hold[i].copy(), hold[i + 1] if i + 1 < n else np.zeros(ranks)
        if forward[i]:
            during[rank] = after[rank]
        area[i] = during * float(kept.dur[i]) + after * float(kept.lag[i + 1] if i + 1 < n else 0) + area[i + 1]
        if not forward[i]:
            area[i, rank] += float(weight_bytes[rank] * weight_dur[rank])
    return Way(
        kept.count, kept.head, kept.rank, kept.dur, kept.lag, kept.same, forward, kept.bytes, kept.rest,
        kept.last_forward, kept.first_backward, kept.cool, weight_dur, weight_bytes, kept.room, hold, area, kept.width,
    )  # fmt: skip
