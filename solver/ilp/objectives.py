"""What is minimised, and what makes the span that of the simulator, where every op starts as early as it can."""

from __future__ import annotations

import pulp

from .sets import FORWARD, Sets
from .variables import Linear, Variables


def makespan(v: Variables) -> None:
    """The objective is no less than the end of any backward and W."""
    for _, backward, weight in v.triples():
        v.model += v.value >= v.end(backward)
        v.model += v.value >= v.end(weight)


def span(v: Variables) -> None:
    """The objective is no less than the time from a rank's first start to the end of any of its backwards and W's."""
    for forward, backward, weight in v.triples():
        first = v.first[int(v.sets.rank[forward])]
        v.model += first <= v.start[forward]
        v.model += v.value >= v.end(backward) - first
        v.model += v.value >= v.end(weight) - first


def in_a_row(sets: Sets) -> tuple[int, ...] | None:
    """The first op of each rank, where that is known: one class of micro-batches, whose first goes once round the
    ranks before it comes to any of them again. None elsewhere."""
    if len(sets.classes) > 1:
        return None
    first = sets.classes[0][0]
    ranks = sets.prices.instance.rank[:, first].tolist()
    count = sets.prices.instance.ranks
    if len(set(ranks[:count])) < count:
        return None
    return tuple(sets.node(FORWARD, stage, first) for stage in range(count))


def first_ops_at_once(v: Variables) -> None:
    """Every rank starts as soon as the first micro-batch reaches it, as in the simulator."""
    for node in in_a_row(v.sets) or ():
        v.model += v.start[node] == int(v.sets.head[node])


def forwards_at_once(v: Variables) -> None:
    """Every F starts at 0, when its input arrives, or when another F of its rank ends, as in the simulator.

    Otherwise a rank's first start might be put off, to make its span less, which no order of ops says. Only F's come
    before a rank's first op, because every micro-batch needs every rank before its first backward; so an F with a
    backward before it on its rank may start at any time.
    """
    if in_a_row(v.sets) is not None:
        return
    sets, third = v.sets, v.sets.count // 3
    inputs = {other: (one, lag) for one, other, lag in sets.flow if other < third}
    for node in range(third):
        not_after = [
            n for n in range(2 * third) if sets.rank[n] == sets.rank[node] and n != node and not sets.known[node, n]
        ]
        source, lag = inputs.get(node, (-1, 0))
        _tight(v, node, node, 0 if source < 0 else v.end(source) + lag, 0 if source < 0 else _ended(sets, source) + lag)
        for other in (n for n in not_after if n < third):
            choice = _tight(v, node, other, v.end(other), _ended(sets, other))
            v.model += choice <= v.before(other, node)
        backwards = [n for n in not_after if n >= third]
        if backwards:
            late = v.tight[node, -1] = v.model.add_variable(f"tight{v.name(node)}_late", cat=pulp.LpBinary)
            v.model += late <= pulp.lpSum(v.before(n, node) for n in backwards)
        v.model += pulp.lpSum(choice for (one, _), choice in v.tight.items() if one == node) == 1


def _tight(v: Variables, node: int, other: int, moment: Linear, soonest: int) -> pulp.LpVariable:
    """A binary that, when 1, has an op start no later than a moment, which is `soonest` at the least."""
    choice = v.tight[node, other] = v.model.add_variable(f"tight{v.name(node)}{v.name(other)}", cat=pulp.LpBinary)
    v.model += v.start[node] <= moment + max(0, v.last(node) - soonest) * (1 - choice)
    return choice


def _ended(sets: Sets, node: int) -> int:
    return int(sets.head[node] + sets.least[node])
