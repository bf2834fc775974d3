"""Measure the links between ranks, by messages of a run's own transport."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import permutations

import torch
import torch.distributed as dist
from torch import Tensor

from adaptpipe.solver import InputError

from ..channels.transport import Transport, connect
from ..crew import Crew
from ..programs.route import Route
from ..waiting import gather

_TRIPS, _WARM_UP = 21, 2
"""Round trips of each size between two ranks, and those before them that do not count: buffers are made in there."""

_ELEMENTS = 1 << 22
"""Of a large message, single-precision numbers: 16 MiB, as hidden states have."""

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class MeasuredLinks:
    """What messages between ranks take, [from][to]; 0 from a rank to itself.

    Parameters
    ----------
    latency_s
        Seconds of a message that is next to empty: half of a round trip, so the same both ways.
    bandwidth
        Bytes per second of what a large message takes more; where that is less than a quarter of all that it takes, and
        lost among what messages differ by, of that quarter.
    """

    latency_s: Matrix
    bandwidth: Matrix


def measure_links(
    *, device: torch.device | None = None, elements: int = _ELEMENTS, trips: int = _TRIPS, timeout_s: float = 600.0
) -> MeasuredLinks:
    """Latency and bandwidth between any two processes of the default group, which call it together.

    One pair after the other: links that several pairs share are each measured with nothing else on them. A message goes
    there, and one of a single number comes back; the fastest of some round trips counts, for what else runs on the
    machine shall not. That holds headers, threads and all that a run's messages pass through.

    Parameters
    ----------
    device
        Where the messages are; None: in main memory. A GPU is served by NCCL, untested.
    elements
        Single-precision numbers of a large message.
    trips
        Round trips of each size.
    timeout_s
        Seconds to wait for a message, or for the other pairs.

    Raises
    ------
    InputError
        When there is one process only, or a number is below 1.
    """
    ranks, me = dist.get_world_size(), dist.get_rank()
    for key, value, least in (("ranks", ranks, 2), ("elements", elements, 2), ("trips", trips, 1)):
        if value < least:
            raise InputError(f"{key} = {value}: links are measured with {least} at least")
    pairs = list(permutations(range(ranks), 2))
    transport = connect(Crew.of(), [_route(*pair) for pair in pairs], timeout_s=timeout_s, device=device)
    one, many = (torch.zeros(count, device=device) for count in (1, elements))
    mine: dict[tuple[int, int], tuple[float, float]] = {}
    for pair in pairs:
        gather(None, timeout_s, "the next pair of ranks")  # the others are silent meanwhile
        if me in pair:
            seen = [_trips(transport, pair, message, one, trips) for message in (one, many)]
            if me == pair[0]:
                mine[pair] = seen[0], seen[1]
    everyone = {pair: seen for part in gather(mine, timeout_s, "the links' figures") for pair, seen in part.items()}
    transport.close()
    more = many.nbytes - one.nbytes

    def latency(a: int, b: int) -> float:
        return (everyone[a, b][0] + everyone[b, a][0]) / 4 if a != b else 0.0

    def bandwidth(a: int, b: int) -> float:
        if a == b:
            return 0.0
        small, large = everyone[a, b]
        return more / max(large - small, large / 4)

    rows = range(ranks)
    return MeasuredLinks(
        tuple(tuple(latency(a, b) for b in rows) for a in rows),
        tuple(tuple(bandwidth(a, b) for b in rows) for a in rows),
    )


def _route(source: int, target: int) -> Route:
    return Route("F" if source < target else "B", source, target, source, target)


def _trips(transport: Transport, pair: tuple[int, int], message: Tensor, answer: Tensor, trips: int) -> float:
    """Least seconds of a message from the first of two ranks to the second and its answer; the first one's count."""
    there, back = _route(*pair), _route(*reversed(pair))
    first = dist.get_rank() == pair[0]
    seen = []
    for _ in range(_WARM_UP + trips):
        transport.begin({there: [0], back: [0]})
        begin = time.perf_counter()
        if first:
            transport.send(there, 0, (message,))
        (got,) = transport.recv(back if first else there, 0)
        if got is not None and got.is_cuda:
            torch.cuda.synchronize(got.device)
        if not first:
            transport.send(back, 0, (answer,))
        seen.append(time.perf_counter() - begin)
        transport.flush()
    return min(seen[_WARM_UP:])
