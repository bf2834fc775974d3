"""ZB-V as its authors' code makes it: worked out for the mean costs of a stage, within 1F1B's memory."""

from __future__ import annotations

from collections import deque

import numpy as np

from ...core.instance import Instance
from ...core.method import Method
from ...core.ops import Kind, Op
from ...core.problem import Problem
from ...core.schedule import Schedule
from ..rows import Row, assemble, require_family


def costed_zb_v(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """ZB-V (Qi et al., arXiv 2401.10241, section 6) whose order depends on the costs, as in the authors' code.

    The costs are those of a mean stage and micro-batch, and so is the memory: 2p activations of a mean stage on every
    rank. First the ranks run forwards until the first micro-batch is back on rank 0; then, round by round, each rank
    runs a backward and a forward, of its second stage where one has arrived. A W runs before either where it ends
    before what the rank waits for arrives, and where waiting would make the rank idle for longer than any rank has
    been. This is repeated with the idle time of the previous pass allowed, as long as that helps, with and without W's
    before the forwards and before the backwards; the pass with the least idle time counts.

    On the rows of the paper's Table 8 the span's bubble is the printed one to all four digits, which that of `zb_v`,
    whose order does not depend on the costs, is not. Where F = I = W and messages are free, it is 0 where m >= 2p, and
    (p - 1)F where m = p; every rank holds at most 2p activations of one stage where `retained` is at most `activation`.
    Exists for every m. Takes about 3 us for each op and pass, and there are 8 passes or more.

    Raises
    ------
    InputError
        When the placement is not V.

    Notes
    -----
    The algorithm of `megatron/core/pipeline_parallel/zerobubble/scheduler/zbv.py` in
    sail-sg/zero-bubble-pipeline-parallelism.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2, "placement": "v", "stages_per_rank": 2}, "batch":
    ...     {"samples": 4}, "costs": {"forward": 2, "backward_input": 2, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in costed_zb_v(problem).ops]  # doctest: +ELLIPSIS
    ['0F0 0F1 0F2 3F0 3I0 ...', '1F0 2F0 1F1 2F1 ...']
    """
    require_family(problem, "ZB-V-costed", "v", 2)
    used = problem.default_sizes() if sizes is None else sizes
    means = _Means(problem.instance(used))
    best: _Pass | None = None
    for before_backward in (True, False):
        for before_forward in (True, False):
            allowed: list[int] | None = None
            while True:
                tried = _Pass(means, before_forward, before_backward, allowed)
                if allowed is not None and max(tried.idle) >= max(allowed):
                    break
                allowed = tried.idle
                if best is None or max(tried.idle) < max(best.idle):
                    best = tried
    assert best is not None
    rows = best.rows

    def row(rank: int, _: int) -> list[Op]:
        made, stages = Row(), (2 * problem.ranks - 1 - rank, rank)
        for first, kind in rows[rank]:
            made.add(stages[first], kind)
        return made.ops

    return assemble(problem, used, row)


class _Means:
    """Costs and bytes of a mean stage and micro-batch, all times the number of stages and micro-batches.

    Attributes
    ----------
    ticks, bytes
        Of F, I and W, in the order of `Kind`; bytes are those that an op takes.
    room, message
        Bytes that a rank may hold, and ticks of a message.
    """

    def __init__(self, instance: Instance) -> None:
        self.ranks, self.microbatches = instance.ranks, instance.microbatches
        costs = (instance.forward, instance.backward_input, instance.backward_weight)
        self.ticks = tuple(int(cost.sum()) for cost in costs)
        activation, retained = int(instance.activation.sum()), int(instance.retained.sum())
        self.bytes = (activation, retained - activation, -retained)
        self.room = 2 * self.ranks * activation
        sent = instance.lag[instance.lag > 0]
        self.message = round(float(np.mean(sent)) * instance.forward.size) if len(sent) else 0


class _Pass:
    """One pass of the algorithm.

    A rank's two visits, `turn` 0 and 1, come in the order of the data: for F its first stage and then its second, for I
    the second and then the first. On turn 0 data runs from rank 0 to p - 1, on turn 1 back.
    """

    def __init__(self, means: _Means, before_forward: bool, before_backward: bool, allowed: list[int] | None) -> None:
        self.means, self.before_forward, self.before_backward = means, before_forward, before_backward
        ranks = means.ranks
        slack = [0] * ranks if allowed is None else [max(allowed) - idle for idle in allowed]
        self.slack = slack
        self.rows: list[list[tuple[bool, Kind]]] = [[] for _ in range(ranks)]
        self.clock, self.held, self.idle, self.most_idle = [0] * ranks, [0] * ranks, [0] * ranks, 0
        self.ends: list[list[list[list[int]]]] = [[[[] for _ in range(ranks)] for _ in range(2)] for _ in means.ticks]
        self.waiting: list[deque[int]] = [deque() for _ in range(ranks)]
        self._warm_up()
        for _ in range(2 * means.microbatches):
            self._backwards()
            self._forwards()
        for rank in range(ranks):
            while self.waiting[rank]:
                self._weight(rank)

    def _run(self, kind: Kind, turn: int, rank: int) -> None:
        ends = self.ends[kind][turn][rank]
        start = self.clock[rank]
        there = self._arrival(kind, turn, rank)
        if there is not None and there > start:
            if self.rows[rank]:
                self.idle[rank] += there - start
                self.most_idle = max(self.most_idle, self.idle[rank])
            start = there
        self.rows[rank].append(((turn == 0) == (kind is Kind.F), kind))
        self.clock[rank] = start + self.means.ticks[kind]
        self.held[rank] += self.means.bytes[kind]
        ends.append(self.clock[rank])
        if kind is Kind.I:
            self.waiting[rank].append(turn)

    def _weight(self, rank: int) -> None:
        self._run(Kind.W, self.waiting[rank].popleft(), rank)

    def _count(self, kind: Kind, turn: int, rank: int) -> int:
        """How many micro-batches have run."""
        return len(self.ends[kind][turn][rank])

    def _ready(self, kind: Kind, turn: int, rank: int) -> bool:
        """Whether the neighbour that the rank's next op of this sort waits for has run."""
        neighbour = rank - 1 if turn == 0 else rank + 1
        at_end = not 0 <= neighbour < self.means.ranks
        return at_end or self._count(kind, turn, neighbour) > self._count(kind, turn, rank)

    def _arrival(self, kind: Kind, turn: int, rank: int) -> int | None:
        """When its message is there; None where it waits for none."""
        neighbour = rank - 1 if turn == 0 else rank + 1
        if kind is Kind.W or not 0 <= neighbour < self.means.ranks:
            return None
        ends = self.ends[kind][turn]
        return ends[neighbour][len(ends[rank])] + self.means.message

    def _warm_up(self) -> None:
        means = self.means
        ranks, whole = means.ranks, means.microbatches
        for rank in range(ranks):
            self._run(Kind.F, 0, rank)
        for rank in reversed(range(ranks)):
            there = self._arrival(Kind.F, 1, rank)
            while (
                there is not None
                and self.held[rank] + means.bytes[Kind.F] * (2 + 2 * rank) <= means.room
                and self.clock[rank] + means.ticks[Kind.F] <= there
                and self._count(Kind.F, 0, 0) < whole
            ):
                for before in range(rank + 1):
                    self._run(Kind.F, 0, before)
            self._run(Kind.F, 1, rank)
        turn = 0
        for rank in range(1, ranks):
            while (
                sum(self._count(Kind.F, each, rank) - self._count(Kind.F, each, rank - 1) for each in (0, 1)) < 0
                or self._count(Kind.F, 1, rank) <= self._count(Kind.F, 1, rank - 1) < whole
            ):
                for behind in reversed(range(rank, ranks)):
                    if self._count(Kind.F, turn, behind) < whole:
                        self._run(Kind.F, turn, behind)
                turn = 1 - turn

    def _backwards(self) -> None:
        first: list[int] = []
        second: list[int] = []
        for rank in range(self.means.ranks):
            while self.waiting[rank] and self.held[rank] + self.means.bytes[Kind.I] > self.means.room:
                self._weight(rank)
            passed = self._count(Kind.I, 1, rank) < self._count(Kind.I, 0, rank)
            done = self._count(Kind.I, 0, rank) >= self.means.microbatches
            (second if passed and (done or self._ready(Kind.I, 1, rank)) else first).append(rank)
        for turn, rank in [(1, rank) for rank in reversed(second)] + [(0, rank) for rank in first]:
            self._fill(Kind.I, turn, rank, turn == 1 or self.before_backward)
            self._run(Kind.I, turn, rank)

    def _forwards(self) -> None:
        whole = self.means.microbatches
        for rank in range(self.means.ranks):
            first, second = (self._count(Kind.F, turn, rank) for turn in (0, 1))
            if second >= whole:
                continue
            if second < first and self._ready(Kind.F, 1, rank):
                turn = 1
            elif first < whole and self._ready(Kind.F, 0, rank):
                turn = 0
            else:
                continue
            while self.waiting[rank] and self.held[rank] + self.means.bytes[Kind.F] > self.means.room:
                self._weight(rank)
            self._fill(Kind.F, turn, rank, self.before_forward)
            self._run(Kind.F, turn, rank)

    def _fill(self, kind: Kind, turn: int, rank: int, even_late: bool) -> None:
        """Weight gradients before an op that waits: those that end in time, and one that does not where it may."""
        there = self._arrival(kind, turn, rank)
        if there is None:
            return
        while self.waiting[rank] and there >= self.clock[rank] + self.means.ticks[Kind.W]:
            self._weight(rank)
        longest = max(self.most_idle, self.slack[rank])
        if self.waiting[rank] and even_late and there - self.clock[rank] > longest - self.idle[rank]:
            self._weight(rank)


ZB_V_COSTED = Method(
    "ZB-V-costed",
    ("ZB-V at mean costs",),
    "zero bubble in 1F1B's memory, in an order worked out for the costs of a mean stage",
    costed_zb_v,
    placement="v",
    shapes="every p and m",
    bubble="0 of the span where F = I = W and m >= 2p",
    memory="2p of half a rank's layers",
    source="Qi et al., arXiv 2401.10241, section 6; sail-sg/zero-bubble-pipeline-parallelism, zbv.py",
)
