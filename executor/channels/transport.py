"""Messages between ranks: one channel for each directed edge and kind.

A message is sent as soon as its op is done, and the op loop waits for it only where a memory limit bounds how many may
be in flight. Receives are posted a window ahead, and more of them where the op loop waits for a message behind others.
A run can then only stall where its ops wait for each other in a circle, or for room in such a window, which can be
checked before the first message.

What it costs, between two ranks on one machine with two busy cores (torch 2.13, gloo, minima of some
hundred round trips, November 2026): a message of 64 KB takes 0.53 ms of processor on both ranks together, 1 MiB 0.79 ms
and 16 MiB 5.2 ms. A bare blocking send and receive, without header, threads and accounts, takes 0.18, 0.47 and 4.0 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import product

import torch
import torch.distributed as dist

from ..crew import Crew
from ..programs.route import WINDOW, Route
from .channel import TAGS
from .incoming import Incoming
from .ledger import Ledger
from .message import Message
from .outgoing import Outgoing

_FOREVER = timedelta(days=1)  # gloo breaks the connection when it times out; the limits that count are ours


class Transport:
    """All channels of this rank. Made by `connect`.

    Attributes
    ----------
    received
        Bytes of messages received and not yet taken, now and at their peak.
    in_flight
        Bytes of messages sent and not yet gone. Their tensors may be held by the stages as well.
    messages
        Both together, and what else the rank counts as messages.
    arrived_s
        When the message that `recv` gave or `wait` saw last had arrived, by `time.perf_counter`; 0 before the first.
    """

    def __init__(
        self,
        outgoing: Mapping[Route, Outgoing],
        incoming: Mapping[Route, Incoming],
        received: Ledger,
        in_flight: Ledger,
        messages: Ledger,
        timeout_s: float,
        groups: Sequence[dist.ProcessGroup],
    ) -> None:
        self.received = received
        self.in_flight = in_flight
        self.messages = messages
        self.arrived_s = 0.0
        self._outgoing = outgoing
        self._incoming = incoming
        self._timeout_s = timeout_s
        self._groups = groups

    def begin(
        self, orders: Mapping[Route, Sequence[int]], late_s: Mapping[Route, Mapping[int, float]] | None = None
    ) -> None:
        """Start a step: for each incoming route, the micro-batches in the order in which they are sent.

        Routes that carry nothing in this step, as those of gradients in an evaluation, may be left out. `late_s` holds
        back messages of some micro-batches: see `Incoming.begin`.
        """
        for route, order in orders.items():
            if route in self._incoming:
                self._incoming[route].begin(order, None if late_s is None else late_s.get(route))

    def send(self, route: Route, microbatch: int, message: Message) -> None:
        """Send without waiting: see `Outgoing.send`."""
        self._outgoing[route].send(microbatch, message)
        self._release()

    def has_room(self, route: Route, capacity: int) -> bool:
        """Tell whether fewer than `capacity` messages of a route are in flight."""
        return self._outgoing[route].has_room(capacity)

    def make_room(self, route: Route, capacity: int) -> None:
        """Wait until fewer than `capacity` messages of a route are in flight: see `Outgoing.flush`."""
        self._outgoing[route].flush(self._timeout_s, capacity)

    def ready(self, route: Route, microbatch: int) -> bool:
        """Tell whether `recv` would return at once."""
        return self._incoming[route].ready(microbatch)

    def wait(self, route: Route, microbatch: int) -> None:
        """Wait until `recv` would return at once: see `Incoming.wait`."""
        self.arrived_s = self._incoming[route].wait(microbatch, self._timeout_s)

    def recv(self, route: Route, microbatch: int) -> Message:
        """Take a message, waiting up to the transport's time-out: see `Incoming.recv`."""
        channel = self._incoming[route]
        message = channel.recv(microbatch, self._timeout_s)
        self.arrived_s = channel.arrived_s
        self._release()
        return message

    def flush(self) -> None:
        """Wait at the end of a step until everything has gone: see `Outgoing.flush`."""
        for channel in self._outgoing.values():
            channel.flush(self._timeout_s)

    def _release(self) -> None:
        for channel in self._outgoing.values():
            channel.release()

    def close(self) -> None:
        """End the threads and groups. After a failure, what still waits ends with the process."""
        idle = [channel.close() for channel in (*self._outgoing.values(), *self._incoming.values())]
        if all(idle):
            for group in self._groups:
                dist.destroy_process_group(group)


def connect(
    crew: Crew,
    routes: Sequence[Route],
    *,
    window: int = WINDOW,
    timeout_s: float = 600.0,
    device: torch.device | None = None,
) -> Transport:
    """Open the channels; all processes of the default group call it with the same routes in the same order.

    Parameters
    ----------
    crew
        Which processes the routes' ranks are; each replica has channels of its own.
    routes
        The edges between stages on different ranks.
    window
        How many received messages may wait in one channel. Further ones wait at their sender.
    timeout_s
        How long `recv` and `flush` wait, in seconds.
    device
        Where the stages are; None is the CPU, by gloo. A CUDA device is served by NCCL, untested so far.

    Returns
    -------
    Transport
        The channels that begin or end at this rank.
    """
    me = dist.get_rank()
    messages = Ledger()
    received, in_flight = Ledger(messages), Ledger(messages)
    outgoing: dict[Route, Outgoing] = {}
    incoming: dict[Route, Incoming] = {}
    # One group for all channels of a replica: each group has a thread that wakes up a hundred times a second.
    shared = [dist.new_group(list(members), timeout=_FOREVER, backend="gloo") for members in crew.replicas if routes]
    groups = [shared[crew.replica]] if routes else []
    for (number, route), members in product(enumerate(routes), crew.replicas):
        assert route.source != route.target, f"{route}: stages on one rank pass their tensors directly"
        source, target = ends = [members[route.source], members[route.target]]
        cuda = device is not None and device.type == "cuda"
        payload = dist.new_group(ends, timeout=_FOREVER, backend="nccl") if cuda else None
        if me not in ends:
            continue
        group, tag = groups[0], number * TAGS
        if payload is not None and device is not None:
            from .nccl import NcclIncoming, NcclOutgoing, touch

            groups.append(payload)
            touch(payload, device)
            if me == source:
                outgoing[route] = NcclOutgoing(route, target, group, tag, in_flight, payload, device)
            else:
                incoming[route] = NcclIncoming(route, source, group, tag, received, window, payload, device)
        elif me == source:
            outgoing[route] = Outgoing(route, target, group, tag, in_flight)
        else:
            incoming[route] = Incoming(route, source, group, tag, received, window)
    return Transport(outgoing, incoming, received, in_flight, messages, timeout_s, groups)
