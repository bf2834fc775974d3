"""The sending end of a channel over gloo."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from queue import SimpleQueue

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from adaptpipe.solver import InputError

from ..errors import Late
from ..programs.route import Route
from .channel import EXPECTED, HEADERS, OTHERS, End, checked
from .header import HEADER_WORDS, Header, encode
from .ledger import Ledger
from .message import ENVELOPE, Message, enclosed, layout, nbytes, specs_of


class Outgoing(End):
    """The sending end of a channel.

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
    """

    def __init__(self, route: Route, peer: int, group: dist.ProcessGroup, tag: int, ledger: Ledger) -> None:
        self._number = 0
        self._gone = 0
        # What has not been let go of: the operations, the tensors that they need, and the payload's bytes.
        self._kept: deque[tuple[list[dist.Work], list[Tensor], int]] = deque()
        self._sent: SimpleQueue[list[dist.Work] | None] = SimpleQueue()
        super().__init__(route, peer, group, tag, ledger, self._watch)

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
        self._sent.put(works)

    def _parts(self, microbatch: int, message: Message, payload: Sequence[Tensor]) -> Mapping[int, Sequence[Tensor]]:
        """What to send, by tag."""
        specs = specs_of(message)
        words = encode(Header(self._number, microbatch, specs))
        expected, mine = self._last.get(microbatch, ()), layout(specs)
        if expected == mine and (size := enclosed(expected)):
            envelope = torch.empty(ENVELOPE + size, dtype=torch.uint8, device="cpu")
            envelope.numpy()[:ENVELOPE].view(np.int64)[:] = words
            (tensor,) = payload
            envelope[ENVELOPE:].view(tensor.dtype).view(tensor.shape).copy_(tensor)
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

    def release(self) -> None:
        """Let go of what has gone."""
        while len(self._kept) > self._number - self._gone:
            _, _, size = self._kept.popleft()
            self._ledger.add(-size)

    def has_room(self, capacity: int) -> bool:
        """Tell whether fewer than `capacity` messages are in flight; never waits."""
        self.release()
        return self._number - self._gone < capacity or self._error is not None

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
                f"{self.route}: {self._number - self._gone} messages were not taken within {timeout_s:g} s; "
                "the other rank hangs, or expects fewer messages"
            )

    def close(self) -> bool:
        """End the thread if nothing is in flight, else leave it to end with the process; tell which."""
        self._sent.put(None)
        idle = self._number == self._gone
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

    def _post(self, tensor: Tensor, kind: int) -> dist.Work:
        return checked(dist.isend(tensor, self._peer, group=self._group, tag=self._tag + kind))

    def _watch(self) -> None:
        while (works := self._sent.get()) is not None:
            self._finish(works)
            del works  # which hold the tensors, and are the op loop's to let go of
            with self._changed:
                self._gone += 1
                self._changed.notify_all()


def _dense(tensor: Tensor) -> Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous()
