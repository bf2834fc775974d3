"""Greedy list scheduling under many policies, within the memory limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random

import numpy as np

from ..bounds.need import infeasible
from ..core.instance import UNLIMITED, Instance
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array, Schedule
from . import greedy_kernel as kernel
from .policy import Policy, fusing_helps, grid, vary, work_each

_STEPS = 10_000_000
"""Ops scheduled while varying the best policy: some seconds."""

_MOST = 3_000
"""Variations tried at most."""


def greedy(
    problem: Problem,
    sizes: tuple[int, ...] | None = None,
    objective: Objective = "makespan",
    deadline: float | None = None,
    on_schedule: Callable[[Schedule, int], None] | None = None,
    target: int | None = None,
) -> Schedule | None:
    """Best schedule of an event-driven list scheduler under many policies, within every rank's limit.

    Each rank, when it is free, runs the best op that can start, by the policy; see `policy.Policy`. First come the
    policies of a grid, then small changes of the best one, rank by rank. A banker's test keeps enough memory for the
    micro-batches under way to be finished one after another, oldest first. So no policy ever gets stuck, on any
    placement: where running the micro-batches one after another fits, a schedule is returned.

    Parameters
    ----------
    problem, sizes
        Sizes None: the problem's default.
    objective
        "makespan" or "span".
    deadline
        Value of `time.monotonic()` after which no further policy is tried; the first one always is. Without it the
        same input gives the same schedule.
    on_schedule
        Called with each better schedule and its value.
    target
        Stop at a value of at most this; a lower bound.

    Returns
    -------
    Schedule or None
        None where not even one micro-batch at a time fits in memory.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 2}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in greedy(problem, target=7).ops]
    ['0F0 0F1 0I0 0W0 0I1 0W1', '1F0 1I0 1F1 1I1 1W0 1W1']
    """
    instance = problem.instance(problem.default_sizes() if sizes is None else sizes)
    if infeasible(problem, instance.sizes):
        return None
    search = Search(instance, objective)
    for better in search.run(deadline):
        if better and on_schedule is not None:
            on_schedule(search.schedule(), search.best)
        if target is not None and search.best <= target:
            break
    assert search.policy is not None, "the banker's test left every policy stuck"
    return search.schedule()


class Search:
    """The best run so far, and the arrays that every run shares."""

    policy: Policy | None

    def __init__(self, instance: Instance, objective: Objective) -> None:
        self.instance, self.span = instance, objective == "span"
        self.best, self.policy = kernel.FAR, None
        placement, count = instance.problem.placement, instance.microbatches
        half = count if placement.directions == 1 else (count + 1) // 2
        chunks = [chunk for row in placement.held for chunk in row]
        self._first = np.cumsum([0] + [len(row) for row in placement.held], dtype=np.int64)
        self._stage = np.array([stage for _, stage in chunks], dtype=np.int64)
        self._low = np.array([0 if direction == 0 else half for direction, _ in chunks], dtype=np.int64)
        self._high = np.array([half if direction == 0 else count for direction, _ in chunks], dtype=np.int64)
        lag = instance.lag.reshape(3, instance.stages, count, 2)
        self._lag_forward: Array = np.ascontiguousarray(lag[0, :, :, 0])
        self._lag_backward: Array = np.ascontiguousarray(lag[1, :, :, 1])
        self._room = np.where(instance.limit >= UNLIMITED, UNLIMITED, instance.limit - instance.static)
        ops = np.add.reduceat(self._high - self._low, self._first[:-1])
        self._work = work_each(instance)
        self._codes = np.zeros((instance.ranks, 3 * int(ops.max())), dtype=np.int64)
        self._made = np.zeros(instance.ranks, dtype=np.int64)
        self._best_codes, self._best_made = self._codes.copy(), self._made.copy()

    def grid(self) -> Iterator[Policy]:
        """The policies to start from."""
        return grid(self.instance, self.instance.stages - self._stage)

    def run(self, deadline: float | None) -> Iterator[bool]:
        """Try policies until the deadline or the end of the search; whether each is better than all before."""

        def in_time() -> bool:
            return self.policy is None or deadline is None or time.monotonic() < deadline

        for policy in self.grid():
            if not in_time():
                return
            yield self._took(policy, self.best)
        random, ops = Random(0), 3 * self.instance.stages * self.instance.microbatches
        fusing = fusing_helps(self.instance)
        for _ in range(min(_MOST, 30 * ops, _STEPS // ops)):
            if not in_time() or self.policy is None:
                return
            # Steps to the side are taken too: many changes of a policy change nothing by themselves.
            yield self._took(vary(self.policy, self.instance, random, fusing), self.best + 1)

    def _took(self, policy: Policy, below: int) -> bool:
        before = self.best
        return self.attempt(policy, below) is not None and self.best < before

    def attempt(self, policy: Policy, below: int) -> int | None:
        """Run a policy and take it over if its value is below a bound, else None; the first run of a value is kept."""
        x = self.instance
        value = kernel.run(
            self._first, self._stage, self._low, self._high, x.rank,
            x.forward, x.backward_input, x.backward_weight, x.backward, self._lag_forward, self._lag_backward,
            x.activation, x.retained, self._room, policy.ahead, policy.release(x.microbatches, self._work),
            policy.rules, self.span, below, self._codes, self._made,
        )  # fmt: skip
        if value >= below:
            return None
        if value != self.best:
            self._codes, self._best_codes = self._best_codes, self._codes
            self._made, self._best_made = self._best_made, self._made
        self.best, self.policy = int(value), policy
        return self.best

    def schedule(self) -> Schedule:
        """The best run as a schedule."""
        return decode(self.instance.problem, self.instance.sizes, self._best_codes, self._best_made)


def decode(problem: Problem, sizes: tuple[int, ...], codes: Array, made: Array) -> Schedule:
    """The schedule that a run of the kernel has left in its arrays."""
    kinds, count = {int(kind): kind for kind in Kind}, len(sizes)
    rows = []
    for row, length in zip(codes, made.tolist(), strict=True):
        ops = []
        for code in row[:length].tolist():
            rest, j = divmod(code, count)
            kind, stage = divmod(rest, problem.stages)
            ops.append(Op(stage, kinds[kind], j))
        rows.append(tuple(ops))
    return Schedule(problem.placement, sizes, tuple(rows))
