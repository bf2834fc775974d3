"""Annealing of the orders in which ranks run their ops, and of what the ops are, on one core or several."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ..core.granularity import ALL, Granularity
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Schedule
from .state import State
from .team import Team

ROUNDS = ((0.04, 0.3), (0.16, 0.6), (0.8, 1.0))
"""Rounds of a run: share of its time or moves, and of the highest temperature. Each starts from the best so far, and
the first is short, so that a good schedule comes early; the last is what a single long run would be."""

HEAT = 0.03
"""Highest temperature as a share of the mean duration of an op: a schedule may get worse by a few ticks in a hundred of
one op at first, never by whole ops. Hotter runs lose the start and do not find back."""

WORTH_S = 1.5
"""Seconds below which no other process is started: it would hardly be loaded in the time."""

OnSchedule = Callable[[Schedule, int], None]
"""Called with each better schedule and its value, in ticks."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may take: moves for each worker, or time. By moves, the same input gives the same answer."""

    iterations: int | None
    deadline: float | None

    def part(self, share: float, of: float) -> Budget:
        """A share of what is left; `of` is what is left, as a share of the whole."""
        if self.iterations is not None:
            # Rounds by moves are not cut by time: who is slow would count.
            return Budget(round(self.iterations * share), self.deadline)
        assert self.deadline is not None
        now = time.monotonic()
        return Budget(None, now + (self.deadline - now) * share / of)


def anneal(
    problem: Problem,
    start: Schedule,
    objective: Objective = "makespan",
    *,
    iterations: int | None = None,
    deadline: float | None = None,
    seed: int = 0,
    workers: int = 1,
    target: int | None = None,
    on_schedule: OnSchedule | None = None,
    granularity: Granularity = ALL,
) -> Schedule:
    """A better schedule, by simulated annealing: orders of ops, what is fused, and ranges of weight gradients.

    A move lets an op, or a few neighbours together, change places with the ops next to them on the same rank; or it
    makes a backward fused or split, cuts a weight gradient in two, or puts two ranges of one together. Moves that
    break the data flow or a memory limit are turned down, and so are nearly all that make things worse than the
    temperature allows, by a look at the ops they touch: see `kernel.anneal`. Micro-batch sizes stay as they are. F's
    of a stage keep their order, and so do its backwards.

    Parameters
    ----------
    problem, start
        A valid schedule of the problem within its limits.
    objective
        "makespan" or "span".
    iterations
        Moves to propose by each worker. The answer then depends on the arguments alone (unless the deadline comes
        first).
    deadline
        Value of `time.monotonic()` at which to stop. At least one of `iterations` and `deadline` is needed.
    seed
        Of the first worker; worker w has seed + w.
    workers
        Processes, this one among them. Each goes its own way; before each round all take over the best.
    target
        Stop at a value of at most this; a lower bound.
    on_schedule
        Told of each better schedule as it is found.
    granularity
        What may be chosen: `fused`, where a fused backward is cheaper or holds less anywhere, and `units`. Where that
        is off, `start` has no fused backwards, or no ranges, and neither has the answer.

    Returns
    -------
    Schedule
        The best; `start` where nothing better was found.

    Examples
    --------
    >>> from adaptpipe.solver.heuristics import one_f_one_b_split
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 4}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> from adaptpipe.solver import simulate
    >>> start = one_f_one_b_split(problem, None)
    >>> better = anneal(problem, start, iterations=20_000)
    >>> simulate(problem, start).makespan, simulate(problem, better).makespan
    (14, 13)
    """
    assert iterations is not None or deadline is not None, "a run needs an end"
    if len(start.table.stage) == 0 or (deadline is not None and time.monotonic() >= deadline):
        return start
    budget, goal = Budget(iterations, deadline), -1 if target is None else target
    state = State(problem, start, objective, seed, granularity)
    heat = HEAT * state.mean_ticks
    reported = state.best

    def report() -> None:
        nonlocal reported
        if state.best < reported:
            reported = state.best
            if on_schedule is not None:
                on_schedule(state.best_schedule(), reported)

    if iterations is None and deadline is not None and deadline - time.monotonic() < WORTH_S:
        workers = 1
    left = 1.0
    with Team(state, workers - 1, seed) as team:
        for share, warmth in ROUNDS:
            if state.best <= goal:
                break
            part = budget.part(share, left)
            left -= share
            team.round(part.iterations, part.deadline, heat * warmth, goal, report)
    return state.best_schedule() if state.best < state.started else start
