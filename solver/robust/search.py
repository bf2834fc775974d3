"""Search for an order that is short in the mean under noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..core.errors import InputError, NoAnswerError
from ..core.instance import Instance
from ..core.ops import Kind
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array, Schedule
from ..evaluate.check import check
from ..evaluate.kernel import earliest
from ..evaluate.noise import VALIDATION, Noise
from ..evaluate.noisy import noisy
from ..evaluate.simulate import op_bytes, op_inputs, simulate
from . import kernel
from .arrays import Ops, Order
from .draw import Draw, Times, draw, require_sums

HEAT = 0.015
"""Temperature at the start, as a share of the mean F."""

MOVES = 400
"""Moves tried for each op where nothing else ends the search."""

MOST_PLANNED = 1000
"""Beyond it only the plan counts; solve without noise then."""

DESCENT = 100
"""Moves tried for each op, first of all, of which only those that gain are taken. In large problems nothing else fits
in the time: annealing spoils more than it mends until some hundred moves for each op are tried."""

SCENARIOS = 63
"""Random runs that orders are judged by: with the plan they fill the rows that processors add at once. With 8, half of
what is gained in them is lost in other runs."""

PLANNED = 0.4
"""What the planned value counts, beside all random runs together. It hardly costs anything under noise, and without it
the planned value grows several times as much."""

_LOOKS = 60
"""Times that the best order is tried in other runs, at least, where the number of moves is given."""

_LONGEST = 5000
"""Moves between two looks at most, there."""

_RECHECKED = 4
"""Runs in which the order found is simulated once more."""

_FIRST = 100
"""Moves before the first look, where there is a deadline."""

_UNIT = 16
"""Weight of a random run; that of the plan is rounded to an integer."""

_PAUSE_S = 0.1
"""Time between two looks, where the time is given."""


def robust(
    problem: Problem,
    start: Schedule,
    objective: Objective = "makespan",
    noise: Noise | None = None,
    *,
    scenarios: int = SCENARIOS,
    planned: float = PLANNED,
    iterations: int | None = None,
    deadline: float | None = None,
    seed: int = 0,
    on_schedule: Callable[[Schedule, float], None] | None = None,
) -> Schedule:
    """Change a schedule's order so that it is shorter in the mean under noise.

    Sample average approximation: the mean over some random runs, the same for every order, stands for the mean over
    all. Added to it is a share of the planned (noise-free) value, which grows a little as slack goes where noise would
    hurt. The sum is minimised by descent, then by simulated annealing; each move takes one op a few places along its
    rank. Micro-batch sizes, and what is fused or cut, stay as they are; so do, on each stage, the order of the F's,
    that of the backwards and that of the W's. As an order may suit the runs at hand only, others, which the moves do
    not see, decide from time to time whether it is taken.

    Parameters
    ----------
    problem, start
        A valid schedule, best one that is good without noise.
    objective
        Makespan or span.
    noise
        None: `Noise()`.
    scenarios
        Random runs that orders are judged by, at least 1; fewer where the deadline is near.
    planned
        What the planned value counts, beside all random runs together; 0: nothing.
    iterations
        Moves tried. None: until the deadline, or `MOVES` for each op where there is none either.
    deadline
        Value of `time.monotonic()` at which the search ends; one that leaves no time even for a few random runs gives
        the start. With `iterations` alone the same input gives the same schedule.
    seed
        Of the moves; that of the scenarios is the noise's.
    on_schedule
        Called with the start, once the search begins, then with better schedules, at most every tenth of a second; and
        with their mean in the runs that decide, in ticks.

    Returns
    -------
    Schedule
        Within the limits, and in the mean no longer than the start, in the runs that the moves are judged by and in
        those that decide. The start where nothing better was found.

    Raises
    ------
    InputError
        When the schedule is for another shape, or a number is out of range.
    NoAnswerError
        When the start is not valid.

    Examples
    --------
    >>> from adaptpipe.solver.evaluate.noisy import noisy
    >>> from adaptpipe.solver.heuristics.zero_bubble import zb_h1
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 4}, "batch": {"samples": 8}, "costs":
    ...     {"forward": 100, "backward_input": 100, "backward_weight": 60}})
    >>> start = zb_h1(problem)
    >>> better = robust(problem, start, iterations=20000)
    >>> noisy(problem, better, Noise()).mean < noisy(problem, start, Noise()).mean
    True
    """
    if scenarios < 1:
        raise InputError(f"robust.scenarios: {scenarios} is below 1; {SCENARIOS} are usual")
    if not 0 <= planned <= MOST_PLANNED:
        raise InputError(f"robust.planned: {planned} is not within 0..{MOST_PLANNED}; {PLANNED} is usual")
    noise = Noise() if noise is None else noise
    wrong = check(problem, start)
    if wrong:
        raise NoAnswerError(f"the schedule to start from is not valid: {wrong[0].message}")
    if deadline is not None and time.monotonic() >= deadline:
        return start
    instance = problem.instance(start.sizes)
    drawn = draw(instance, start, noise, 1 if noise.silent else scenarios, deadline)
    if drawn is None:
        return start
    search = Search(instance, start, objective, drawn, planned, seed)
    if on_schedule is not None:
        on_schedule(start, search.mean)
    for better in search.run(iterations, deadline):
        if better and on_schedule is not None:
            on_schedule(search.schedule(), search.mean)
    best = search.schedule()
    assert not check(problem, best), "moves keep a schedule valid"
    again = (
        simulate(problem, best).value(objective),
        *noisy(problem, best, noise, objective, count=min(len(drawn.validation), _RECHECKED), stream=VALIDATION).values,
    )
    assert again == search.values[: len(again)], "the search's times are the simulator's"
    return best


class Search:
    """The order at hand, the best so far, and the scenarios."""

    def __init__(
        self, instance: Instance, start: Schedule, objective: Objective, drawn: Draw, planned: float, seed: int
    ) -> None:
        self._start, self._span = start, objective == "span"
        count, parts = len(drawn.training), drawn.parts
        weight = np.array([round(planned * count * _UNIT)] + [_UNIT] * count, dtype=np.int64)
        require_sums(drawn.training + drawn.validation, int(weight.sum()))
        self._parts, self._scale = parts, count * parts * _UNIT
        self._heat = HEAT * float(instance.forward.mean()) * parts * int(weight.sum())
        self._random = np.array([seed % 2**64], dtype=np.uint64)
        self._ops = _ops(instance, start, (drawn.plan, *drawn.training), weight)
        self._others = _ops(instance, start, (drawn.plan, *drawn.validation), weight)
        self._order, self._other_order = (_order(instance, start, count + 1) for _ in range(2))
        total = kernel.settle(self._ops, self._order, self._span)
        under_noise = total - int(weight[0] * self._order.value[0])
        self._totals = np.array([total, total, under_noise, under_noise], dtype=np.int64)
        self._best, self._best_line = self._order.row.copy(), self._order.line.copy()
        self._found: Array = self._best.copy()
        self._total, self._under_noise = self._judge()
        self._values = self._other_order.value.copy()

    def _judge(self) -> tuple[int, int]:
        """Weighted sum, and sum without the plan, of the best order in the runs that decide."""
        x, y = self._others, self._other_order
        y.row[:], y.line[:] = self._best, self._best_line
        total = kernel.settle(x, y, self._span)
        return total, total - int(x.weight[0] * y.value[0])

    @property
    def mean(self) -> float:
        """Mean of the order found over the runs that decide, in ticks."""
        return self._under_noise / self._scale

    @property
    def values(self) -> tuple[float, ...]:
        """Value of the order found as planned, then in each of the runs that decide, in ticks."""
        return tuple(value / self._parts for value in self._values.tolist())

    def run(self, iterations: int | None, deadline: float | None) -> Iterator[bool]:
        """Search; after each while, whether a better order was found."""
        n = len(self._best)
        if iterations is None and deadline is None:
            iterations = MOVES * n
        chunk = _FIRST if iterations is None else max(1, min(iterations // _LOOKS, _LONGEST))
        done, size, descent, first = 0, chunk if deadline is None else _FIRST, DESCENT * n, self._under_noise
        warm, over = time.monotonic(), 0.0
        while (iterations is None or done < iterations) and (deadline is None or time.monotonic() < deadline):
            before, now = int(self._totals[1]), time.monotonic()
            cold = done < descent
            if iterations is not None:
                size = min(size, (min(descent, iterations) if cold else iterations) - done)
                finish = 0.0 if cold else (done + size - descent) / (iterations - descent)
            else:
                assert deadline is not None
                if cold:
                    warm, finish = now, 0.0
                else:
                    over = (now - warm) / (deadline - warm)
                    finish = min(1.0, over + _PAUSE_S / (deadline - warm))
            self.anneal(over, finish, size, 0.0 if cold else self._heat)
            done, over = done + size, finish
            if deadline is None:
                size = chunk
            else:
                after = time.monotonic()
                pace, left = size / max(after - now, 1e-6), deadline - after
                most = min(2 * size, int(pace * _PAUSE_S)) if iterations is None else chunk
                size = max(1, min(most, int(pace * left)))
            yield int(self._totals[1]) < before and self._take(first)

    def _take(self, most: int) -> bool:
        """Take the best order if it is better, and under noise at most so long, in the runs that decide."""
        total, under_noise = self._judge()
        if total >= self._total or under_noise > most:
            return False
        self._total, self._under_noise = total, under_noise
        self._found[:] = self._best
        self._values[:] = self._other_order.value
        return True

    def anneal(self, begin: float, finish: float, count: int, heat: float) -> None:
        """Try some moves; see `kernel.anneal`."""
        kernel.anneal(
            self._ops, self._order, self._span, heat, begin, finish, count,
            self._random, self._totals, self._best, self._best_line,
        )  # fmt: skip

    def schedule(self) -> Schedule:
        """The order found."""
        flat = [op for row in self._start.ops for op in row]
        best, offsets = self._found.tolist(), self._ops.offsets.tolist()
        rows = (tuple(flat[op] for op in best[a:b]) for a, b in pairwise(offsets))
        return replace(self._start, ops=tuple(rows))


def _ops(instance: Instance, start: Schedule, runs: tuple[Times, ...], weight: Array) -> Ops:
    table, (before, _) = start.table, op_inputs(instance, start)
    op, slot = np.nonzero(before >= 0)
    by_source = np.argsort(before[op, slot], kind="stable")
    first_after = np.zeros(len(before) + 1, dtype=np.int64)
    np.cumsum(np.bincount(before[op, slot], minlength=len(before)), out=first_after[1:])
    take, swell, free = op_bytes(instance, start)
    # I and B are one group: both are the backward that others wait for.
    group = 3 * table.stage + np.where(table.kind == Kind.B, Kind.I, table.kind)
    return Ops(
        offsets=table.offsets,
        before=before,
        ticks=np.ascontiguousarray(np.stack([each.ticks for each in runs], axis=-1)),
        lag=np.ascontiguousarray(np.stack([each.lags for each in runs], axis=-1)),
        first_after=first_after,
        after=op[by_source].astype(np.int64),
        slot=slot[by_source].astype(np.int64),
        group=group,
        take=take,
        swell=swell,
        free=free,
        room=instance.limit,
        static=instance.static,
        rank=np.repeat(np.arange(instance.ranks, dtype=np.int64), np.diff(table.offsets)),
        weight=weight,
    )


def _order(instance: Instance, start: Schedule, scenarios: int) -> Order:
    count = len(start.table.stage)
    return Order(
        row=np.arange(count, dtype=np.int64),
        place=np.arange(count, dtype=np.int64),
        line=_line(instance, start),
        number=np.zeros(count, dtype=np.int64),
        held=np.zeros(count, dtype=np.int64),
        end=np.zeros((count, scenarios), dtype=np.int64),
        tail=np.zeros((count, scenarios), dtype=np.int64),
        close=np.zeros((instance.ranks, scenarios), dtype=np.int64),
        value=np.zeros(scenarios, dtype=np.int64),
        dirty=np.zeros(count, dtype=np.bool_),
        late=np.zeros(count, dtype=np.bool_),
    )


def _line(instance: Instance, start: Schedule) -> Array:
    """The ops by their planned start: short stretches of this line are all that a move changes."""
    before, _ = op_inputs(instance, start)
    offsets = start.table.offsets
    # Where planned starts are equal, the steps of a run in which every op takes one step tell what waits for what.
    steps, done = np.zeros(len(before), dtype=np.int64), np.zeros(len(offsets) - 1, dtype=np.int64)
    earliest(offsets, np.ones_like(steps), before, np.zeros_like(before), steps, done)
    return np.lexsort((steps, simulate(instance.problem, start).start)).astype(np.int64)
