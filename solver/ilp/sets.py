"""What is known before any search: the ops, which pairs have a known order, and the window of each start."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import networkx as nx
import numpy as np

from ..core.schedule import Array
from ..cpsat.prices import Mask, Prices

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
"""Rows of ops, as in `core.precedence`."""


@dataclass(frozen=True)
class Sets:
    """The ops of an instance, numbered as the nodes of `core.precedence`: F, then I or B, then W.

    A fused backward is a longer, or shorter, I with a W of no duration: it stands for nothing, and is dropped when the
    schedule is read.

    Parameters
    ----------
    prices
        The instance on the model's clock.
    """

    prices: Prices

    @property
    def count(self) -> int:
        """Number of ops, n."""
        return 3 * self.prices.instance.stages * self.prices.instance.microbatches

    def node(self, row: int, stage: int, microbatch: int) -> int:
        """Number of an op."""
        instance = self.prices.instance
        return (row * instance.stages + stage) * instance.microbatches + microbatch

    def parts(self, node: int) -> tuple[int, int, int]:
        """Row, stage and micro-batch of an op."""
        instance = self.prices.instance
        row, rest = divmod(node, instance.stages * instance.microbatches)
        return row, *divmod(rest, instance.microbatches)

    @cached_property
    def rank(self) -> Array:
        """Rank of each op, shape (n,)."""
        return np.tile(self.prices.instance.rank.reshape(-1), 3)

    @cached_property
    def split(self) -> Array:
        """Ticks of each op when the backward is not fused, in steps, shape (n,)."""
        p = self.prices
        return np.concatenate([part.reshape(-1) for part in (p.forward, p.backward_input, p.backward_weight)])

    @cached_property
    def fused(self) -> Array:
        """Ticks of each op when the backward is fused where it may be, in steps, shape (n,)."""
        p = self.prices
        backward = np.where(p.fusible, p.backward, p.backward_input)
        weight = np.where(p.fusible, 0, p.backward_weight)
        return np.concatenate([part.reshape(-1) for part in (p.forward, backward, weight)])

    @cached_property
    def least(self) -> Array:
        """The less of the two, shape (n,)."""
        return np.minimum(self.split, self.fused)

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The micro-batches that are alike, in order."""
        p = self.prices
        return tuple(
            tuple(sorted(np.flatnonzero(p.group == g).tolist(), key=lambda j: int(p.place[j])))
            for g in range(int(p.group.max()) + 1)
        )

    @cached_property
    def flow(self) -> tuple[tuple[int, int, int], ...]:
        """(op, op that needs it, message time in steps)."""
        before = self.prices.instance.before
        return tuple(
            (int(before[node, slot]), int(node), int(self.prices.lag[node, slot]))
            for node, slot in zip(*(before >= 0).nonzero(), strict=True)
        )

    @cached_property
    def queue(self) -> tuple[tuple[int, int], ...]:
        """(op, the next op of its kind on its stage), where micro-batches that are alike pass in order.

        Without loss: the n-th F of a stage needs only that n micro-batches of the class have arrived, and memory
        depends on how many ops are done, not whose. Exchanging labels puts the F's in order, and likewise the
        backwards. A W keeps to its own I, unless nothing may be fused: then W's too may be exchanged.
        """
        found = []
        for members in self.classes:
            for s in range(self.prices.instance.stages):
                rows = [FORWARD, BACKWARD] + ([] if self.prices.fusible[s, list(members)].any() else [WEIGHT])
                found += [(self.node(row, s, i), self.node(row, s, j)) for row in rows for i, j in pairwise(members)]
        return tuple(found)

    @cached_property
    def graph(self) -> nx.DiGraph[int]:
        """Data flow and queues; each edge has its message time."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(self.count))
        graph.add_edges_from((one, other, {"lag": 0}) for one, other in self.queue)
        graph.add_edges_from((one, other, {"lag": lag}) for one, other, lag in self.flow)
        return graph

    @cached_property
    def sequence(self) -> tuple[int, ...]:
        """The ops in an order that the graph allows."""
        return tuple(nx.topological_sort(self.graph))

    @cached_property
    def known(self) -> Mask:
        """Whether one op comes before another in any case, shape (n, n)."""
        known = np.zeros((self.count, self.count), dtype=np.bool_)
        for node in self.sequence:
            for source in self.graph.predecessors(node):
                known[:, node] |= known[:, source]
                known[source, node] = True
        return known

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of ops of one rank whose order is a choice; the lower number first."""
        apart = ~(self.known | self.known.T) & (self.rank[:, None] == self.rank[None, :])
        return tuple((int(a), int(b)) for a, b in np.argwhere(np.triu(apart, 1)))

    @cached_property
    def head(self) -> Array:
        """Earliest start of each op, in steps, shape (n,)."""
        head = np.zeros(self.count, dtype=np.int64)
        for node in self.sequence:
            for source in self.graph.predecessors(node):
                ready = head[source] + self.least[source] + self.graph.edges[source, node]["lag"]
                head[node] = max(head[node], ready)
        return head

    @cached_property
    def tail(self) -> Array:
        """Least time from the end of each op to the end of all, in steps, shape (n,)."""
        tail = np.zeros(self.count, dtype=np.int64)
        for node in reversed(self.sequence):
            for other in self.graph.successors(node):
                left = self.graph.edges[node, other]["lag"] + self.least[other] + tail[other]
                tail[node] = max(tail[node], left)
        return tail

    @cached_property
    def instant(self) -> Mask:
        """Which ops may take no time at all, shape (n,).

        A W that does so only because its backward is fused is left out: it stands for nothing.
        """
        found: Mask = self.least == 0
        weight = slice(self.count // 3 * 2, None)
        found[weight] = self.split[weight] == 0
        return found
