"""Longest paths through the data flow: what every bound starts from."""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from numba import njit

from ..core.instance import UNLIMITED, Instance
from ..core.schedule import Array

F, PASS, REST = 0, 1, 2
"""Rows of the nodes: forward; the least time until the gradient is passed on; what then is left of the backward."""

NEVER = -(2**62)
"""Length of a path that does not exist."""


class Paths:
    """Least durations of an instance's nodes and the longest paths between them.

    An I and a B share a node. Whichever is chosen, the gradient is passed on no sooner than `min(I, B)` after the
    backward starts, and the rank works on it for `min(B, I + W)` at least; the difference is put on the node of W.

    Micro-batches of one size and direction are of one *kind*: alike in everything. Paths are found once for each kind.
    Slices are of one kind where their prices are the same. That they take turns is left out: bounds hold without.

    Parameters
    ----------
    instance
        The problem with its sizes fixed.

    Attributes
    ----------
    ticks
        Least duration of each node, shape (3, S, m).
    fused_only
        Where memory does not let I run, which swells, so that only B is left; shape (S, m).
    retained
        Bytes that a backward may leave to a weight gradient: none where only B is left; shape (S, m).
    before, lag
        Predecessor nodes (-1: none) and message times, shape (3, S, m, 2).
    kind
        Kind of each micro-batch, shape (m,).
    one_of
        A micro-batch of each kind, shape (K,).
    count
        How many micro-batches are of each kind, shape (K,).
    direction
        Direction of each kind, shape (K,).
    order
        Row x S + stage of every node, predecessors first, shape (3 x S,).
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        stages, count = instance.stages, instance.microbatches
        self.fused_only = _fused_only(instance)
        split, fused = instance.backward_input + instance.backward_weight, instance.backward
        whole = np.where(self.fused_only, fused, np.minimum(fused, split))
        passed = np.where(self.fused_only, fused, np.minimum(fused, instance.backward_input))
        self.retained: Array = np.where(self.fused_only, 0, instance.retained)
        self.ticks: Array = np.stack([instance.forward, passed, whole - passed])
        self.before: Array = instance.before.reshape(3, stages, count, 2)
        self.lag: Array = instance.lag.reshape(3, stages, count, 2)

        ways = [instance.problem.placement.direction_of(j, count) for j in range(count)]
        names = np.array([ways, instance.alike], dtype=np.int64)
        kinds, one_of, kind, members = np.unique(
            names, axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        self.direction: Array = kinds[0]
        self.one_of: Array = one_of.astype(np.int64)
        self.kind: Array = kind.reshape(-1).astype(np.int64)
        self.count: Array = members.astype(np.int64)
        # Every micro-batch has the same predecessors among its own nodes: read them off the first.
        source = self.before[:, :, 0, :]
        self._source: Array = np.where(source >= 0, source // count, -1).reshape(3 * stages, 2)
        self._ticks: Array = np.ascontiguousarray(self.ticks[:, :, one_of].reshape(3 * stages, -1))
        self._lag: Array = np.ascontiguousarray(self.lag[:, :, one_of].reshape(3 * stages, -1, 2))
        self.order = self._topological()

    @cached_property
    def whole(self) -> Array:
        """Least time that a rank works on a backward, weight gradient included, shape (S, m)."""
        whole: Array = self.ticks[PASS] + self.ticks[REST]
        return whole

    @cached_property
    def ticks_of_kind(self) -> Array:
        """Least duration of each node, shape (3, S, K)."""
        return self._ticks.reshape(3, self.instance.stages, -1)

    @cached_property
    def whole_of_kind(self) -> Array:
        """The same of whole backwards, shape (S, K)."""
        whole: Array = self.ticks_of_kind[PASS] + self.ticks_of_kind[REST]
        return whole

    def _topological(self) -> Array:
        stages, done, order = self.instance.stages, set[int](), list[int]()
        waiting = list(range(3 * stages))
        while waiting:
            later = []
            for node in waiting:
                if all(source < 0 or source in done for source in self._source[node].tolist()):
                    done.add(node)
                    order.append(node)
                else:
                    later.append(node)
            # Backwards become ready from the last stage on: look at the rest in the opposite direction.
            waiting = later[::-1]
        return np.array(order, dtype=np.int64)

    def _wide(self, value: Array) -> Array:
        """From kinds to micro-batches."""
        wide: Array = value[:, :, self.kind]
        return wide

    @cached_property
    def head_of_kind(self) -> Array:
        """Earliest start of every node, shape (3, S, K)."""
        head = np.zeros_like(self._ticks)
        _push(self.order, self._source, self._ticks, self._lag, head)
        return head.reshape(self.ticks_of_kind.shape)

    @cached_property
    def head(self) -> Array:
        """Earliest start of every node, shape (3, S, m)."""
        return self._wide(self.head_of_kind)

    def tail_of_kind(self, base: Array) -> Array:
        """Longest way from the end of every node to the end of any node, plus that node's `base`; shapes (3, S, K)."""
        tail: Array = base.reshape(self._ticks.shape).copy()
        _pull(self.order, self._source, self._ticks, self._lag, tail)
        return tail.reshape(base.shape)

    @cached_property
    def tail(self) -> Array:
        """Least time from the end of every node to the end of the schedule, shape (3, S, m)."""
        return self._wide(self.tail_of_kind(np.zeros_like(self.ticks_of_kind)))

    def after_of_kind(self, row: int, stage: int) -> Array:
        """Least time from the start of a node to the start of every other, shape (3, S, K); below 0: no path."""
        start = np.full_like(self._ticks, NEVER)
        start[row * self.instance.stages + stage] = 0
        _push(self.order, self._source, self._ticks, self._lag, start)
        return start.reshape(self.ticks_of_kind.shape)

    def after(self, row: int, stage: int) -> Array:
        """The same for every micro-batch, shape (3, S, m)."""
        return self._wide(self.after_of_kind(row, stage))


