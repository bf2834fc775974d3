"""The greedy list scheduler at one division of the batch after another."""

from __future__ import annotations

import numpy as np

from ..core.instance import UNLIMITED
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array, Schedule
from ..greedy import decode, kernel
from ..greedy.policy import Policy
from .tables import single_sizes


class Trial:
    """One run of the greedy at a time, for any division and policy; no more is done again than the division needs.

    An `Instance` of a division takes ten times as long as such a run.

    Parameters
    ----------
    problem, objective
        As for `greedy`.
    fused
        Whether policies may fuse backwards.
    """

    def __init__(self, problem: Problem, objective: Objective, fused: bool = True) -> None:
        self.problem, self.span, self._fused = problem, objective == "span", fused
        placement = problem.placement
        instances = single_sizes(problem)
        self._number = {size: z for z, size in enumerate(problem.sizes)}
        self._directions, self._width = placement.directions, len(problem.sizes)
        lags = [each.lag.reshape(3, problem.stages, self._directions, 2) for each in instances]
        columns = [
            (
                each.rank, each.forward, each.backward_input, each.backward_weight, each.backward,
                lag[0, :, :, 0], lag[1, :, :, 1], each.activation, each.retained,
            )
            for each, lag in zip(instances, lags, strict=True)
        ]  # fmt: skip
        # Kind of price, stage, direction and size.
        table = np.stack([np.stack(column) for column in columns], axis=-1)
        self._table: Array = table.reshape(len(columns[0]), problem.stages, -1)
        chunks = [chunk for row in placement.held for chunk in row]
        self.first = np.cumsum([0] + [len(row) for row in placement.held], dtype=np.int64)
        self.stage = np.array([stage for _, stage in chunks], dtype=np.int64)
        self._way = np.array([direction for direction, _ in chunks], dtype=np.int64)
        limit, static = instances[0].limit, instances[0].static
        self._room = np.where(limit >= UNLIMITED, UNLIMITED, limit - static)
        self._most = int(np.diff(self.first).max())
        self.sizes: tuple[int, ...] = ()
        self.runs = 0

    def divide(self, sizes: tuple[int, ...]) -> None:
        """Go over to another division."""
        if sizes == self.sizes:
            return
        self.sizes, count = sizes, len(sizes)
        which = np.array([self._number[size] for size in sizes], dtype=np.int64)
        half = count if self._directions == 1 else (count + 1) // 2
        which[half:] += self._width
        self._now = np.ascontiguousarray(self._table[:, :, which])
        self._low, self._high = np.where(self._way == 0, 0, half), np.where(self._way == 0, half, count)
        self._codes = np.zeros((self.problem.ranks, 3 * self._most * count), dtype=np.int64)
        self._made = np.zeros(self.problem.ranks, dtype=np.int64)
        work = np.zeros(self.problem.ranks, dtype=np.int64)
        rank, forward, backward_input, backward_weight, backward = self._now[:5]
        np.add.at(work, rank, forward + np.minimum(backward, backward_input + backward_weight))
        self._work = int(work.max()) // count

    def value(self, policy: Policy, below: int = kernel.FAR) -> int | None:
        """Value of a policy at the division, in ticks; None where it is not below `below`, or runs out of memory."""
        now, count, rules = self._now, len(self.sizes), policy.rules
        if not self._fused:
            rules = rules.copy()
            rules[:, kernel.FUSE] = kernel.NEVER_FUSE
        self.runs += 1
        value = kernel.run(
            self.first, self.stage, self._low, self._high, now[0], now[1], now[2], now[3], now[4], now[5], now[6],
            now[7], now[8], self._room, np.minimum(policy.ahead, count), policy.release(count, self._work),
            rules, self.span, below, self._codes, self._made, *kernel.WHOLE, 1,
        )  # fmt: skip
        return None if value >= below else int(value)

    def schedule(self) -> Schedule:
        """Schedule of the last run that had a value."""
        return decode(self.problem, self.sizes, self._codes, self._made)
