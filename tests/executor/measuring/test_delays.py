"""Delays of messages, where stages have replicas."""

from __future__ import annotations

import pytest

from adaptpipe.executor import OpRecord
from adaptpipe.executor.measuring.delays import message_delays
from adaptpipe.solver import Placement, parse_op


def test_a_message_goes_where_its_direction_says() -> None:
    """Both stages of direction 0 are on rank 0, and only those of direction 1 send to each other."""
    placement = Placement(2, ((0, 0, 1), (0, 1, 1)))
    at_once = OpRecord(parse_op("0F0"), 1.0, 2.0, 0, 0), OpRecord(parse_op("1F0"), 2.5, 3.0, 0, 0)
    sent = OpRecord(parse_op("0F1"), 4.0, 5.0, 0, 0)
    waiting = OpRecord(parse_op("2F0"), 3.5, 4.0, 0, 0), OpRecord(parse_op("1F1"), 5.75, 6.0, 0, 0)
    assert message_delays(placement, [(*at_once, sent), waiting]) == [pytest.approx(0.75)]
