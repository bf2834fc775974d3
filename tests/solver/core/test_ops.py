"""Ops and their text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Kind, Op, parse_op

NUMBERS = st.integers(0, 10**6)


@given(NUMBERS, st.sampled_from(Kind), NUMBERS, st.none() | st.tuples(NUMBERS, st.integers(1, 99)))
def test_text_round_trip(stage: int, kind: Kind, microbatch: int, units: tuple[int, int] | None) -> None:
    part = None if units is None or kind is not Kind.W else (units[0], units[0] + units[1])
    op = Op(stage, kind, microbatch, part)
    assert parse_op(str(op)) == op


@pytest.mark.parametrize(
    "text",
    [
        "",
        "F0",
        "0F",
        "0f0",
        "0F-1",
        "0BW0",
        "0F0_s1",
        "0W0.1",
        "00F0",
        "0F00",
        " 0F0",
        "0F0 ",
        "0F0\n",
        "٠F0",
        "0W0[1]",
    ],
)
def test_what_is_not_an_op(text: str) -> None:
    """Anything but the exact form is refused: none is read as another op (torch reads `0F-1` as `0F`)."""
    with pytest.raises(InputError, match=r"is not an op: write <stage><F\|I\|W\|B><micro-batch>"):
        parse_op(text)


def test_ranges_are_of_w_and_not_empty() -> None:
    with pytest.raises(InputError, match=r"'0B1\[0:2\]': only a W is cut into units; write 0B1"):
        parse_op("0B1[0:2]")
    with pytest.raises(
        InputError, match=r"'0W1\[2:2\]': the range of units is empty; its start must be below its stop"
    ):
        parse_op("0W1[2:2]")
    with pytest.raises(InputError, match=r"'0W1\[0:9999999999\]': no weight gradient has 9999999999 units"):
        parse_op("0W1[0:9999999999]")


def test_which_ops_pass_the_gradient_on() -> None:
    assert [kind.name for kind in Kind if Op(0, kind, 0).is_backward] == ["I", "B"]
