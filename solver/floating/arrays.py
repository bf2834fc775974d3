"""The arrays that the compiled policy works on.

After a change here, write the new hash into `kernel.py`: numba's cache looks at the kernels' own file only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.schedule import Array


class Pieces(NamedTuple):
    """Fixed ops (F, I, B) and weight units, each rank after rank, and the plan. Times are in parts of a tick.

    Attributes
    ----------
    fixed_at, unit_at
        First fixed op and first unit of each rank, shape (p + 1,).
    before
        Fixed ops that each fixed op waits for (-1: none), shape (f, 2).
    latest
        Latest start of each fixed op that does not lengthen the plan, shape (f,).
    owed
        Units that the plan has run on the rank before each fixed op, shape (f,).
    ready
        End of the rank's units that may run once a fixed op has ended, those of its own I included, shape (f,).
    take, swell, free
        Bytes that each fixed op takes, holds for its own time only, and frees at its end, shape (f,).
    unit_ticks, overhead
        Time of each unit, and what it takes longer when it does not directly follow the unit before it, shape (u,).
    unit_free
        Bytes that each unit frees, shape (u,).
    key
        Of the units that may run, the one with the least key comes first, shape (u,).
    static, room
        Bytes of each rank before its first op, and what it may hold, shape (p,).
    """

    fixed_at: Array
    unit_at: Array
    before: Array
    latest: Array
    owed: Array
    ready: Array
    take: Array
    swell: Array
    free: Array
    unit_ticks: Array
    overhead: Array
    unit_free: Array
    key: Array
    static: Array
    room: Array


class State(NamedTuple):
    """How far the ranks are.

    Attributes
    ----------
    fixed
        Next fixed op of each rank, shape (p,).
    ready
        End of each rank's units that may run, shape (p,).
    head
        Each rank's first unit that has not run, shape (p,).
    ran
        How many units each rank has run, shape (p,).
    last
        Unit that each rank has run last, -1 where the last op was a fixed one, shape (p,).
    held
        Bytes that each rank holds, static included, shape (p,).
    late
        How late each rank has seen a fixed op start, beyond its latest start in the plan, shape (p,).
    done
        Whether each unit has run, shape (u,).
    """

    fixed: Array
    ready: Array
    head: Array
    ran: Array
    last: Array
    held: Array
    late: Array
    done: npt.NDArray[np.bool_]


def beginning(x: Pieces) -> State:
    """The state before the first op."""
    ranks = len(x.static)
    return State(
        fixed=x.fixed_at[:-1].copy(),
        ready=x.unit_at[:-1].copy(),
        head=x.unit_at[:-1].copy(),
        ran=np.zeros(ranks, dtype=np.int64),
        last=np.full(ranks, -1, dtype=np.int64),
        held=x.static.copy(),
        late=np.zeros(ranks, dtype=np.int64),
        done=np.zeros(len(x.key), dtype=np.bool_),
    )
