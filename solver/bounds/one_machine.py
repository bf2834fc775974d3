"""One rank alone, with the rest of the pipeline as release times and delivery times."""

from __future__ import annotations

import numpy as np

from ..core.schedule import Array
from .paths import NEVER


def one_machine(head: Array, ticks: Array, tail: Array, count: Array) -> int:
    """Head + work + tail: the best makespan if only one rank could run one op at a time.

    Every op of the rank becomes ready after its longest path from the start (its head) and is followed by its longest
    path to the end (its tail). For any set of the rank's ops, nothing of it is done before its least head, the rank
    then works on it for the sum of its times, and after the last of it at least its least tail passes. So the makespan
    is at least the maximum, over all sets of ops, of least head + work + least tail. The sets that matter are those of
    all ops with a head of at least h and a tail of at least q. That maximum is the length of the best schedule of the
    rank alone where ops may be interrupted.

    Parameters
    ----------
    head, ticks, tail, count
        Of each kind of op, and how many there are of it; shape (n,). A tail of `NEVER` is that of an op which nothing
        waits for; it is left out.

    Source: J. R. Jackson's preemptive rule; J. Carlier, The one-machine sequencing problem, EJOR 11 (1982).

    Examples
    --------
    >>> one_machine(np.array([0, 4]), np.array([5, 2]), np.array([1, 3]), np.array([1, 2]))
    11
    """
    kept = tail > NEVER // 2
    if not kept.any():
        return 0
    heads, row = np.unique(head[kept], return_inverse=True)
    tails, column = np.unique(tail[kept], return_inverse=True)
    work = np.zeros((len(heads), len(tails)), dtype=np.int64)
    np.add.at(work, (row.reshape(-1), column.reshape(-1)), (ticks * count)[kept])
    there = np.zeros(work.shape, dtype=np.int64)
    np.add.at(there, (row.reshape(-1), column.reshape(-1)), 1)
    for table in (work, there):
        for axis in range(2):
            table[:] = np.flip(np.cumsum(np.flip(table, axis), axis), axis)
    # A pair of thresholds that no op passes says nothing.
    return int(np.where(there > 0, heads[:, None] + work + tails[None, :], 0).max())
