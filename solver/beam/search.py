"""Beams of growing width through the labels of a problem, until the time is up."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from time import monotonic

import numpy as np

from ..bounds.few_ranks import LATEST
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.schedule import Schedule
from ..evaluate.check import check
from ..evaluate.simulate import simulate
from . import kernel
from .kernel import Choices, Counts, Layer
from .way import Links, Way, way_of

WIDTHS = (30, 100, 300, 1000, 3000, 10_000, 30_000)
"""Labels of a layer that are kept, one beam after another."""

VARIANTS = ((0.3, 0.0), (0.45, 0.0), (0.9, 0.0), (0.4, 1.0), (0.6, 0.0))
"""What is tried with each width: heat of the smooth maximum, in mean durations of an F or backward; and what the ranks'
work counts for, beside their memory-time. See `kernel.expand`. No single one is the best everywhere: they differ by a
percent, either way."""

HISTORY = 400 * 2**20
"""Bytes that the paths of one beam may take."""

LABELS = 200 * 2**20
"""Bytes that the labels of one layer may take."""

EACH = 8
"""Ways to go on from a label, for each rank, that there is room for."""

SPARE = 4
"""Choices that are looked at for each label that is kept: the others are the same as, or worse than, better ones."""


def beam(
    problem: Problem,
    sizes: tuple[int, ...],
    *,
    width: int | None = None,
    deadline: float,
    known: int | None = None,
) -> Schedule | None:
    """Schedule of least makespan that a beam search finds, for tight memory.

    F's and backwards are put in the order of their starts, one by one. Of all beginnings with the same number of ops
    the best are kept, by an estimate: the ranks' memory-time that is left, spread over what they have room for, and
    their work. Weight gradients fill what waits, and come before an F where memory asks for it. None is run that
    delays a backward for another reason, so that even a beam that cuts nothing off may miss the optimum where a W is
    longer than the waits.

    Parameters
    ----------
    problem, sizes
        The problem, and samples of each micro-batch.
    width
        Beginnings that are kept; None: ever more, while there is time.
    deadline
        Moment of `time.monotonic` at which to stop.
    known
        Value of a schedule, that has to be beaten.

    Returns
    -------
    Schedule or None
        None where nothing better was found in time, and where the search does not apply: to more than one direction,
        micro-batches of different sizes, weight gradients in ranges or of different prices on one rank, fused
        backwards that are worth it, and activations that grow in the backward.

    Notes
    -----
    Values of the 1.5 B model of Zero Bubble's Table 5 at half of 1F1B's memory, in 0.1 ms, and processor seconds of
    one beam; in brackets what annealing makes of it, and what it reaches from greedy schedules. Linear p8 m24: 20979,
    the optimum, width 300 in 1 s. Linear p16 m48: 41256, width 300 in 8 s (41091; 41688). V p4 m16: 9823, the optimum.
    V p8 m24: 14491, width 1000 in 10 s (14481; 14516). V p8 m64: 34733, width 1000 in 29 s (34733;
    34673, so the beam gains nothing here). On V p16 a beam of 100 ends far above what annealing finds.

    Examples
    --------
    >>> problem = Problem.from_dict({
    ...     "pipeline": {"ranks": 2, "placement": "v"},
    ...     "batch": {"samples": 4},
    ...     "costs": {"forward": 2, "backward_input": 2, "backward_weight": 1},
    ...     "links": {"latency": 1},
    ...     "memory": {"activation": 2, "retained": 1, "limit": 5},
    ... })
    >>> simulate(problem, beam(problem, problem.default_sizes(), width=30, deadline=monotonic() + 60)).makespan
    66
    """
    instance = problem.instance(sizes)
    way = way_of(instance)
    if way is None:
        return None
    ticks = int((instance.forward + instance.backward).sum() + 2 * instance.lag.sum()) + 1
    below = ticks if known is None else min(known, ticks)
    if below > LATEST:
        return None
    best: Schedule | None = None
    mean = max(1.0, float(way.dur.mean()))
    took = 0.0
    for many, (heat, share) in product(WIDTHS if width is None else (width,), VARIANTS):
        now = monotonic()
        if now >= deadline or (best is not None and now + took > deadline):
            break
        path = _Beam(way, many, heat * mean, share, deadline).run(below)
        took = monotonic() - now
        if path is None:
            continue
        schedule = _schedule(problem, sizes, way, *path)
        value = simulate(problem, schedule).makespan
        if value < below and not check(problem, schedule):
            best, below = schedule, value
    return best


@dataclass(frozen=True, slots=True)
class _Beam:
    """One beam: width, and how labels are compared."""

    way: Way
    width: int
    heat: float
    share: float
    deadline: float

    def run(self, below: int) -> tuple[Counts, Counts] | None:
        """Ops of a path that ends below a value, and the W's just before each; None where the beam ends earlier."""
        way = self.way
        n = len(way.rank)
        steps = way.microbatches * n
        width = min(self.width, HISTORY // (8 * steps), LABELS // (8 * (way.labels + n)))
        room = width * EACH * len(way.room)
        choices = Choices(np.empty(room), np.empty(room, np.int32), np.empty(room, np.int16), np.empty(room, np.int16))
        layer, new = _layer(width, way), _layer(width, way)
        following, chosen = np.empty(width, np.int32), np.empty(width, np.int32)
        table = np.empty(1 << (2 * width).bit_length(), np.int32)
        history: list[tuple[Links, Counts, Counts]] = []
        labels = 1
        for _ in range(steps):
            if monotonic() >= self.deadline:
                return None
            found = kernel.expand(way, below, self.heat, self.share, labels, layer, choices)
            if found == 0:
                return None
            estimate, most = choices.estimate[:found], min(found, SPARE * width)
            order = np.argpartition(estimate, most - 1)[:most]
            order = order[np.argsort(estimate[order], kind="stable")]
            labels = kernel.keep(way, order, layer, choices, new, following, table, chosen)
            these = chosen[:labels]
            history.append((choices.parent[these], choices.op[these], choices.weights[these]))
            layer, new = new, layer
        ends = [_end(way, layer.times[label]) for label in range(labels)]
        at = int(np.argmin(ends))
        ops, weights = np.empty(steps, np.int16), np.empty(steps, np.int16)
        for step in reversed(range(steps)):
            parent, op, before = history[step]
            ops[step], weights[step] = op[at], before[at]
            at = int(parent[at])
        return ops, weights


def _layer(width: int, way: Way) -> Layer:
    return Layer(np.zeros((width, len(way.rank)), np.int16), np.zeros((width, way.labels), np.int32))


def _end(way: Way, times: Links) -> int:
    """When everything is done, of a label with all F's and backwards."""
    ranks = len(way.room)
    backwards = np.bincount(way.rank[way.forward == 0], minlength=ranks) * way.microbatches
    waiting = backwards + times[ranks + 1 : 2 * ranks + 1]
    return int((times[:ranks] + waiting * way.weight_dur).max())


def _schedule(problem: Problem, sizes: tuple[int, ...], way: Way, ops: Counts, weights: Counts) -> Schedule:
    """The order of a path: on each rank weight gradients in the order of their backwards."""
    ranks, stages = len(way.room), problem.stages
    made = np.zeros((len(ops), ranks), np.int16)
    kernel.replay(way, ops, weights, made)
    rows: list[list[Op]] = [[] for _ in range(ranks)]
    waiting: list[list[Op]] = [[] for _ in range(ranks)]
    count, begun = [0] * len(way.rank), [0] * ranks
    for x, done in zip(ops.tolist(), made.tolist(), strict=True):
        for rank, number in enumerate(done):
            rows[rank] += waiting[rank][begun[rank] : number]
            begun[rank] = number
        rank, microbatch = int(way.rank[x]), count[x]
        count[x] += 1
        if way.forward[x]:
            rows[rank].append(Op(x, Kind.F, microbatch))
        else:
            stage = 2 * stages - 1 - x
            rows[rank].append(Op(stage, Kind.I, microbatch))
            waiting[rank].append(Op(stage, Kind.W, microbatch))
    for rank in range(ranks):
        rows[rank] += waiting[rank][begun[rank] :]
    return Schedule(problem.placement, sizes, tuple(tuple(row) for row in rows), problem.slice_count)
