"""The true optimum of tiny problems, by trying every order: no model, no bound, no symmetry of stages."""

from __future__ import annotations

from adaptpipe.solver.core.instance import Instance
from adaptpipe.solver.core.precedence import RULES
from adaptpipe.solver.core.result import Objective

Op = tuple[int, int, int]
"""(kind, stage, micro-batch); kinds 0 F, 1 I, 2 W, 3 B."""

State = dict[Op, int]
"""End of every op that was run."""


def optimum(instance: Instance, objective: Objective = "makespan") -> int | None:
    """Least objective value of any schedule with whole weight gradients; None where none keeps the limits.

    Every rank's order is built up op by op, each started as early as it can. States with the same ops done are compared
    in all that the future depends on: when each rank is free, when it began, and when the inputs of ops to come
    arrive. A state that is no better in anything than another is dropped; nothing else is.
    """
    stages, count, ranks = instance.stages, instance.microbatches, instance.ranks
    lag = instance.lag.reshape(3, stages, count, 2)
    ticks = (instance.forward, instance.backward_input, instance.backward_weight, instance.backward)
    alike = len(set(instance.sizes)) == 1 and instance.problem.placement.directions == 1

    def inputs(op: Op, end: State) -> int | None:
        kind, s, j = op
        arrival = 0
        row = 1 if kind == 3 else kind
        for slot, (source, offset) in enumerate(RULES[row]):
            if not 0 <= s + offset < stages:
                continue
            made = [end[k, s + offset, j] for k in ((1, 3) if source == 1 else (source,)) if (k, s + offset, j) in end]
            if not made:
                return None
            arrival = max(arrival, made[0] + int(lag[row, s, j, slot]))
        return arrival

    def held(rank: int, end: State) -> int:
        total = int(instance.static[rank])
        for kind, s, j in end:
            if instance.rank[s, j] == rank:
                activation, retained = int(instance.activation[s, j]), int(instance.retained[s, j])
                total += (activation, retained - activation, -retained, -activation)[kind]
        return total

    def fits(op: Op, rank: int, end: State) -> bool:
        kind, s, j = op
        activation, retained = int(instance.activation[s, j]), int(instance.retained[s, j])
        extra = (activation, max(0, retained - activation), 0, 0)[kind]
        return held(rank, end) + extra <= int(instance.limit[rank])

    def options(end: State) -> list[Op]:
        found = []
        for s in range(stages):
            for j in range(count):
                if (0, s, j) not in end:
                    found.append((0, s, j))
                elif (1, s, j) in end:
                    if (2, s, j) not in end:
                        found.append((2, s, j))
                elif (3, s, j) not in end:
                    found += [(1, s, j), (3, s, j)]
        return found

    def signature(end: State) -> tuple[object, ...]:
        rows: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for kind, s, j in end:
            rows[j].append((kind, s))
        keys = [tuple(sorted(row)) for row in rows]
        return tuple(sorted(keys)) if alike else tuple(keys)

    def future(end: State, free: tuple[int, ...], began: tuple[int, ...]) -> tuple[int, ...]:
        # What ops to come wait for: messages to other ranks, where they arrive after that rank is free.
        rows: list[tuple[tuple[tuple[int, int], ...], tuple[int, ...]]] = []
        for j in range(count):
            mine = sorted((kind, s) for kind, s, jj in end if jj == j)
            there, waits = set(mine), []
            for kind, s in mine:
                row, to = (0, s + 1) if kind == 0 else (1, s - 1)
                if kind == 2 or not 0 <= to < stages or {(row, to), (3 if row else 0, to)} & there:
                    continue
                rank = int(instance.rank[to, j])
                if rank != instance.rank[s, j]:
                    waits.append(max(free[rank], end[kind, s, j] + int(lag[row, to, j, row])))
            rows.append((tuple(mine), tuple(waits)))
        if alike:
            rows.sort()
        return (*free, *(-b for b in began), *(value for _, waits in rows for value in waits))

    layer: dict[tuple[object, ...], list[tuple[tuple[int, ...], State, tuple[int, ...], tuple[int, ...]]]] = {}
    layer[signature({})] = [((), {}, (0,) * ranks, (-1,) * ranks)]
    best: int | None = None
    while layer:
        following: dict[tuple[object, ...], list[tuple[tuple[int, ...], State, tuple[int, ...], tuple[int, ...]]]] = {}
        for group in layer.values():
            for _, end, free, began in group:
                choices = options(end)
                if not choices:
                    spans = [f - b for f, b in zip(free, began, strict=True) if b >= 0]
                    value = max(free) if objective == "makespan" else max(spans)
                    best = value if best is None else min(best, value)
                for op in choices:
                    kind, s, j = op
                    arrival = inputs(op, end)
                    rank = int(instance.rank[s, j])
                    if arrival is None or not fits(op, rank, end):
                        continue
                    start = max(free[rank], arrival)
                    later = dict(end)
                    later[op] = start + int(ticks[kind][s, j])
                    clocks = tuple(later[op] if r == rank else f for r, f in enumerate(free))
                    begins = tuple(start if r == rank and b < 0 else b for r, b in enumerate(began))
                    if objective == "makespan":
                        begins = (0,) * ranks
                    key = future(later, clocks, begins)
                    front = following.setdefault(signature(later), [])
                    if any(all(a <= b for a, b in zip(other[0], key, strict=True)) for other in front):
                        continue
                    front[:] = [o for o in front if not all(a <= b for a, b in zip(key, o[0], strict=True))]
                    front.append((key, later, clocks, begins))
        layer = following
    return best
