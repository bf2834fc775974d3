"""What the compiled search changes, and where it works."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.schedule import Array
from ...greedy.kernel import RULES


class Point(NamedTuple):
    """A split, a placement, and the policy by which greedy ranks choose among their ops; S stages on p ranks.

    Parameters
    ----------
    row
        Rank of each stage, shape (S,).
    bounds
        First layer of each stage, and last the number of layers, shape (S + 1,).
    ahead
        Micro-batches that each stage may have between F and I, shape (S,).
    rules
        Of each rank; see `greedy.kernel.run`, shape (p, 6).
    pace
        See `policy.Policy`: pace and burst, shape (2,).
    """

    row: Array
    bounds: Array
    ahead: Array
    rules: Array
    pace: Array

    def copy(self) -> Point:
        """The same in arrays of its own."""
        return Point(*(each.copy() for each in self))


class Room(NamedTuple):
    """Arrays that an evaluation fills: arguments of `greedy.kernel.run` for S stages, m micro-batches, p ranks."""

    first: Array
    stage_of: Array
    low: Array
    high: Array
    rank: Array
    forward: Array
    backward_input: Array
    backward_weight: Array
    backward: Array
    lag_forward: Array
    lag_backward: Array
    activation: Array
    retained: Array
    room: Array
    ahead: Array
    release: Array
    codes: Array
    made: Array


def room_for(stages: int, count: int, ranks: int) -> Room:
    """Empty arrays."""

    def zeros(*shape: int) -> Array:
        return np.zeros(shape, dtype=np.int64)

    prices = {name: zeros(stages, count) for name in Room._fields[4:13]}
    return Room(
        first=zeros(ranks + 1),
        stage_of=zeros(stages),
        low=zeros(stages),
        high=np.full(stages, count, dtype=np.int64),
        room=zeros(ranks),
        ahead=zeros(stages),
        release=zeros(count),
        codes=zeros(ranks, 3 * stages * count),
        made=zeros(ranks),
        **prices,
    )


def point(row: Array, bounds: Array, ahead: Array, rules: Array, pace: int, burst: int) -> Point:
    """A point from its parts; the arrays are copied."""
    assert rules.shape[1] == RULES, "one column a rule"
    row, bounds, ahead, rules = (np.array(each, dtype=np.int64) for each in (row, bounds, ahead, rules))
    return Point(row, bounds, ahead, rules, np.array([pace, burst], dtype=np.int64))
