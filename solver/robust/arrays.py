"""The arrays that the compiled search works on.

After a change here, save `kernel.py` too: numba's cache looks at the kernels' own file only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.schedule import Array


class Ops(NamedTuple):
    """What does not change: n ops, numbered rank after rank in the order of the start, in K scenarios.

    Scenario 0 is the plan, without noise.

    Attributes
    ----------
    offsets
        First place of each rank, shape (p + 1,).
    before
        Ops that each op waits for (-1: none), shape (n, 2).
    ticks, lag
        Duration of each op, shape (n, K), and message times to it, shape (n, 2, K).
    first_after, after, slot
        Ops that wait for op i are after[first_after[i]:first_after[i + 1]]; i stands in that slot of their `before`.
    group
        Ops of one rank and group keep their order, shape (n,).
    take, swell, free
        Bytes; see `op_bytes`. Shape (n,).
    room
        Each rank's limit, shape (p,).
    static
        Bytes of each rank before its first op, shape (p,).
    rank
        Rank of each op, shape (n,).
    weight
        How much each scenario's value counts, shape (K,).
    """

    offsets: Array
    before: Array
    ticks: Array
    lag: Array
    first_after: Array
    after: Array
    slot: Array
    group: Array
    take: Array
    swell: Array
    free: Array
    room: Array
    static: Array
    rank: Array
    weight: Array


class Order(NamedTuple):
    """An order of the ops, and its times.

    Attributes
    ----------
    row, place
        Op at each place, and place of each op, shape (n,).
    line, number
        An order of all ops in which each comes after what it waits for, and each op's number in it, shape (n,).
    held
        Bytes held before the op at each place, shape (n,).
    end, tail
        End of each op; longest way from there to the end of the run, shape (n, K).
    close
        What is added to the end of each rank's last op: 0, or minus the rank's first start for the span, shape (p, K).
    value
        Value of each scenario, shape (K,).
    dirty, late
        Marks, False between moves, shape (n,).
    """

    row: Array
    place: Array
    line: Array
    number: Array
    held: Array
    end: Array
    tail: Array
    close: Array
    value: Array
    dirty: npt.NDArray[np.bool_]
    late: npt.NDArray[np.bool_]
