"""The zero-bubble paper's automatic schedules: ZB-1p and ZB-2p."""

from __future__ import annotations

from itertools import product

from ...core.instance import Instance
from ...core.method import Method
from ...core.ops import Kind, Op
from ...core.problem import Problem
from ...core.schedule import Schedule
from ..rows import Row, assemble, require_family


def zb_1p(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """ZB-1p (Qi et al., arXiv 2401.10241, section 3.1): the automatic schedule within 1F1B's memory.

    The order depends on the costs. The ranks run forwards until the first gradient is back: while they fit, and while
    rank r runs fewer than rank r - 1. Then, round by round, every rank runs a forward and an I. A W runs where the next
    op would not fit, or would start late: as many as end in time, and one more where waiting would make the rank idle
    for longer than any rank has been. All ways to decide three things are tried and the least span counts: whether the
    first forwards may delay the first I, whether a forward that would delay an I is left out of a round, and whether
    the one more W runs in any case.

    Rank r may hold p times what F of a micro-batch (the largest) holds there, whatever the problem's limit; where
    `retained` is above `activation`, or sizes differ, what one op needs may come on top. With equal stages and free
    messages the span's bubble is that of ZB-H1, (p - 1)(F + I - W), where W is no longer than F and I and m >= p, and
    the memory is min(m, p) activations. Exists on linear placements for every m.

    Raises
    ------
    InputError
        When the placement is not linear.

    Notes
    -----
    The algorithm of `megatron/core/pipeline_parallel/zerobubble/scheduler/zb.py` in
    sail-sg/zero-bubble-pipeline-parallelism, without its integer program.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 3}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}, "memory": {"activation": 1, "retained": 1}})
    >>> [" ".join(map(str, row)) for row in zb_1p(problem).ops]
    ['0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2', '1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2']
    """
    require_family(problem, "ZB-1p", "linear")
    return _least_span(problem, sizes, 1)


def zb_2p(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """ZB-2p (Qi et al., arXiv 2401.10241, section 3.1): the automatic schedule of `zb_1p` in twice the memory.

    With equal stages and free messages the span's bubble is 0 where F, I and W are equal and m >= 2p, that of ZB-H1
    where m = p, and the memory is at most min(m, 2p) activations.

    Raises
    ------
    InputError
        When the placement is not linear.
    """
    require_family(problem, "ZB-2p", "linear")
    return _least_span(problem, sizes, 2)


def _least_span(problem: Problem, sizes: tuple[int, ...] | None, times: int) -> Schedule:
    instance = problem.instance(problem.default_sizes() if sizes is None else sizes)
    # In the authors' order, as the first of equals counts.
    ways = product((False, True), (True, False), (False, True))
    best = min((_Pass(instance, times, *way) for way in ways), key=lambda each: each.span)

    def row(rank: int, microbatches: int) -> list[Op]:
        made = Row()
        for kind in best.rows[rank]:
            made.add(rank, kind)
        return made.ops

    return assemble(problem, sizes, row)


_Table = list[list[int]]
"""Ticks or bytes, by rank and micro-batch."""


class _Pass:
    """One pass of the algorithm.

    Parameters
    ----------
    instance, times
        The problem with its sizes; the memory in multiples of p activations.
    late_first
        Forwards before the first I go on as long as the rank would wait for it, even where the last one delays it.
    skips
        A forward that would delay an I of the next rank is left out of the round.
    patient
        A W that would end late does not run where the wait for what comes is within the idle time of the idlest rank.
    """

    def __init__(self, instance: Instance, times: int, late_first: bool, skips: bool, patient: bool) -> None:
        self.late_first, self.skips, self.patient = late_first, skips, patient
        ranks, self.microbatches = instance.ranks, instance.microbatches
        lag = instance.lag.reshape(3, ranks, self.microbatches, 2)
        self.forward: _Table = instance.forward.tolist()
        self.backward: _Table = instance.backward_input.tolist()
        self.weight: _Table = instance.backward_weight.tolist()
        self.down: _Table = lag[0, :, :, 0].tolist()
        self.up: _Table = lag[1, :, :, 1].tolist()
        self.activation: _Table = instance.activation.tolist()
        self.retained: _Table = instance.retained.tolist()
        self.room = [times * ranks * max(row) for row in self.activation]
        self.rows: list[list[Kind]] = [[] for _ in range(ranks)]
        self.forward_ends: list[list[int]] = [[] for _ in range(ranks)]
        self.backward_ends: list[list[int]] = [[] for _ in range(ranks)]
        self.weights = [0] * ranks
        self.clock, self.held, self.idle, self.most_idle = [0] * ranks, [0] * ranks, [0] * ranks, 0
        self._warm_up()
        for _ in range(1, self.microbatches):
            self._forwards()
            self._backwards()
        for rank in range(ranks):
            while self.weights[rank] < self.microbatches:
                self._run_weight(rank)
        first = [self.forward_ends[rank][0] - self.forward[rank][0] for rank in range(ranks)]
        self.span = max(end - start for start, end in zip(first, self.clock, strict=True))

    def _wait(self, rank: int, there: int) -> None:
        lost = there - self.clock[rank]
        if lost > 0:
            self.clock[rank] = there
            if self.rows[rank]:
                self.idle[rank] += lost
                self.most_idle = max(self.most_idle, self.idle[rank])

    def _run_forward(self, rank: int) -> None:
        j = len(self.forward_ends[rank])
        self._wait(rank, self._forward_there(rank))
        self.clock[rank] += self.forward[rank][j]
        self.forward_ends[rank].append(self.clock[rank])
        self.held[rank] += self.activation[rank][j]
        self.rows[rank].append(Kind.F)

    def _run_backward(self, rank: int) -> None:
        j = len(self.backward_ends[rank])
        self._wait(rank, self._backward_there(rank))
        self.clock[rank] += self.backward[rank][j]
        self.backward_ends[rank].append(self.clock[rank])
        self.held[rank] += self.retained[rank][j] - self.activation[rank][j]
        self.rows[rank].append(Kind.I)

    def _run_weight(self, rank: int) -> None:
        j = self.weights[rank]
        self.clock[rank] += self.weight[rank][j]
        self.weights[rank] += 1
        self.held[rank] -= self.retained[rank][j]
        self.rows[rank].append(Kind.W)

    def _forward_there(self, rank: int) -> int:
        """When the input of the rank's next F is there."""
        if rank == 0:
            return 0
        j = len(self.forward_ends[rank])
        return self.forward_ends[rank - 1][j] + self.down[rank][j]

    def _backward_there(self, rank: int) -> int:
        """When the gradient for the rank's next I is there."""
        if rank + 1 == len(self.rows):
            return 0
        j = len(self.backward_ends[rank])
        return self.backward_ends[rank + 1][j] + self.up[rank][j]

    def _warm_up(self) -> None:
        """The forwards before the first I, and that."""
        last = len(self.rows) - 1
        for rank in range(last + 1):
            self._run_forward(rank)
        more = [0] * (last + 1)
        there = self.clock[last] + self.backward[last][0]
        for rank in reversed(range(last)):
            there += self.up[rank][0]
            held, end = self.held[rank], self.clock[rank]
            for j in range(1, self.microbatches):
                held += self.activation[rank][j]
                late = end >= there if self.late_first else end + self.forward[rank][j] > there
                if held > self.room[rank] or late:
                    break
                end += self.forward[rank][j]
                more[rank] = j
            there = max(end, there) + self.backward[rank][0]
        for rank in range(1, last):
            # A rank may only run as many as the one before where these are all.
            whole = more[rank - 1] + 1 == self.microbatches
            more[rank] = min(more[rank], more[rank - 1] if whole else max(more[rank - 1] - 1, 0))
        for rank, count in enumerate(more):
            for _ in range(count):
                self._run_forward(rank)
        for rank in reversed(range(last + 1)):
            self._run_backward(rank)

    def _forwards(self) -> None:
        """At most one forward on each rank, and on none where the next rank has none."""
        wanted = [len(ends) < self.microbatches for ends in self.forward_ends]
        for rank in reversed(range(len(wanted) - 1)):
            wanted[rank] = wanted[rank] and wanted[rank + 1] and not (self.skips and self._delays(rank))
        for rank, wants in enumerate(wanted):
            if wants:
                self._make_room(rank, self.activation[rank][len(self.forward_ends[rank])])
                self._fill(rank, self._forward_there(rank))
                self._run_forward(rank)

    def _delays(self, rank: int) -> bool:
        """Whether a forward may wait because the next rank's gradient comes before it would end."""
        j, following = len(self.forward_ends[rank]), len(self.forward_ends[rank + 1])
        if j < following + 2:
            return False
        i = len(self.backward_ends[rank])
        there = self.clock[rank + 1] + self.forward[rank + 1][following] + self.backward[rank + 1][i] + self.up[rank][i]
        clock = self.clock[rank]
        if clock >= there:
            return True
        held, end = self.held[rank] + self.activation[rank][j], clock + self.forward[rank][j]
        for w in range(self.weights[rank], i):
            if held <= self.room[rank]:
                break
            held -= self.retained[rank][w]
            end += self.weight[rank][w]
        return end > there and there - clock <= self.most_idle - self.idle[rank]

    def _backwards(self) -> None:
        """One I on each rank, from the last to the first."""
        for rank in reversed(range(len(self.rows))):
            i = len(self.backward_ends[rank])
            self._make_room(rank, self.retained[rank][i] - self.activation[rank][i])
            self._fill(rank, self._backward_there(rank))
            if rank == 0 and len(self.forward_ends[0]) == self.microbatches:
                # Nothing waits for what rank 0 sends any more.
                while self.weights[0] < i:
                    self._run_weight(0)
            self._run_backward(rank)

    def _make_room(self, rank: int, take: int) -> None:
        while self.held[rank] + take > self.room[rank] and self.weights[rank] < len(self.backward_ends[rank]):
            self._run_weight(rank)

    def _fill(self, rank: int, there: int) -> None:
        """Weight gradients before an op whose input comes then: those that end in time, and one that does not."""
        done = len(self.backward_ends[rank])
        while self.weights[rank] < done and self.clock[rank] + self.weight[rank][self.weights[rank]] <= there:
            self._run_weight(rank)
        wait = there - self.clock[rank]
        late = not self.patient or wait > self.most_idle - self.idle[rank]
        if wait > 0 and late and self.weights[rank] < done:
            self._run_weight(rank)


ZB_1P = Method(
    "ZB-1p",
    ("ZB1P",),
    "the zero-bubble paper's automatic schedule in 1F1B's memory",
    zb_1p,
    placement="linear",
    shapes="every p and m",
    bubble="(p - 1)(F + I - W) of the span where W is no longer than F and I, and m >= p",
    memory="min(m, p)",
    source="Qi et al., arXiv 2401.10241, section 3.1",
)

ZB_2P = Method(
    "ZB-2p",
    ("ZB2P",),
    "the zero-bubble paper's automatic schedule in twice 1F1B's memory",
    zb_2p,
    placement="linear",
    shapes="every p and m",
    bubble="0 of the span where F = I = W and m >= 2p",
    memory="min(m, 2p)",
    source="Qi et al., arXiv 2401.10241, section 3.1",
)
