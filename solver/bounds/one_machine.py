"""One rank alone, with the rest of the pipeline as release times and delivery times."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from .paths import PASS, REST, F, Paths


def one_machine(paths: Paths, rank: int) -> int:
    """Head + work + tail: the best makespan if only this rank could run one op at a time.

    Every op of the rank becomes ready after its longest path from the start (its head) and is followed by its longest
    path to the end (its tail). Heads, work and tails are those of `Paths`: lower bounds whatever is fused or split. The
    rank may even interrupt ops. The best preemptive schedule always runs the ready op with the longest tail; its length
    is the maximum, over all sets of ops of the rank, of least head + work + least tail. All of this only relaxes, so no
    schedule is shorter.

    Source: J. R. Jackson's preemptive rule; J. Carlier, The one-machine sequencing problem, EJOR 11 (1982).
    """
    where = paths.instance.rank == rank
    head, ticks, tail = (
        np.concatenate([part[row][where] for row in (F, PASS, REST)]) for part in (paths.head, paths.ticks, paths.tail)
    )
    jobs = sorted(zip(head.tolist(), ticks.tolist(), tail.tolist(), strict=True))
    ready: list[tuple[int, int]] = []
    time = best = 0
    index = 0
    while index < len(jobs) or ready:
        if not ready:
            time = max(time, jobs[index][0])
        while index < len(jobs) and jobs[index][0] <= time:
            heappush(ready, (-jobs[index][2], jobs[index][1]))
            index += 1
        minus_tail, left = heappop(ready)
        until = time + left
        if index < len(jobs) and jobs[index][0] < until:
            heappush(ready, (minus_tail, until - jobs[index][0]))
            time = jobs[index][0]
        else:
            time = until
            best = max(best, time - minus_tail)
    return best
