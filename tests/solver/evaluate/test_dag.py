"""The op graph agrees with the simulator."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import critical_path, op_graph, simulate
from tests.strategies import problems, schedules_of


@given(st.data())
def test_the_longest_path_is_the_makespan(data: st.DataObject) -> None:
    problem = data.draw(problems())
    schedule = data.draw(schedules_of(problem))
    timeline = simulate(problem, schedule)
    graph = op_graph(problem, schedule)
    end: dict[object, int] = {}
    for op in nx.topological_sort(graph):
        begin = max((end[a] + edge["lag"] for a, _, edge in graph.in_edges(op, data=True)), default=0)
        end[op] = begin + graph.nodes[op]["ticks"]
    assert max(end.values()) == timeline.makespan


@given(st.data())
def test_the_critical_path_has_no_slack_and_the_makespans_length(data: st.DataObject) -> None:
    problem = data.draw(problems())
    schedule = data.draw(schedules_of(problem))
    timeline = simulate(problem, schedule)
    path = critical_path(timeline)
    graph = op_graph(problem, schedule)
    length = graph.nodes[path[0]]["ticks"]
    for one, other in pairwise(path):
        length += graph.edges[one, other]["lag"] + graph.nodes[other]["ticks"]
    assert length == timeline.makespan
