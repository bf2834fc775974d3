"""What the two ends of a channel share. Over gloo, each has a thread that waits, so that the op loop need not.

A gloo operation finishes only inside `wait()`; its handle cannot be polled, and a `wait` that times out breaks the
connection. Hence the threads: they wait without limit, and the limits are ours. They do little else: what they do in
Python the op loop has to wait for.

A tensor whose receive is posted before it is sent goes at once; one that is sent first costs both processes several
times as much. So the op loop posts a window of receives ahead, and does not wait for a header to post what comes with
it: it expects tensors like those of the last message of the same micro-batch, and the sender, which knows that too,
fulfils what is expected. A single small tensor is expected in one piece with the header, for each piece wakes up both
processes. Where its tensors are others, the sender sends the header alone, or one element for each tensor that is
expected apart, which gloo takes for the whole, and then its own.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch.distributed as dist

from ..errors import ConnectionLost, TransportError
from ..failures import is_time_out
from ..programs.route import Route
from .ledger import Ledger
from .message import TensorSpec

HEADERS, EXPECTED, OTHERS = range(3)
"""Tags of a channel: what is sent under one of them arrives in order."""

TAGS = 3
"""How many there are."""


class End(ABC):
    """What both ends share: a thread, the error it died of, and a condition that it signals."""

    _expects = True
    """Whether tensors are expected to be like the last ones. Both ends must be of one mind."""

    def __init__(
        self, route: Route, peer: int, group: dist.ProcessGroup, tag: int, ledger: Ledger, work: Callable[[], None]
    ) -> None:
        self.route = route
        self._peer = peer
        self._group, self._tag = group, tag
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

    def _finish(self, works: Sequence[dist.Work]) -> None:
        for work in reversed(works):  # the last one ends last, so that there is one wait to wake up from
            work.wait()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._translate(self._error) from self._error

    def _translate(self, error: BaseException) -> TransportError:
        if isinstance(error, TransportError) or not isinstance(error, RuntimeError) or is_time_out(error):
            return TransportError(f"{self.route}: {error}")
        return ConnectionLost(f"{self.route}: {error}")


def checked(work: dist.Work | None) -> dist.Work:
    """The handle of an operation, which is None only for processes outside its group."""
    assert work is not None, "this rank is not in the channel's group"
    return work
