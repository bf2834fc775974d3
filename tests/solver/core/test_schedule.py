"""Schedules refuse what cannot be meant. Their files are tested in tests/solver/files."""

from __future__ import annotations

import pytest

from adaptpipe.solver import InputError, Kind, Op, Schedule, place


def test_messages() -> None:
    placement = place("linear", 2)
    with pytest.raises(InputError, match="ops: 1 lists for 2 ranks"):
        Schedule(placement, (1,), ((),))
    with pytest.raises(InputError, match=r"sizes\[1\]: 0 is below 1"):
        Schedule(placement, (1, 0), ((), ()))
    with pytest.raises(
        InputError, match=r"rank 1, position 0: 2F0 is out of range; stages are 0..1, micro-batches 0..0"
    ):
        Schedule(placement, (1,), ((), (Op(2, Kind.F, 0),)))
    with pytest.raises(InputError, match="slices: 0 is below 1"):
        Schedule(placement, (1,), ((), ()), 0)
    with pytest.raises(InputError, match="sizes: 2 values, 2 of them different, for micro-batches of 2 slices"):
        Schedule(placement, (1, 2), ((), ()), 2)
    with pytest.raises(InputError, match="rank 1, position 1: 'x' is not an op"):
        Schedule.parse(placement, (1,), [[], ["1F0", "x"]])


def test_table() -> None:
    schedule = Schedule.parse(place("linear", 2), [1], [["0F0", "0B0"], ["1F0", "1I0", "1W0[0:2]", "1W0[2:3]"]])
    table = schedule.table
    assert table.offsets.tolist() == [0, 2, 6]
    assert table.kind.tolist() == [Kind.F, Kind.B, Kind.F, Kind.I, Kind.W, Kind.W]
    assert table.start.tolist() == [-1, -1, -1, -1, 0, 2]
    assert table.stop.tolist() == [-1, -1, -1, -1, 2, 3]
    assert schedule.splits_backward
    assert not Schedule.parse(place("linear", 1), [1], [["0F0", "0B0"]]).splits_backward


def test_an_empty_schedule_has_an_empty_table() -> None:
    assert Schedule(place("linear", 1), (1,), ((),)).table.stage.shape == (0,)
