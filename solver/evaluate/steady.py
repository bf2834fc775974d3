"""What a batch takes where many follow each other without a flush."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ..core.errors import NoAnswerError
from ..core.problem import Problem
from ..core.schedule import Schedule
from ..core.stream import BATCHES, staleness, stream, weight_copies
from ..core.updates import MEANING
from .simulate import op_inputs, simulate
from .timeline import Timeline


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady state of an asynchronous schedule.

    Parameters
    ----------
    batch
        Ticks from the end of one batch to the end of the next, in the mean.
    microbatches
        Micro-batches of a batch.
    work
        Ticks in which the busiest rank computes, in each batch.
    """

    batch: Fraction
    microbatches: int
    work: int

    @property
    def microbatch(self) -> Fraction:
        """Ticks for each micro-batch, in the mean; its inverse is the throughput."""
        return self.batch / self.microbatches

    @property
    def bubble(self) -> float:
        """Share of the time in which the busiest rank is idle."""
        return float(1 - self.work / self.batch) if self.batch else 0.0


@dataclass(frozen=True, slots=True)
class _Wait:
    """An op waits for another: of so many batches before, and so many ticks from its start."""

    source: int
    target: int
    ticks: int
    batches: int


def steady(problem: Problem, schedule: Schedule) -> Steady:
    """The steady state of a schedule whose batches follow each other without a flush, exactly.

    In the long run a batch takes as long as the slowest circle of waits: from an op through what it must wait for back
    to the same op of an earlier batch, in ticks for each batch in between (the maximum cycle mean of a timed event
    graph; Baccelli, Cohen, Olsder and Quadrat, "Synchronization and Linearity", 1992, chapter 2). The work of a rank
    is such a circle; so is the round trip of a micro-batch from a stage to the last one and back, for each of those
    in flight. Updates of weights take no time, as in every other figure.

    Parameters
    ----------
    problem, schedule
        A schedule of the problem's shape, with updates other than "step".

    Raises
    ------
    InputError
        When the schedule is for another shape, or flushes.
    NoAnswerError
        When the schedule is not valid, or ranks would wait for each other once a second batch begins.

    Examples
    --------
    >>> from adaptpipe.solver.heuristics import one_f_one_b
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 4}, "batch": {"samples": 8}, "costs":
    ...     {"forward": 2, "backward_input": 2, "backward_weight": 2}, "links": {"latency": 1}})
    >>> found = steady(problem, replace(one_f_one_b(problem), updates="stash"))
    >>> found.microbatch, found.bubble  # four micro-batches in flight on a round trip of 4 x 6 + 2 x 3 x 1 ticks
    (Fraction(15, 2), 0.2)
    """
    work = max(simulate(problem, schedule).work)
    # The work of a rank is a circle: nothing less needs to be looked at.
    batch = Fraction(work)
    waits = _waits(flow(problem, schedule), schedule.microbatches)
    while circle := _slower(waits, batch):
        batch = Fraction(sum(wait.ticks for wait in circle), sum(wait.batches for wait in circle))
    return Steady(batch, schedule.microbatches, work)


def flow(problem: Problem, schedule: Schedule) -> Timeline:
    """Some batches of a valid schedule, one after the other without a flush.

    Raises
    ------
    InputError
        When the schedule is for another shape, or flushes.
    NoAnswerError
        When ranks would wait for each other once a second batch begins.
    """
    longer, flowing = replace(problem, samples=BATCHES * problem.samples), stream(schedule, BATCHES)
    try:
        # Only the order counts here; versions of weights are counted once, for the schedule.
        return simulate(longer, replace(flowing, updates="step"))
    except NoAnswerError as error:
        raise NoAnswerError(f"without a flush the order of one batch cannot go on into the next: {error}") from None


def _waits(timeline: Timeline, microbatches: int) -> tuple[_Wait, ...]:
    """What the ops of one batch in the middle of a stream wait for, in the order in which they start."""
    schedule = timeline.schedule
    before, lag = op_inputs(timeline.problem.instance(schedule.sizes), schedule)
    table = schedule.table
    batch, ticks = table.microbatch // microbatches, (timeline.end - timeline.start).tolist()
    names = list(zip(table.stage, table.kind, table.microbatch % microbatches, table.start, strict=True))
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    previous = {op: op - 1 for a, b in pairwise(table.offsets.tolist()) for op in range(a + 1, b)}
    middle = BATCHES - 2
    found = []
    for op in sorted(np.flatnonzero(batch == middle).tolist(), key=lambda op: int(timeline.start[op])):
        sources = [(previous[op], 0), *zip(before[op].tolist(), lag[op].tolist(), strict=True)]
        for source, wait in sources:
            if source >= 0:
                apart = middle - int(batch[source])
                found.append(_Wait(number[names[source]], number[names[op]], ticks[source] + wait, apart))
    return tuple(found)


def _slower(waits: tuple[_Wait, ...], batch: Fraction) -> tuple[_Wait, ...]:
    """A circle that takes more ticks for each batch than `batch`; empty where there is none (Bellman and Ford)."""
    gains = [wait.ticks * batch.denominator - wait.batches * batch.numerator for wait in waits]
    count = 1 + max(wait.target for wait in waits)
    start, reached = [0] * count, dict[int, _Wait]()
    moved = True
    while moved:
        moved = False
        for wait, gain in zip(waits, gains, strict=True):
            if start[wait.source] + gain > start[wait.target]:
                start[wait.target] = start[wait.source] + gain
                reached[wait.target] = wait
                moved = True
        if moved and (circle := _circle(reached)):
            return circle
    return ()


def _circle(reached: dict[int, _Wait]) -> tuple[_Wait, ...]:
    """A circle among the waits by which each op was reached last; empty where there is none."""
    ended: set[int] = set()
    for first in reached:
        trail: dict[int, None] = {}
        op = first
        while op in reached and op not in ended and op not in trail:
            trail[op] = None
            op = reached[op].source
        if op in trail:
            way = list(trail)
            return tuple(reached[each] for each in way[way.index(op) :])
        ended.update(trail)
    return ()


def stale(timeline: Timeline) -> str:
    """What there is to know of an asynchronous schedule beside its makespan, for people; empty where it flushes."""
    found, schedule, weights = timeline.steady, timeline.schedule, timeline.problem.memory.weights
    if found is None:
        return ""
    copies = weight_copies(schedule)
    uncounted = any(copies[s] > 1 and not (weights and weights[s]) for s in range(len(copies)))
    late = float(max(staleness(schedule)))
    how = "in the mean of the stalest stage" if schedule.updates == "newest" else "at most"
    updates = "update" if late == 1 else "updates"
    return (
        f"stale weights, {late:.3g} {updates} late {how} ({MEANING[schedule.updates]}); makespan and span are of one "
        f"batch by itself, in the steady state a micro-batch takes {float(found.microbatch):,.6g} "
        f"{timeline.problem.unit}, bubble {found.bubble:.2%}"
    ) + ("; memory.weights is 0, so further copies of weights are not counted" if uncounted else "")
