"""Greedy list scheduling under many policies, within the memory limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random

import numpy as np

from ..bounds.need import infeasible
from ..core.granularity import ALL, Granularity
from ..core.instance import UNLIMITED, Instance
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array, Schedule
from . import kernel
from .policy import Policy, change, cutting_helps, fusing_helps, grid, refined_grid, work_each

_STEPS = 10_000_000
"""Ops scheduled while varying the best policy: some seconds."""

_MOST = 3_000
"""Variations tried at most."""

_COARSE = Granularity(fused=False, units=False)

_COARSE_SHARE = 0.4
"""Share of the time that the search without fused backwards and ranges takes, where there is more to choose."""


def greedy(
    problem: Problem,
    sizes: tuple[int, ...] | None = None,
    objective: Objective = "makespan",
    deadline: float | None = None,
    on_schedule: Callable[[Schedule, int], None] | None = None,
    target: int | None = None,
    *,
    granularity: Granularity = ALL,
) -> Schedule | None:
    """Best schedule of an event-driven list scheduler under many policies, within every rank's limit.

    Each rank, when it is free, runs the best op that can start, by the policy; see `policy.Policy`. First come the
    policies of a grid, then small changes of the best one, rank by rank. A banker's test keeps enough memory for the
    micro-batches under way to be finished one after another, oldest first. So no policy ever gets stuck, on any
    placement: where running the micro-batches one after another fits, a schedule is returned.

    The search is first one without fused backwards and ranges of weight units. Then come policies that fuse and cut,
    and changes of the best. So without a deadline the result is never worse than with neither to be chosen.

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
    granularity
        What may be chosen beside the order. The micro-batch sizes are never.

    Returns
    -------
    Schedule or None
        None where not even one micro-batch at a time fits in memory; or, without fused backwards, where no schedule was
        found that fits.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 2}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in greedy(problem, target=7).ops]
    ['0F0 0F1 0I0 0W0 0I1 0W1', '1F0 1I0 1F1 1I1 1W0 1W1']
    """
    instance = problem.instance(problem.default_sizes() if sizes is None else sizes)
    if infeasible(problem, instance.sizes, fused=granularity.fused):
        return None
    coarse = _COARSE.restricted(problem).instance(instance.sizes)
    search = Search(coarse, objective, _COARSE)
    free = Granularity(
        granularity.fused and fusing_helps(instance), granularity.units and cutting_helps(instance), False
    )
    choice = free.fused or free.units
    until = deadline
    if deadline is not None and choice:
        until = time.monotonic() + _COARSE_SHARE * max(0.0, deadline - time.monotonic())
    for each, end in ((search, until), (None, deadline)):
        if each is None:
            if not choice:
                break
            search = search.refined(instance, free)
        for better in search.run(end):
            if better and on_schedule is not None:
                on_schedule(search.schedule(), search.best)
            if target is not None and search.best <= target:
                return search.schedule()
    return None if search.policy is None else search.schedule()


class Search:
    """The best run so far, and the arrays that every run shares."""

    policy: Policy | None

    def __init__(self, instance: Instance, objective: Objective, free: Granularity = ALL) -> None:
        self.instance, self.objective, self.free = instance, objective, free
        self.refines = False
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
        units = instance.unit_ticks.shape[2] - 1 if free.units else 1
        self._units = (
            kernel.WHOLE
            if units == 1
            else (
                np.array([len(row) for row in instance.problem.weight_units], dtype=np.int64),
                instance.unit_ticks,
                instance.unit_bytes,
                instance.overhead,
            )
        )
        self._codes = np.zeros((instance.ranks, (2 + units) * int(ops.max())), dtype=np.int64)
        self._made = np.zeros(instance.ranks, dtype=np.int64)
        self._best_codes, self._best_made = self._codes.copy(), self._made.copy()

    def refined(self, instance: Instance, free: Granularity) -> Search:
        """A search that goes on from the best of this one, with policies that fuse and cut as they are free to.

        `instance` is that of the problem in which such ops have their own prices.
        """
        search = Search(instance, self.objective, free)
        search.best, search.policy, search.refines = self.best, self.policy, True
        search._best_codes[:, : self._best_codes.shape[1]] = self._best_codes
        search._best_made[:] = self._best_made
        return search

    def grid(self) -> Iterator[Policy]:
        """The policies to start from."""
        to_come = self.instance.stages - self._stage
        if self.refines:
            return refined_grid(self.instance, to_come, self.free.fused, self.free.units)
        return grid(self.instance, to_come, self.free.fused)

    def run(self, deadline: float | None) -> Iterator[bool]:
        """Try policies until the deadline or the end of the search, one at least; whether each is better than all
        before."""

        def late() -> bool:
            return deadline is not None and time.monotonic() >= deadline

        for index, policy in enumerate(self.grid()):
            if index and late():
                return
            yield self._took(policy, self.best)
        random, ops = Random(0), 3 * self.instance.stages * self.instance.microbatches
        fusing = self.free.fused and fusing_helps(self.instance)
        cutting = self._units is not kernel.WHOLE
        for _ in range(min(_MOST, 30 * ops, _STEPS // ops)):
            if late() or self.policy is None:
                return
            # Steps to the side are taken too: many changes of a policy change nothing by themselves.
            varied = change(self.policy, self.instance.microbatches, random, fusing, cutting)
            yield self._took(varied, self.best + 1)

    def _took(self, policy: Policy, below: int) -> bool:
        before = self.best
        return self.attempt(policy, below) is not None and self.best < before

    def attempt(self, policy: Policy, below: int) -> int | None:
        """Run a policy and take it over if its value is below a bound, else None; the first run of a value is kept."""
        x, rules = self.instance, policy.rules
        if not self.free.fused:
            rules = rules.copy()
            rules[:, kernel.FUSE] = kernel.NEVER_FUSE
        value = kernel.run(
            self._first, self._stage, self._low, self._high, x.rank,
            x.forward, x.backward_input, x.backward_weight, x.backward, self._lag_forward, self._lag_backward,
            x.activation, x.retained, self._room, policy.ahead, policy.release(x.microbatches, self._work),
            rules, self.objective == "span", below, self._codes, self._made, *self._units,
            x.problem.slice_count,
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
    width = 1 + max(len(units) for units in problem.weight_units)
    rows = []
    for row, length in zip(codes, made.tolist(), strict=True):
        ops = []
        for code in row[:length].tolist():
            rest, j = divmod(code, count)
            rest, stage = divmod(rest, problem.stages)
            piece, kind = divmod(rest, 4)
            ops.append(Op(stage, kinds[kind], j, divmod(piece - 1, width) if piece else None))
        rows.append(tuple(ops))
    return Schedule(problem.placement, sizes, tuple(rows), problem.slice_count)
