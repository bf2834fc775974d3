"""What the ranks of the tests of layers and links do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

import time
from unittest import mock

from torch import Tensor, nn, ones
from torch.nn import functional as F

from adaptpipe.executor.channels.message import Message
from adaptpipe.executor.channels.transport import Transport
from adaptpipe.executor.measuring.layers import LayerName, measure_layers
from adaptpipe.executor.measuring.links import MeasuredLinks, measure_links
from adaptpipe.executor.programs.route import Route
from adaptpipe.solver import Profile


def profile_of(rank: int, world: int, _: None) -> Profile:
    """Measure three layers."""

    def batch_of(samples: int) -> tuple[Tensor, Tensor]:
        return ones(samples, 64), ones(samples, 64)

    layers = [LayerName(name, name.split()[0], 64 * 65) for name in ("block 0", "block 1", "head")]
    return measure_layers(layers, lambda _: nn.Linear(64, 64), F.mse_loss, batch_of, [1, 8], rounds=3)


def links_of(rank: int, world: int, slow: tuple[int, int]) -> MeasuredLinks:
    """Measure links, of which one holds every large message back, and its reverse one of them."""
    send, once = Transport.send, iter([False, False, True])

    def late(self: Transport, route: Route, microbatch: int, message: Message) -> None:
        if message[0] is not None and message[0].numel() > 1:
            ends = route.source, route.target
            if ends == slow or (ends == slow[::-1] and next(once, False)):
                time.sleep(0.4)
        send(self, route, microbatch, message)

    with mock.patch.object(Transport, "send", late):
        return measure_links(elements=1000, trips=3)
