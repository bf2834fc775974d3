"""Messages between real ranks, and their headers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from adaptpipe.executor.channels.header import HEADER_WORDS, Header, decode, encode, missing_words
from adaptpipe.executor.channels.incoming import Incoming
from adaptpipe.executor.channels.message import DTYPES, as_message, specs_of
from adaptpipe.executor.errors import RankFailure, TransportError
from adaptpipe.executor.launching.launcher import launch
from adaptpipe.solver import InputError

from . import messages


@pytest.mark.timeout(60)
def test_any_tuple_arrives_as_it_was_sent() -> None:
    sent, received = launch(messages.exchange, 2, 0)
    assert len(sent) == messages.STEPS * len(messages.any_messages(0))
    for ours, theirs in zip(sent, received, strict=True):
        assert ours == theirs


@pytest.mark.timeout(60)
@pytest.mark.parametrize("window", [1, 2])
def test_messages_may_be_taken_in_another_order(window: int) -> None:
    _, got = launch(messages.out_of_order, 2, window)
    assert got == [[float(j)] * (j + 1) for order in ([0, 1, 2, 3, 4], [4, 2, 0], [7]) for j in reversed(order)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("window", [1, 3])
def test_only_a_window_of_messages_waits_at_the_receiver(window: int) -> None:
    sender, receiver = launch(messages.fill_window, 2, window)
    assert sender == ((6 - window) * messages.SIZE, 0, 0, 0)
    assert receiver == (window * messages.SIZE, 0, 0, window * messages.SIZE)


@pytest.mark.timeout(60)
def test_a_message_can_be_held_back_at_its_receiver() -> None:
    _, (early, waited, both) = launch(messages.hold_back, 2, None)
    assert not early
    assert 0.2 < waited <= both


@pytest.mark.timeout(60)
def test_a_sender_waits_for_room() -> None:
    (before, after, text), _ = launch(messages.make_room, 2, None)
    assert (before, after) == (False, True)
    assert "2 messages were not taken within 0.2 s" in text


@pytest.mark.timeout(60)
def test_all_ranks_may_send_first_in_both_directions() -> None:
    # Rank r hears from both neighbours in the ring: the sum of 10 × rank + j over these and three messages.
    expected = tuple(sum(10.0 * s + j for s in {0, 1, 2} - {r} for j in range(3)) for r in range(3))
    assert launch(messages.both_ways, 3, None) == expected


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("job", "at", "text"),
    [
        (messages.wrong_order, 1, "message 0 of micro-batch 1 arrived where message 0 of micro-batch 0 comes next"),
        (messages.not_a_header, 1, "not the header of a message"),
        (messages.nothing_comes, 1, "micro-batch 4 has not arrived within 0.3 s; next to come: [4, 5]"),
        (messages.nobody_takes, 0, "1 messages were not taken within 0.3 s"),
        (messages.wrong_device, 0, "stage 0 returned a tensor on meta, and gloo carries CPU tensors"),
    ],
)
def test_what_goes_wrong_is_named(job: Callable[[int, int, None], str], at: int, text: str) -> None:
    said = launch(job, 2, None)[at]
    assert text in said
    assert said.startswith(("F 0->1 (rank 0 to rank 1): ", "stage 0"))


@pytest.mark.timeout(60)
def test_death_of_the_other_end_is_noticed_in_send_and_receive(tmp_path: Path) -> None:
    with pytest.raises(RankFailure, match=r"^rank 1: killed by signal 9 \(SIGKILL\)"):
        launch(messages.other_end_dies, 2, tmp_path / "seen")
    receive, send, flush = (tmp_path / "seen").read_text().splitlines()
    assert receive.startswith("B 1->0 (rank 1 to rank 0): ")
    assert send.startswith("F 0->1 (rank 0 to rank 1): ")
    assert flush.startswith("F 0->1 (rank 0 to rank 1): ")


def test_a_message_that_arrives_while_the_window_is_filled_counts_once() -> None:
    """Counted twice, a place of the window stayed empty, and a sender with a full window waited for ever."""
    posted: list[int] = []

    class Idle(Incoming):
        """Has two receives posted, and posts nothing."""

        def __init__(self) -> None:
            self._changed, self._window = threading.Condition(), 3
            self._expected, self._posted, self._arrived = deque(range(2, 9)), deque([0, 1]), {}

        def _post_next(self) -> None:
            self._posted.append(self._expected.popleft())
            posted.append(self._posted[-1])

    end = Idle()
    filler = threading.Thread(target=end._fill_window)
    with end._changed:  # as the thread that moves a message
        end._posted.popleft()
        filler.start()
        filler.join(0.1)
        assert not posted
        end._arrived[0] = (), 0.0
    filler.join(10)
    assert posted == [2]


tensors = st.builds(
    lambda dtype, shape, grad: torch.empty(shape, dtype=dtype, requires_grad=grad and dtype.is_floating_point),
    st.sampled_from([d for d in DTYPES if d.itemsize >= 2]),
    st.lists(st.integers(0, 5), max_size=6),
    st.booleans(),
)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 20), st.lists(st.none() | tensors, max_size=30))
def test_a_header_says_what_was_put_into_it(number: int, microbatch: int, parts: list[Tensor | None]) -> None:
    header = Header(number, microbatch, specs_of(tuple(parts)))
    words = encode(header).tolist()
    assert missing_words(words[:HEADER_WORDS]) == len(words) - HEADER_WORDS
    assert decode(words) == header
    for spec, part in zip(header.specs, parts, strict=True):
        assert (spec is None) == (part is None)
        if spec is not None and part is not None:
            assert (spec.dtype, spec.shape) == (part.dtype, tuple(part.shape))
            assert (spec.requires_grad, spec.on_cpu) == (part.requires_grad, True)


def test_what_is_no_header_is_refused() -> None:
    with pytest.raises(TransportError, match="not the header of a message"):
        missing_words([0] * HEADER_WORDS)


def test_outputs_of_a_stage_become_a_message() -> None:
    x = torch.zeros(2)
    assert as_message(0, x) == (x,)
    assert as_message(0, (x, None)) == (x, None)
    assert as_message(0, [x]) == (x,)
    assert as_message(0, ()) == ()


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"hidden": torch.zeros(2)}, "stage 3: the output is a dict; a stage returns a tensor, or a tuple"),
        (None, "stage 3: the output is a NoneType"),
        ((torch.zeros(2), {}), "stage 3: output 1 is a dict"),
        ((torch.zeros(2), 1.5), "stage 3: output 1 is a float"),
        (torch.eye(2).to_sparse(), "stage 3: the output is a tensor of layout torch.sparse_coo"),
        ([torch.empty(2, dtype=torch.bits8)], "stage 3: output 0 .* dtype torch.bits8"),
    ],
)
def test_other_outputs_are_refused_with_stage_and_type(output: object, text: str) -> None:
    with pytest.raises(InputError, match=text):
        as_message(3, output)
