"""Compiled proposals of another order: what a move does to the slots of a rank."""

from __future__ import annotations

from ..core.schedule import Array
from .bare import inner
from .chance import Words, below

# Compiled with bare.py 8636d929
# Compiled with chance.py 55b96f21

BLOCK = 4
"""Ops that move together at most."""


@inner
def reorder(
    op: int,
    start: int,
    stop: int,
    order: Array,
    slot: Array,
    family: Array,
    old: Array,
    window: Array,
    random: Words,
    reach: int,
) -> tuple[int, int]:  # pragma: no cover
    """An op or a few go a few places earlier or later, or two ops change places.

    `work.old` and `work.window` are the ops before and after it.

    Parameters
    ----------
    op
        Is among those that move.
    start, stop
        Slots of its rank that may be touched.
    reach
        Places that an op moves at most, as a rule.

    Returns
    -------
    tuple of int
        The first slot, and the number of slots; 0 when there is no such move.
    """
    far = 1 + below(random, reach)
    pick = below(random, 16)
    if pick == 0:
        far = 1 + below(random, 4 * reach)
    elif pick < 6:
        far = 1
    exchange = far > 1 and below(random, 4) == 0
    block = 1 if exchange or below(random, 4) > 0 else 1 + below(random, BLOCK)
    low = slot[op] - below(random, block)
    back = below(random, 2) == 0
    if back:
        low -= far
    size = block + far
    if low < start or low + size > stop:
        return low, 0

    # The ops in their new order: two of them change places, or a block and the ops before or after it do. Ops of one
    # family do not pass each other.
    turn = far if back else block
    for i in range(size):
        old[i] = order[low + i]
    if exchange:
        for i in range(1, size):
            if family[old[i]] == family[old[0]] or family[old[i - 1]] == family[old[far]]:
                return low, 0
            window[i] = old[i]
        window[0], window[far] = old[far], old[0]
        return low, size
    for i in range(turn):
        for k in range(turn, size):
            if family[old[i]] == family[old[k]]:
                return low, 0
    for i in range(size):
        window[i] = old[(i + turn) % size]
    return low, size
