"""The sending end of a channel over gloo."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from queue import SimpleQueue

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from adaptpipe.solver import InputError

from ..errors import Late
from ..failures import is_time_out
from ..programs.route import Route
from .channel import EXPECTED, HEADERS, OTHERS, End, checked
from .header import HEADER_WORDS, Header, encode
from .incoming import Incoming
from .ledger import Ledger
from .message import ENVELOPE, Message, enclosed, inside, layout, nbytes, specs_of

_MOMENT_S = 1e-3  # torch takes no time at all for its own time-out


class Outgoing(End):
    """The sending end of a channel, without a thread.

    Sends that cannot be seen to be gone are waited for where that takes no time: their receives are posted, and other
    ops have run since. The receiver posts a window of receives when a step begins, whatever else it waits for, and says
    in what it sends back how many it has posted.

    Parameters
    ----------
    route
        Which edge.
    peer
        The process at the other end, as a rank of the default group.
    group, tag
        A gloo group with the two ranks in it, and the first of `TAGS` tags in it that nothing else uses.
    ledger
        Counts the bytes of sends in flight.
    window
        That of the receiver.

    Attributes
    ----------
    back
        The end of the channel that leads the other way, if there is one.
    """

    def __init__(
        self,
        route: Route,
        peer: int,
        group: dist.ProcessGroup,
        tag: int,
        ledger: Ledger,
        window: int,
        work: Callable[[], None] | None = None,
    ) -> None:
        self.back: Incoming | None = None
        self._window = window
        self._number = 0
        self._older = 0  # messages sent before `release` was last called
        self._awaited = 0  # messages whose receives are posted before any op of the step
        # What has not been let go of: the operations, the tensors that they need, and the payload's bytes.
        self._kept: deque[tuple[list[dist.Work], list[Tensor], int]] = deque()
        super().__init__(route, peer, group, tag, ledger, work)

    def begin(self) -> None:
        """Start a step, as the receiver does."""
        self._awaited = self._number + self._window

    def send(self, microbatch: int, message: Message) -> None:
        """Send without waiting; the tensors are kept until `release` sees them gone, and must not change meanwhile.

        Raises
        ------
        ConnectionLost
            If the other rank is gone.
        InputError
            If a tensor is on a device that this transport does not reach.
        """
        self._raise_error()
        payload = [tensor.detach() for tensor in message if tensor is not None and tensor.numel()]
        self._check(payload)
        size = nbytes(payload)
        parts = self._parts(microbatch, message, payload)
        self._number += 1
        self._ledger.add(size)
        try:
            works = [self._post(part, kind) for kind, row in parts.items() for part in row]
        except RuntimeError as error:
            self._error = error
            self._raise_error()
        self._kept.append((works, [part for row in parts.values() for part in row], size))

    def _parts(self, microbatch: int, message: Message, payload: Sequence[Tensor]) -> Mapping[int, Sequence[Tensor]]:
        """What to send, by tag."""
        specs = specs_of(message)
        posted = 0 if self.back is None else self.back.posts
        words = encode(Header(self._number, microbatch, posted, specs))
        expected, mine = self._last.get(microbatch, ()), layout(specs)
        if expected == mine and (size := enclosed(expected)):
            envelope = torch.empty(ENVELOPE + size, dtype=torch.uint8, device="cpu")
            envelope.numpy()[:ENVELOPE].view(np.int64)[:] = words
            inside(envelope, expected[0]).copy_(payload[0])
            return {HEADERS: [envelope]}
        header, rest = (torch.from_numpy(part) for part in (words[:HEADER_WORDS], words[HEADER_WORDS:]))
        others = [rest] if len(rest) else []
        payload = [*map(_dense, payload)]
        if expected == mine:
            return {HEADERS: [header], EXPECTED: payload, OTHERS: others}
        if self._expects:
            self._last[microbatch] = mine
        fillers = [] if enclosed(expected) else [torch.empty(1, dtype=spec.dtype, device="cpu") for spec in expected]
        return {HEADERS: [header], EXPECTED: fillers, OTHERS: [*others, *payload]}

    def release(self, timeout_s: float) -> None:
        """Let go of what has gone.

        Raises
        ------
        Late, ConnectionLost
            As `flush`.
        """
        posted = max(self._awaited, 0 if self.back is None else self.back.told)
        surely = min(posted, self._older)
        if self._number - len(self._kept) < surely:
            self.flush(timeout_s, self._number - surely + 1)
        self._older = self._number

    def has_room(self, capacity: int) -> bool:
        """Tell whether fewer than `capacity` messages are in flight; never waits."""
        return len(self._kept) < capacity or self._error is not None

    def flush(self, timeout_s: float, below: int = 1) -> None:
        """Wait until everything has gone, or fewer than `below` messages are in flight.

        Raises
        ------
        Late
            If that takes longer than `timeout_s` seconds.
        ConnectionLost
            If the other rank is gone.
        """
        end = time.monotonic() + timeout_s
        try:
            while not self.has_room(below):
                for work in reversed(self._kept[0][0]):
                    work.wait(timedelta(seconds=max(end - time.monotonic(), _MOMENT_S)))
                self._let_go()
        except RuntimeError as error:
            self._error = self._late(timeout_s) if is_time_out(error) else error
        self._raise_error()

    def close(self) -> bool:
        """End the thread, if any; where something is on its way, leave it to end with the process; tell which."""
        return not self._kept

    def _let_go(self) -> None:
        _, _, size = self._kept.popleft()
        self._ledger.add(-size)

    def _late(self, timeout_s: float) -> Late:
        return Late(
            f"{self.route}: {len(self._kept)} messages were not taken within {timeout_s:g} s; "
            "the other rank hangs, or expects fewer messages"
        )

    def _check(self, payload: Sequence[Tensor]) -> None:
        for tensor in payload:
            if tensor.device.type != "cpu":
                raise InputError(
                    f"stage {self.route.sender} returned a tensor on {tensor.device}, and gloo carries CPU tensors; "
                    "use NCCL, or keep the stages on the CPU"
                )

    def _post(self, tensor: Tensor, kind: int) -> dist.Work:
        return checked(dist.isend(tensor, self._peer, group=self._group, tag=self._tag + kind))


class WatchedOutgoing(Outgoing):
    """The sending end of a channel of which it is asked what is in flight: a thread of its own waits for what is."""

    def __init__(
        self, route: Route, peer: int, group: dist.ProcessGroup, tag: int, ledger: Ledger, window: int
    ) -> None:
        self._gone = 0
        self._sent: SimpleQueue[list[dist.Work] | None] = SimpleQueue()
        super().__init__(route, peer, group, tag, ledger, window, self._watch)

    def send(self, microbatch: int, message: Message) -> None:
        """Send without waiting: see `Outgoing.send`."""
        super().send(microbatch, message)
        self._sent.put(self._kept[-1][0])

    def release(self, timeout_s: float) -> None:
        """Let go of what has gone; never waits."""
        while len(self._kept) > self._number - self._gone:
            self._let_go()

    def has_room(self, capacity: int) -> bool:
        """Tell whether fewer than `capacity` messages are in flight; never waits."""
        self.release(0)
        return super().has_room(capacity)

    def flush(self, timeout_s: float, below: int = 1) -> None:
        """Wait until fewer than `below` messages are in flight: see `Outgoing.flush`."""
        with self._changed:
            done = self._changed.wait_for(lambda: self.has_room(below), timeout_s)
        self._raise_error()
        if not done:
            raise self._late(timeout_s)

    def close(self) -> bool:
        """End the thread if nothing is in flight, else leave it to end with the process; tell which."""
        self._sent.put(None)
        idle = self._number == self._gone
        if idle and self._thread is not None:
            self._thread.join()
        return idle

    def _watch(self) -> None:
        while (works := self._sent.get()) is not None:
            self._finish(works)
            del works  # which hold the tensors, and are the op loop's to let go of
            with self._changed:
                self._gone += 1
                self._changed.notify_all()


def _dense(tensor: Tensor) -> Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous()
