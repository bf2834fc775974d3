"""Other micro-batch sizes under the same order of ops."""

from __future__ import annotations

import numpy as np

from ..anneal.cooling import cool
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Schedule
from ..evaluate.simulate import op_inputs, op_ticks, simulate
from . import resize_kernel as kernel
from .tables import OpPrices

HEAT = 0.1
"""Highest temperature as a share of the mean duration of an op."""


NO_TARGET = -1
"""No value is as low: moves go on to the end."""


def resize(
    problem: Problem,
    schedule: Schedule,
    objective: Objective = "makespan",
    *,
    iterations: int | None = None,
    deadline: float | None = None,
    seed: int = 0,
    heat: float = HEAT,
) -> Schedule:
    """Better micro-batch sizes for a schedule whose ops keep their order, by simulated annealing.

    A move takes samples from one micro-batch to another, or to two others where the steps between allowed sizes are
    unequal; or two exchange their sizes; or one takes another's place, and those between move up. Micro-batches keep
    their numbers, and their count. Each division is evaluated as a whole, within the memory limits: micro-batches
    differ in every op, so that there is little to keep.

    Parameters
    ----------
    problem, schedule
        A valid schedule of the problem within its limits.
    objective
        "makespan" or "span".
    iterations
        Moves to propose. The answer then depends on the arguments alone (unless the deadline comes first).
    deadline
        Value of `time.monotonic()` at which to stop. At least one of `iterations` and `deadline` is needed.
    seed
        Of the moves.
    heat
        Highest temperature as a share of the mean duration of an op; 0 goes down only, and sideways.

    Returns
    -------
    Schedule
        With the best sizes found; `schedule` itself where none are better.

    Examples
    --------
    >>> cost = {"fixed": 2, "per_sample": 4}
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 6, "microbatch_sizes": [1, 2, 3]},
    ...     "costs": dict.fromkeys(("forward", "backward_input", "backward_weight"), cost)})
    >>> from adaptpipe.solver import simulate
    >>> from adaptpipe.solver.heuristics import one_f_one_b
    >>> start = one_f_one_b(problem, (2, 2, 2))
    >>> better = resize(problem, start, iterations=1_000)
    >>> better.sizes, simulate(problem, start).makespan, simulate(problem, better).makespan
    ((1, 3, 2), 120, 116)
    """
    assert iterations is not None or deadline is not None, "a run needs an end"
    if schedule.microbatches < 2 or len(problem.sizes) == 1:
        return schedule
    state = _State(problem, schedule, objective, seed)
    for _ in cool(state, iterations, deadline, heat * state.mean, NO_TARGET):
        pass
    return state.best_schedule() if state.best < state.started else schedule


class _State:
    """Sizes that moves can change, under a fixed order of the ops."""

    def __init__(self, problem: Problem, schedule: Schedule, objective: Objective, seed: int) -> None:
        self.schedule, self.span = schedule, objective == "span"
        instance, table = problem.instance(schedule.sizes), schedule.table
        before, _ = op_inputs(instance, schedule)
        made = np.empty(len(before), dtype=np.int64)
        placed = kernel.sequence(table.offsets, before, made)
        assert placed == len(made), "a valid schedule has no deadlock"
        # In the order of time, as far as ops of no duration allow, late micro-batches are late in it.
        by_time = np.lexsort((made, simulate(problem, schedule).start))
        place = np.empty_like(made)
        place[by_time] = np.arange(len(made))
        prices = OpPrices(problem, schedule)
        sizes, batch = np.array(problem.sizes, dtype=np.int64), table.microbatch[by_time]
        first = np.full(schedule.microbatches, len(made), dtype=np.int64)
        np.minimum.at(first, batch, np.arange(len(made)))
        self.ops = kernel.Ops(
            rank=np.repeat(np.arange(problem.ranks, dtype=np.int64), np.diff(table.offsets))[by_time],
            batch=batch,
            before=np.where(before[by_time] >= 0, place[before[by_time]], -1),
            lag=prices.lag[by_time],
            ticks=prices.ticks[by_time],
            take=prices.take[by_time],
            swell=prices.swell[by_time],
            free=prices.free[by_time],
            limit=instance.limit,
            first=first,
            sizes=sizes,
        )
        which = np.searchsorted(sizes, np.array(schedule.sizes, dtype=np.int64))
        blocks, nothing = len(made) // kernel.BLOCK + 1, np.zeros(len(made), dtype=np.int64)
        self.kept = kernel.Kept(
            which=which,
            best=which.copy(),
            known=nothing,
            end=nothing.copy(),
            clocks=np.zeros((blocks, problem.ranks), dtype=np.int64),
            opened=np.full((blocks, problem.ranks), -1, dtype=np.int64),
            held=np.tile(instance.static, (blocks, 1)),
        )
        self.random = np.array([(seed * 2654435761 + 88172645463325252) % 2**64 or 1], dtype=np.uint64)
        value = kernel.evaluate(self.ops, self.kept, which, 0, True, self.span, kernel.FAR)
        self.values = np.array([value, value, 0, 0], dtype=np.int64)
        self.started = self.best
        self.mean = float(op_ticks(instance, schedule).mean()) if len(made) else 0.0

    @property
    def best(self) -> int:
        """Objective value of the best sizes, in ticks."""
        return int(self.values[kernel.BEST])

    def run(self, moves: int, hot: float, cold: float, target: int) -> None:
        """Propose moves, from temperature `hot` to `cold` in ticks."""
        kernel.anneal(self.ops, self.kept, self.values, self.random, self.span, moves, hot, cold)

    def best_schedule(self) -> Schedule:
        """The schedule with the best sizes."""
        sizes = tuple(self.ops.sizes[self.kept.best].tolist())
        return Schedule(self.schedule.placement, sizes, self.schedule.ops)
