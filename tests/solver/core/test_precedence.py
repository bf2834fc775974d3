"""The rules, and the arrays made from them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import Kind, Op, place
from adaptpipe.solver.core.precedence import earlier_nodes, node, op_nodes, predecessor_nodes, predecessors
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


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_slices_run_forward_in_order_and_backward_in_the_opposite_one(stages: int, count: int, slices: int) -> None:
    earlier = earlier_nodes(stages, count * slices, slices)
    for s in range(stages):
        for j in range(count * slices):
            forward, back, weight = (
                int(earlier[node(kind, s, j, stages, count * slices)]) for kind in (Kind.F, Kind.B, Kind.W)
            )
            assert forward == (-1 if j % slices == 0 else node(Kind.F, s, j - 1, stages, count * slices))
            assert back == (-1 if j % slices == slices - 1 else node(Kind.I, s, j + 1, stages, count * slices))
            assert weight == -1


def test_i_and_b_share_a_node() -> None:
    schedule = Schedule(place("linear", 1), (1,), ((Op(0, Kind.F, 0), Op(0, Kind.I, 0), Op(0, Kind.W, 0)),))
    assert np.array_equal(op_nodes(schedule), [0, 1, 2])
    assert node(Kind.B, 0, 0, 1, 1) == 1
