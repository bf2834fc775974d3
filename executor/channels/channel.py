"""The two ends of a channel over gloo, each with a thread that waits, so that the op loop need not.

A gloo operation finishes only inside `wait()`; its handle cannot be polled, and a `wait` that times out breaks the
connection. Hence the threads: they wait without limit, and the limits are ours.

A tensor whose receive is posted before it is sent goes at once; one that is sent first costs both processes several
times as much. So the receiver does not wait for a header to post what comes behind it: it expects tensors like those of
the last message of the same micro-batch, and the sender, which knows that too, fulfils what is expected. Where its
tensors are others, it sends one element for each that is expected, which gloo takes for the whole, and then its own.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue

import torch
import torch.distributed as dist
from torch import Tensor

from adaptpipe.solver import InputError

from ..clock import sleep_until
from ..errors import ConnectionLost, Late, TransportError
from ..failures import is_time_out
from ..programs.route import Route
from .ledger import Ledger
from .message import HEADER_WORDS, Message, TensorSpec, decode, encode, layout, missing_words, nbytes


class _End(ABC):
    """What both ends share: a thread, the error it died of, and a condition that it signals."""

    _expects = True
    """Whether tensors are expected to be like the last ones. Both ends must be of one mind."""

    def __init__(
        self, route: Route, peer: int, group: dist.ProcessGroup, ledger: Ledger, work: Callable[[], None]
    ) -> None:
        self.route = route
        self._peer = peer
        self._group = group
        self._ledger = ledger
        self._last: dict[int, tuple[TensorSpec, ...]] = {}  # layouts, by micro-batch
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._guard, args=(work,), name=str(route), daemon=True)
        self._thread.start()

    @abstractmethod
    def close(self) -> bool:
        """End the thread if it has nothing to do, else leave it to end with the process; tell which."""

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # also what no Exception is: the op loop must hear of it
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._translate(self._error) from self._error

    def _translate(self, error: BaseException) -> TransportError:
        if isinstance(error, TransportError) or not isinstance(error, RuntimeError) or is_time_out(error):
            return TransportError(f"{self.route}: {error}")
        return ConnectionLost(f"{self.route}: {error}")


class Outgoing(_End):
    """The sending end of a channel.

    Parameters
    ----------
    route
        Which edge.
    peer
        The process at the other end, as a rank of the default group.
    group
        A gloo group of its own, of the two ranks.
    ledger
        Counts the bytes of sends in flight.
    """

    def __init__(self, route: Route, peer: int, group: dist.ProcessGroup, ledger: Ledger) -> None:
        self._number = 0
        self._flying = 0
        # What is in flight: the operations, the tensors that must live until these are done, and the payload's bytes.
        self._sent: SimpleQueue[tuple[list[dist.Work], tuple[Tensor, ...], int] | None] = SimpleQueue()
        super().__init__(route, peer, group, ledger, self._reap)

    def send(self, microbatch: int, message: Message) -> None:
        """Send without waiting; the tensors are kept until they have gone, and must not change meanwhile.

        Raises
        ------
        ConnectionLost
            If the other rank is gone.
        InputError
            If a tensor is on a device that this transport does not reach.
        """
        self._raise_error()
        header, *rest = encode(self._number, microbatch, message)
        payload = [_dense(tensor) for tensor in message if tensor is not None and tensor.numel()]
        self._check(payload)
        expected, mine = self._last.get(microbatch, ()), layout(message)
        if expected == mine:
            parts = [header, *payload, *rest]
        else:
            parts = [header, *(torch.empty(1, dtype=spec.dtype) for spec in expected), *rest, *payload]
            if self._expects:
                self._last[microbatch] = mine
        self._number += 1
        with self._changed:
            self._flying += 1
        size = nbytes(payload)
        self._ledger.add(size)
        try:
            works = [self._post(part) for part in parts]
        except RuntimeError as error:
            self._error = error
            self._raise_error()
        self._sent.put((works, tuple(parts), size))

    def has_room(self, capacity: int) -> bool:
        """Tell whether fewer than `capacity` messages are in flight; never waits."""
        return self._flying < capacity or self._error is not None

    def flush(self, timeout_s: float, below: int = 1) -> None:
        """Wait until everything has gone, or fewer than `below` messages are in flight.

        Raises
        ------
        Late
            If that takes longer than `timeout_s` seconds.
        ConnectionLost
            If the other rank is gone.
        """
        with self._changed:
            done = self._changed.wait_for(lambda: self.has_room(below), timeout_s)
        self._raise_error()
        if not done:
            raise Late(
                f"{self.route}: {self._flying} messages were not taken within {timeout_s:g} s; "
                "the other rank hangs, or expects fewer messages"
            )

    def close(self) -> bool:
        """End the thread if nothing is in flight, else leave it to end with the process; tell which."""
        self._sent.put(None)
        idle = not self._flying
        if idle:
            self._thread.join()
        return idle

    def _check(self, payload: Sequence[Tensor]) -> None:
        for tensor in payload:
            if tensor.device.type != "cpu":
                raise InputError(
                    f"stage {self.route.sender} returned a tensor on {tensor.device}, and gloo carries CPU tensors; "
                    "use NCCL, or keep the stages on the CPU"
                )

    def _post(self, tensor: Tensor) -> dist.Work:
        return _work(dist.isend(tensor, self._peer, group=self._group))

    def _finish(self, works: Sequence[dist.Work]) -> None:
        for work in reversed(works):  # they end in order, so that one wait is enough to wake up from
            work.wait()

    def _reap(self) -> None:
        while (entry := self._sent.get()) is not None:
            self._finish(entry[0])
            size = entry[2]
            del entry  # frees the tensors
            self._ledger.add(-size)
            with self._changed:
                self._flying -= 1
                self._changed.notify_all()


class Incoming(_End):
    """The receiving end of a channel.

    Parameters
    ----------
    route
        Which edge.
    peer
        The process at the other end, as a rank of the default group.
    group
        A gloo group of its own, of the two ranks.
    ledger
        Counts the bytes of messages received and not yet taken, and of the tensors that wait for the next one.
    window
        How many messages may wait to be taken. The others wait at their sender.

    Attributes
    ----------
    arrived_s
        When the message taken last had arrived, by `time.perf_counter`; 0 before the first.
    """

    def __init__(self, route: Route, peer: int, group: dist.ProcessGroup, ledger: Ledger, window: int) -> None:
        self._window = window
        self._number = 0
        self._expected: deque[int] = deque()
        self._arrived: dict[int, tuple[Message, float]] = {}
        self._late_s: Mapping[int, float] = {}
        self.arrived_s = 0.0
        self._wanted: int | None = None
        self._closed = False
        super().__init__(route, peer, group, ledger, self._receive_all)

    def begin(self, order: Sequence[int], late_s: Mapping[int, float] | None = None) -> None:
        """Say which micro-batches come next, in the order in which they are sent.

        Messages of those in `late_s` count as arrived so many seconds after they have: a slow link, emulated.
        """
        with self._changed:
            assert not self._expected, f"{self.route}: {list(self._expected)} of the step before have not arrived"
            assert not self._arrived, f"{self.route}: {list(self._arrived)} of the step before were not taken"
            assert len(set(order)) == len(order), f"{self.route}: {order} names a micro-batch twice"
            self._expected.extend(order)
            self._late_s = late_s or {}
            self._changed.notify_all()

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
            self._changed.notify_all()
        self._ledger.add(-nbytes(message))
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
        with self._changed:
            self._wanted = microbatch
            self._changed.notify_all()
            self._changed.wait_for(lambda: microbatch in self._arrived or self._error is not None, timeout_s)
            self._wanted = None
            arrived = self._arrived.get(microbatch)
            if arrived is None:
                self._raise_error()
                raise Late(
                    f"{self.route}: micro-batch {microbatch} has not arrived within {timeout_s:g} s; next to come: "
                    f"{list(self._expected)[:4]}"
                )
        sleep_until(arrived[1])
        return arrived[1]

    def close(self) -> bool:
        """End the thread if nothing is expected, else leave it to end with the process; tell which."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            idle = not self._expected
        if idle:
            self._thread.join()
        return idle

    def _may_receive(self) -> bool:
        # A message that the op loop waits for may be behind others: then the window must not keep it out.
        waited_for = self._wanted is not None and self._wanted not in self._arrived
        return self._closed or (bool(self._expected) and (len(self._arrived) < self._window or waited_for))

    def _receive_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._may_receive)
                if self._closed:
                    return
                microbatch = self._expected[0]
            message = self._receive(microbatch)
            arrived_s = time.perf_counter() + self._late_s.get(microbatch, 0.0)
            with self._changed:
                self._expected.popleft()
                self._arrived[microbatch] = message, arrived_s
                self._changed.notify_all()
            del message

    def _receive(self, microbatch: int) -> Message:
        expected = self._last.get(microbatch, ())
        words, tensors = torch.empty(HEADER_WORDS, dtype=torch.int64), self._allocate(expected)
        self._finish([self._post(part) for part in (words, *tensors)])
        if missing := missing_words(words):
            rest = torch.empty(missing, dtype=torch.int64)
            self._finish([self._post(rest)])
            words = torch.cat([words, rest])
        header = decode(words)
        if (header.number, header.microbatch) != (self._number, microbatch):
            raise TransportError(
                f"message {header.number} of micro-batch {header.microbatch} arrived where message {self._number} of "
                f"micro-batch {microbatch} comes next; both ranks must run the same schedule"
            )
        self._number += 1
        found = layout(header.specs)
        if found != expected:
            self._ledger.add(-nbytes(tensors))
            tensors = self._allocate(found)
            self._finish([self._post(tensor) for tensor in tensors])
            if self._expects:
                self._last[microbatch] = found
        return self._assembled(header.specs, tensors)

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
        return torch.empty(spec.shape, dtype=spec.dtype)

    def _post(self, tensor: Tensor) -> dist.Work:
        return _work(dist.irecv(tensor, self._peer, group=self._group))

    def _finish(self, works: Sequence[dist.Work]) -> None:
        for work in reversed(works):  # they end in order, so that one wait is enough to wake up from
            work.wait()

    def _hand_over(self, message: Message) -> Message:
        return message


def _dense(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _work(work: dist.Work | None) -> dist.Work:
    assert work is not None, "this rank is not in the channel's group"
    return work
