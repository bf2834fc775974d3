"""From the order binaries of a solution to a schedule."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.ops import Kind, Op
from ..core.schedule import Schedule
from .sets import FORWARD, WEIGHT
from .variables import Variables


def schedule_of(v: Variables, values: Mapping[str, float]) -> Schedule:
    """Ops of each rank in order: an op's place is the number of those that come before it.

    Times are not looked at, so that what the solver allows itself in them does no harm.
    """
    sets = v.sets
    instance = sets.prices.instance
    fused = {key for key, variable in v.fused.items() if values[variable.name] > 0.5}
    rows: list[list[int]] = [[] for _ in range(instance.ranks)]
    for node in range(sets.count):
        row, stage, microbatch = sets.parts(node)
        if row != WEIGHT or (stage, microbatch) not in fused:
            rows[int(sets.rank[node])].append(node)
    chosen = {pair for pair, variable in v.order.items() if values[variable.name] > 0.5}

    def first(one: int, other: int) -> bool:
        if sets.known[one, other] or sets.known[other, one]:
            return bool(sets.known[one, other])
        return (one, other) in chosen if one < other else (other, one) not in chosen

    def op(node: int) -> Op:
        row, stage, microbatch = sets.parts(node)
        whole = (stage, microbatch) in fused
        kind = Kind.F if row == FORWARD else Kind.W if row == WEIGHT else Kind.B if whole else Kind.I
        return Op(stage, kind, microbatch)

    ops = []
    for nodes in rows:
        place = {node: sum(first(other, node) for other in nodes if other != node) for node in nodes}
        ops.append(tuple(op(node) for node in sorted(nodes, key=lambda node: (place[node], node))))
    return Schedule(instance.problem.placement, instance.sizes, tuple(ops), instance.problem.slice_count)
