"""Longest paths through the data flow: what every bound starts from."""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from ..core.instance import Instance
from ..core.schedule import Array

F, PASS, REST = 0, 1, 2
"""Rows of the nodes: forward; the least time until the gradient is passed on; what then is left of the backward."""

NEVER = -(2**62)
"""Length of a path that does not exist."""


class Paths:
    """Least durations of an instance's nodes and the longest paths between them.

    An I and a B share a node. Whichever is chosen, the gradient is passed on no sooner than `min(I, B)` after the
    backward starts, and the rank works on it for `min(B, I + W)` at least; the difference is put on the node of W.

    Parameters
    ----------
    instance
        The problem with its sizes fixed.

    Attributes
    ----------
    ticks
        Least duration of each node, shape (3, S, m).
    before, lag
        Predecessor nodes (-1: none) and message times, shape (3, S, m, 2).
    order
        (row, stage) of every node, predecessors first.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        stages, count = instance.stages, instance.microbatches
        whole = np.minimum(instance.backward, instance.backward_input + instance.backward_weight)
        passed = np.minimum(instance.backward_input, instance.backward)
        self.ticks: Array = np.stack([instance.forward, passed, whole - passed])
        self.before: Array = instance.before.reshape(3, stages, count, 2)
        self.lag: Array = instance.lag.reshape(3, stages, count, 2)
        # Every micro-batch has the same predecessors among its own nodes: read them off the first.
        source = self.before[:, :, 0, :]
        self._source = np.where(source >= 0, source // count, -1)
        self.order = self._topological()

    @cached_property
    def whole(self) -> Array:
        """Least time that a rank works on a backward, weight gradient included, shape (S, m)."""
        whole: Array = self.ticks[PASS] + self.ticks[REST]
        return whole

    def _topological(self) -> tuple[tuple[int, int], ...]:
        stages, done, order = self.instance.stages, set[int](), list[tuple[int, int]]()
        waiting = list(range(3 * stages))
        while waiting:
            later = []
            for node in waiting:
                row, stage = divmod(node, stages)
                if all(source < 0 or int(source) in done for source in self._source[row, stage]):
                    done.add(node)
                    order.append((row, stage))
                else:
                    later.append(node)
            # Backwards become ready from the last stage on: look at the rest in the opposite direction.
            waiting = later[::-1]
        return tuple(order)

    def _sweep(self, value: Array) -> Array:
        """Push start times along the edges, from where they are set, in place."""
        flat, ticks = value.reshape(-1, value.shape[-1]), self.ticks.reshape(-1, value.shape[-1])
        for row, stage in self.order:
            for slot in range(2):
                source = self._source[row, stage, slot]
                if source >= 0:
                    arrival = flat[source] + ticks[source] + self.lag[row, stage, :, slot]
                    np.maximum(value[row, stage], arrival, out=value[row, stage])
        return value

    @cached_property
    def head(self) -> Array:
        """Earliest start of every node, shape (3, S, m)."""
        return self._sweep(np.zeros_like(self.ticks))

    @cached_property
    def tail(self) -> Array:
        """Least time from the end of every node to the end of the schedule, shape (3, S, m)."""
        tail = np.zeros_like(self.ticks)
        flat, ticks = tail.reshape(-1, tail.shape[-1]), self.ticks
        for row, stage in reversed(self.order):
            for slot in range(2):
                source = self._source[row, stage, slot]
                if source >= 0:
                    rest = tail[row, stage] + ticks[row, stage] + self.lag[row, stage, :, slot]
                    np.maximum(flat[source], rest, out=flat[source])
        return tail

    def after(self, row: int, stage: int) -> Array:
        """Least time from the start of a node to the start of every other, shape (3, S, m); below 0: no path."""
        start = np.full_like(self.ticks, NEVER)
        start[row, stage] = 0
        return self._sweep(start)


@lru_cache(maxsize=16)
def paths(instance: Instance) -> Paths:
    """The paths of an instance, computed once."""
    return Paths(instance)