def _fused_only(instance: Instance) -> npt.NDArray[np.bool_]:
    """Where I(s, j) cannot run: with what F took for j at the rank's stages before, it passes the limit."""
    swell = np.maximum(instance.retained - instance.activation, 0)
    if not swell.any():
        return np.zeros(swell.shape, dtype=np.bool_)
    taken = instance.activation.copy()
    for t in range(instance.stages):
        for s in range(t):
            taken[t] += np.where(instance.rank[s] == instance.rank[t], instance.activation[s], 0)
    limit = instance.limit[instance.rank]
    room = np.where(limit >= UNLIMITED, limit, limit - instance.static[instance.rank])
    over: npt.NDArray[np.bool_] = (swell > 0) & (taken + swell > room)
    return over


@njit(cache=True)
def _push(order: Array, source: Array, ticks: Array, lag: Array, start: Array) -> None:  # pragma: no cover
    """Push start times along the edges, from where they are set, in place."""
    for node in order:
        for slot in range(2):
            before = source[node, slot]
            if before >= 0:
                for k in range(start.shape[1]):
                    at = start[before, k] + ticks[before, k] + lag[node, k, slot]
                    if at > start[node, k]:
                        start[node, k] = at


@njit(cache=True)
def _pull(order: Array, source: Array, ticks: Array, lag: Array, tail: Array) -> None:  # pragma: no cover
    """Pull tails back along the edges, in place."""
    for index in range(len(order) - 1, -1, -1):
        node = order[index]
        for slot in range(2):
            before = source[node, slot]
            if before >= 0:
                for k in range(tail.shape[1]):
                    rest = tail[node, k] + ticks[node, k] + lag[node, k, slot]
                    if rest > tail[before, k]:
                        tail[before, k] = rest


@lru_cache(maxsize=16)
def paths(instance: Instance) -> Paths:
    """The paths of an instance, computed once."""
    return Paths(instance)
