"""The rules, and the arrays made from them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import Kind, Op, place
from adaptpipe.solver.core.precedence import node, op_nodes, predecessor_nodes, predecessors
from adaptpipe.solver.core.schedule import Schedule


def test_the_rules_in_words() -> None:
    forward, back, weight = 0, 1, 2
    assert predecessors(Op(0, Kind.F, 0), 3) == ()
    assert predecessors(Op(2, Kind.F, 0), 3) == ((forward, 1),)
    for kind in (Kind.I, Kind.B):
        assert predecessors(Op(1, kind, 0), 3) == ((forward, 1), (back, 2))
        assert predecessors(Op(2, kind, 0), 3) == ((forward, 2),)
    assert predecessors(Op(1, Kind.W, 0), 3) == ((back, 1),)
    assert weight not in {row for kind in Kind for row, _ in predecessors(Op(1, kind, 0), 3)}


@given(st.integers(1, 5), st.integers(1, 5))
def test_arrays_say_the_same(stages: int, count: int) -> None:
    before = predecessor_nodes(stages, count)
    kinds = {0: Kind.F, 1: Kind.I, 2: Kind.W}
    for s in range(stages):
        for j in range(count):
            for row, kind in kinds.items():
                expected = {node(kinds[r], t, j, stages, count) for r, t in predecessors(Op(s, kind, j), stages)}
                found = before[node(kind, s, j, stages, count)]
                assert set(found[found >= 0].tolist()) == expected, (row, s, j)


def test_i_and_b_share_a_node() -> None:
    schedule = Schedule(place("linear", 1), (1,), ((Op(0, Kind.F, 0), Op(0, Kind.I, 0), Op(0, Kind.W, 0)),))
    assert np.array_equal(op_nodes(schedule), [0, 1, 2])
    assert node(Kind.B, 0, 0, 1, 1) == 1
