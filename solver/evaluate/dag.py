"""The op graph, for analysis: critical path, slack, cycles. The simulator does not need it."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx

from ..core.ops import Op
from ..core.problem import Problem
from ..core.schedule import Schedule
from .simulate import op_inputs, op_ticks, require_fit
from .timeline import Timeline


def op_graph(problem: Problem, schedule: Schedule) -> nx.DiGraph[Op]:
    """Graph of a schedule's ops.

    Nodes carry `ticks` and `rank`; edges carry `lag` (ticks) and `reason`: "rank" for the rank's order, "data" for an
    input. A graph with a cycle is a deadlock.

    Raises
    ------
    InputError
        When the schedule is for another shape.
    """
    require_fit(problem, schedule)
    instance = problem.instance(schedule.sizes)
    before, lag = op_inputs(instance, schedule)
    ticks = op_ticks(instance, schedule).tolist()
    flat = [op for row in schedule.ops for op in row]
    graph: nx.DiGraph[Op] = nx.DiGraph()
    for rank, (row, first) in enumerate(zip(schedule.ops, schedule.table.offsets.tolist(), strict=False)):
        for position, op in enumerate(row):
            graph.add_node(op, ticks=ticks[first + position], rank=rank)
        for one, other in pairwise(row):
            graph.add_edge(one, other, lag=0, reason="rank")
    for op, sources, lags in zip(flat, before.tolist(), lag.tolist(), strict=True):
        for source, wait in zip(sources, lags, strict=True):
            if source >= 0:
                graph.add_edge(flat[source], op, lag=wait, reason="data")
    return graph


def critical_path(timeline: Timeline) -> tuple[Op, ...]:
    """Ops that the makespan consists of, first to last: each starts the moment its predecessor (and message) is done.

    Examples
    --------
    >>> from adaptpipe.solver.evaluate.simulate import simulate
    >>> from adaptpipe.solver.heuristics import gpipe
    >>> problem = Problem.from_dict({
    ...     "pipeline": {"ranks": 2},
    ...     "batch": {"samples": 1},
    ...     "costs": {"forward": 2, "backward_input": 2, "backward_weight": 1},
    ... })
    >>> [str(op) for op in critical_path(simulate(problem, gpipe(problem)))]
    ['0F0', '1F0', '1B0', '0B0']
    """
    graph = op_graph(timeline.problem, timeline.schedule)
    start, end = {}, {}
    for rank in range(timeline.problem.ranks):
        for op, a, b in timeline.of(rank):
            start[op], end[op] = a, b
    op = max(end, key=lambda o: end[o])
    path = [op]
    while True:
        tight = [o for o, _, edge in graph.in_edges(op, data=True) if end[o] + edge["lag"] == start[op]]
        if not tight or start[op] == 0:
            return tuple(reversed(path))
        op = tight[0]
        path.append(op)
