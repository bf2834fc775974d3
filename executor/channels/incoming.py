"""The receiving end of a channel over gloo."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

import torch
import torch.distributed as dist
from torch import Tensor

from ..clock import sleep_until
from ..errors import Late, TransportError
from ..programs.route import Route
from .channel import EXPECTED, HEADERS, OTHERS, End, checked
from .header import decode, missing_words, words_of
from .ledger import Ledger
from .message import ENVELOPE, Message, TensorSpec, enclosed, inside, layout, nbytes


@dataclass(slots=True)
class Posted:
    """A message whose receives are posted."""

    microbatch: int
    envelope: Tensor
    expected: tuple[TensorSpec, ...]
    tensors: list[Tensor]
    works: list[dist.Work]


class Incoming(End):
    """The receiving end of a channel.

    Parameters
    ----------
    route
        Which edge.
    peer
        The process at the other end, as a rank of the default group.
    group, tag
        A gloo group with the two ranks in it, and the first of `TAGS` tags in it that nothing else uses.
    ledger
        Counts the bytes of messages received and not yet taken, and of the tensors that wait for the next ones.
    window
        How many messages may wait to be taken, or to arrive. The others wait at their sender.

    Attributes
    ----------
    arrived_s
        When the message taken last had arrived, by `time.perf_counter`; 0 before the first.
    """

    def __init__(
        self, route: Route, peer: int, group: dist.ProcessGroup, tag: int, ledger: Ledger, window: int
    ) -> None:
        self._window = window
        self._number = 0
        self._expected: deque[int] = deque()
        self._posted: deque[int] = deque()
        self._arrived: dict[int, tuple[Message, float]] = {}
        self._late_s: Mapping[int, float] = {}
        self.arrived_s = 0.0
        self._coming: SimpleQueue[Posted | None] = SimpleQueue()
        super().__init__(route, peer, group, tag, ledger, self._watch)

    def begin(self, order: Sequence[int], late_s: Mapping[int, float] | None = None) -> None:
        """Say which micro-batches come next, in the order in which they are sent.

        Messages of those in `late_s` count as arrived so many seconds after they have: a slow link, emulated.
        """
        before = [*self._posted, *self._expected]
        assert not before, f"{self.route}: {before} of the step before have not arrived"
        assert not self._arrived, f"{self.route}: {list(self._arrived)} of the step before were not taken"
        assert len(set(order)) == len(order), f"{self.route}: {order} names a micro-batch twice"
        self._expected.extend(order)
        self._late_s = late_s or {}
        self._fill_window()

    def ready(self, microbatch: int) -> bool:
        """Tell whether `recv` would return at once; never waits."""
        if self._error is not None:
            return True
        arrived = self._arrived.get(microbatch)
        return arrived is not None and arrived[1] <= time.perf_counter()

    def recv(self, microbatch: int, timeout_s: float) -> Message:
        """Take a message, waiting for it if need be.

        The tensors belong to the caller. Those that required grad at their sender are leaves that require grad.

        Raises
        ------
        Late, TransportError, ConnectionLost
            As `wait`.
        """
        self.wait(microbatch, timeout_s)
        with self._changed:
            message, self.arrived_s = self._arrived.pop(microbatch)
        self._ledger.add(-nbytes(message))
        self._fill_window()
        return self._hand_over(message)

    def wait(self, microbatch: int, timeout_s: float) -> float:
        """Wait for a message, and leave it; tell when it arrived.

        Raises
        ------
        Late
            If nothing arrives within `timeout_s` seconds.
        TransportError
            If another message does than the one that comes next.
        ConnectionLost
            If the other rank is gone.
        """
        while microbatch in self._expected:  # behind others, maybe: the window must not keep it out
            self._post_next()
        with self._changed:
            self._changed.wait_for(lambda: microbatch in self._arrived or self._error is not None, timeout_s)
            arrived = self._arrived.get(microbatch)
            if arrived is None:
                self._raise_error()
                raise Late(
                    f"{self.route}: micro-batch {microbatch} has not arrived within {timeout_s:g} s; next to come: "
                    f"{[*self._posted, *self._expected][:4]}"
                )
        sleep_until(arrived[1])
        return arrived[1]

    def close(self) -> bool:
        """End the thread if nothing is expected, else leave it to end with the process; tell which."""
        self._coming.put(None)
        idle = not self._posted
        if idle:
            self._thread.join()
        return idle

    def _fill_window(self) -> None:
        with self._changed:  # the thread may be moving a message from one to the other, which counts once
            room = self._window - len(self._posted) - len(self._arrived)
        for _ in range(min(room, len(self._expected))):
            self._post_next()

    def _post_next(self) -> None:
        microbatch = self._expected.popleft()
        expected = self._last.get(microbatch, ())
        size = enclosed(expected)
        envelope = torch.empty(ENVELOPE + size, dtype=torch.uint8, device="cpu")
        if size:
            self._ledger.add(size)
            tensors, apart = [inside(envelope, expected[0])], []
        else:
            tensors = apart = self._allocate(expected)
        self._posted.append(microbatch)
        try:
            works = [self._post(envelope, HEADERS), *(self._post(tensor, EXPECTED) for tensor in apart)]
        except RuntimeError as error:
            self._error = error
        else:
            self._coming.put(Posted(microbatch, envelope, expected, tensors, works))

    def _watch(self) -> None:
        while (posted := self._coming.get()) is not None:
            microbatch, message = posted.microbatch, self._receive(posted)
            del posted
            arrived_s = time.perf_counter() + self._late_s.get(microbatch, 0.0)
            with self._changed:
                self._posted.popleft()
                self._arrived[microbatch] = message, arrived_s
                del message  # the op loop's from now on
                self._changed.notify_all()

    def _receive(self, posted: Posted) -> Message:
        self._finish(posted.works)
        words = words_of(posted.envelope)
        if missing := missing_words(words):
            (rest,) = self._fetch([torch.empty(missing, dtype=torch.int64, device="cpu")])
            words += rest.tolist()
        header = decode(words)
        if (header.number, header.microbatch) != (self._number, posted.microbatch):
            raise TransportError(
                f"message {header.number} of micro-batch {header.microbatch} arrived where message {self._number} of "
                f"micro-batch {posted.microbatch} comes next; both ranks must run the same schedule"
            )
        self._number += 1
        found = layout(header.specs)
        if found != posted.expected:
            self._ledger.add(-nbytes(posted.tensors))
            posted.tensors = self._fetch(self._allocate(found))
            if self._expects:
                self._last[posted.microbatch] = found
        return self._assembled(header.specs, posted.tensors)

    def _fetch(self, tensors: list[Tensor]) -> list[Tensor]:
        """Fill tensors with what was not expected."""
        self._finish([self._post(tensor, OTHERS) for tensor in tensors])
        return tensors

    def _allocate(self, specs: Sequence[TensorSpec]) -> list[Tensor]:
        tensors = [self._empty(spec) for spec in specs]
        self._ledger.add(nbytes(tensors))
        return tensors

    def _assembled(self, specs: Sequence[TensorSpec | None], travelled: Sequence[Tensor]) -> Message:
        """The message whose tensors have arrived; what has no elements did not travel."""
        left = iter(travelled)
        message: list[Tensor | None] = []
        for spec in specs:
            tensor = None if spec is None else next(left) if spec.travels else self._empty(spec)
            if tensor is not None and spec is not None and spec.requires_grad:
                tensor.requires_grad_()
            message.append(tensor)
        return tuple(message)

    def _empty(self, spec: TensorSpec) -> Tensor:
        return torch.empty(spec.shape, dtype=spec.dtype, device="cpu")

    def _post(self, tensor: Tensor, kind: int) -> dist.Work:
        return checked(dist.irecv(tensor, self._peer, group=self._group, tag=self._tag + kind))

    def _hand_over(self, message: Message) -> Message:
        return message
