"""Greedy list scheduling over a grid of policies, within the memory limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..core.instance import UNLIMITED, Instance
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array, Schedule
from . import greedy_kernel as kernel

_REACH = tuple(Fraction(k, 4) for k in (400, 4, 8, 6, 5, 7, 10, 12, 3))
"""Forwards ahead of the backwards, as a multiple of the stages still to come; the first is "as memory allows"."""

_WAIT = (0, 16, 8, 12, 4)
"""Sixteenths of a W that must fit into a gap before the next input."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How a rank chooses among the ops that it could run.

    Parameters
    ----------
    reach
        Micro-batches under way at a stage, at most, as a multiple of the number of stages from it to the last.
    priority
        Of a ready forward and a ready backward: 0 the backward, 1 the forward, 2 in turns.
    wait
        A W fills a gap when at least this many sixteenths of it fit before the next input on its way.
    keep
        Weight gradients that may be put off; beyond it one goes first.
    deep
        Whether the forward of a later stage goes before that of an earlier one on the same rank.
    fuse
        Whether every backward is fused.
    """

    reach: Fraction
    priority: int
    wait: int
    keep: int
    deep: bool
    fuse: bool


def policies(instance: Instance) -> Iterator[Policy]:
    """The grid, likely winners first: about 270 policies, twice that where a rank holds several stages."""
    several = instance.stages > instance.ranks or instance.problem.placement.directions > 1
    halves = instance.backward_input + instance.backward_weight
    never, always = 2**31, 0
    for fuse in (False, True):
        if fuse and not ((instance.backward < halves).any() or (instance.retained > instance.activation).any()):
            continue
        for keep in (always,) if fuse else (never, always):
            for wait in (0,) if keep == always else _WAIT:
                for deep in (True, False) if several else (True,):
                    for priority in (0, 2, 1):
                        for reach in _REACH:
                            yield Policy(reach, priority, wait, keep, deep, fuse)


def greedy(
    problem: Problem,
    sizes: tuple[int, ...] | None = None,
    objective: Objective = "makespan",
    deadline: float | None = None,
    on_schedule: Callable[[Schedule, int], None] | None = None,
    target: int | None = None,
) -> Schedule | None:
    """Best schedule of an event-driven list scheduler under some hundreds of policies, within every rank's limit.

    Each rank, when it is free, runs the best op that can start, by the policy; see `Policy`. A banker's test keeps
    enough memory for the micro-batches under way to be finished one after another, oldest first. So no policy ever
    gets stuck, on any placement: where running the micro-batches one after another fits, a schedule is returned.

    Parameters
    ----------
    problem, sizes
        Sizes None: the problem's default.
    objective
        "makespan" or "span".
    deadline
        Value of `time.monotonic()` after which no further policy is tried; the first one always is.
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
    >>> [" ".join(map(str, row)) for row in greedy(problem).ops]
    ['0F0 0F1 0I0 0W0 0I1 0W1', '1F0 1I0 1F1 1I1 1W0 1W1']
    """
    instance = problem.instance(problem.default_sizes() if sizes is None else sizes)
    if not _fits(instance):
        return None
    search = _Search(instance, objective)
    found: Schedule | None = None
    for policy in policies(instance):
        if found is not None and deadline is not None and time.monotonic() >= deadline:
            break
        if search.improve(policy):
            if found is None or on_schedule is not None:
                found = search.schedule()
            if on_schedule is not None:
                on_schedule(found, search.best)
            if target is not None and search.best <= target:
                break
    assert found is not None, "the banker's test left every policy stuck"
    return search.schedule()


def _fits(instance: Instance) -> bool:
    """Whether the micro-batches fit in memory one after another, with fused backwards."""
    need = np.zeros((instance.ranks, instance.microbatches), dtype=np.int64)
    for stage in range(instance.stages):
        for j in range(instance.microbatches):
            need[instance.rank[stage, j], j] += instance.activation[stage, j]
    return bool((instance.static + need.max(axis=1) <= instance.limit).all())


class _Search:
    """The best run so far, and the arrays that every run shares."""

    def __init__(self, instance: Instance, objective: Objective) -> None:
        self.instance, self.span = instance, objective == "span"
        self.best = kernel.FAR
        placement, count = instance.problem.placement, instance.microbatches
        half = count if placement.directions == 1 else (count + 1) // 2
        chunks = [chunk for row in placement.held for chunk in row]
        self._first = np.cumsum([0] + [len(row) for row in placement.held], dtype=np.int64)
        self._stage = np.array([stage for _, stage in chunks], dtype=np.int64)
        self._low = np.array([0 if direction == 0 else half for direction, _ in chunks], dtype=np.int64)
        self._high = np.array([half if direction == 0 else count for direction, _ in chunks], dtype=np.int64)
        lag = instance.lag.reshape(3, instance.stages, count, 2)
        self._lag_forward, self._lag_backward = (
            np.ascontiguousarray(lag[0, :, :, 0]),
            np.ascontiguousarray(lag[1, :, :, 1]),
        )
        self._room = np.where(instance.limit >= UNLIMITED, UNLIMITED, instance.limit - instance.static)
        most = 3 * int(max(self._ops_on(rank) for rank in range(instance.ranks)))
        self._codes = np.zeros((instance.ranks, most), dtype=np.int64)
        self._made = np.zeros(instance.ranks, dtype=np.int64)
        self._best_codes, self._best_made = self._codes.copy(), self._made.copy()

    def _ops_on(self, rank: int) -> int:
        chunks = slice(self._first[rank], self._first[rank + 1])
        return int((self._high[chunks] - self._low[chunks]).sum())

    def improve(self, policy: Policy) -> bool:
        """Run a policy; whether it is better than all before."""
        x = self.instance
        to_come = x.stages - self._stage
        ahead: Array = -(-to_come * policy.reach.numerator // policy.reach.denominator)
        rules = np.array([policy.priority, policy.deep, policy.keep, policy.fuse, policy.wait], dtype=np.int64)
        value = kernel.run(
            self._first, self._stage, self._low, self._high, x.rank,
            x.forward, x.backward_input, x.backward_weight, x.backward, self._lag_forward, self._lag_backward,
            x.activation, x.retained, self._room, ahead, rules, self.span, self.best, self._codes, self._made,
        )  # fmt: skip
        if value >= self.best:
            return False
        self.best = int(value)
        self._codes, self._best_codes = self._best_codes, self._codes
        self._made, self._best_made = self._best_made, self._made
        return True

    def schedule(self) -> Schedule:
        """The best run as a schedule."""
        x = self.instance
        kinds = {int(kind): kind for kind in Kind}
        rows = []
        for codes, made in zip(self._best_codes, self._best_made.tolist(), strict=True):
            row = []
            for code in codes[:made].tolist():
                rest, j = divmod(code, x.microbatches)
                kind, stage = divmod(rest, x.stages)
                row.append(Op(stage, kinds[kind], j))
            rows.append(tuple(row))
        return Schedule(x.problem.placement, x.sizes, tuple(rows))
