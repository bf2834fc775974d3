"""What the ranks of the transport tests do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from adaptpipe.executor.channels.message import DTYPES, Message, nbytes
from adaptpipe.executor.channels.transport import Transport, connect
from adaptpipe.executor.crew import Crew
from adaptpipe.executor.errors import ConnectionLost, Late, TransportError
from adaptpipe.executor.programs.route import Route
from adaptpipe.solver import InputError

THERE, BACK = Route("F", 0, 1, 0, 1), Route("B", 1, 0, 1, 0)
STEPS = 5
SIZE = 1 << 20  # bytes of one message in the tests of the window


def random_bytes(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Make a tensor of any dtype, with all kinds of values."""
    if dtype is torch.bool:
        return torch.rand(shape) > 0.5
    size = torch.empty(0, dtype=dtype).element_size()
    return torch.randint(256, (*shape[:-1], shape[-1] * size), dtype=torch.uint8).view(dtype)


Part = tuple[str, tuple[int, ...], bool, str]


def facts(message: Message) -> list[Part | None]:
    """Give dtype, shape, whether it requires grad, and a digest of the values; pickle fails with some dtypes."""
    return [
        None if part is None else (str(part.dtype), tuple(part.shape), part.requires_grad, digest(part))
        for part in message
    ]


def digest(tensor: torch.Tensor) -> str:
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()


def any_messages(seed: int) -> list[Message]:
    """Make messages of every dtype, with parts missing, empty, without dimensions, or not contiguous."""
    torch.manual_seed(seed)
    return [
        (),
        (None,),
        *((random_bytes(dtype, 2, 3),) for dtype in DTYPES),
        (torch.randn(2, 4, 8).bfloat16().requires_grad_(), torch.ones(2, 4, dtype=torch.bool), torch.arange(4)),
        (torch.tensor(1.5), None, torch.tensor(True), torch.empty(0, 3), torch.empty(2, 0, dtype=torch.int32)),
        (torch.randn(3, 5).t(), torch.randn(4, 4)[::2, 1:], torch.randn(1).expand(7, 3)),
        (torch.randn(3, dtype=torch.complex64).conj(), torch.randn(3, dtype=torch.complex64).conj().imag),
        (torch.randn(1 << 20),),
        (torch.randn(3),),
        tuple(torch.full((1, 1, 1, n), float(n), requires_grad=n % 2 == 0) for n in range(1, 41)),
    ]


def exchange(rank: int, world: int, seed: int) -> list[list[Part | None]]:
    """Rank 0 sends, rank 1 receives, over steps alike and unlike the ones before; both tell what.

    A received tensor keeps no more memory than its own alive; a single small one that is expected travels in one piece.
    """
    transport = connect(Crew.of(), [THERE])
    messages = any_messages(seed)
    seen = []
    pieces = 0
    if rank == 0:
        channel = transport._outgoing[THERE]
        post = channel._post

        def counted(tensor: torch.Tensor, kind: int) -> dist.Work:
            nonlocal pieces
            pieces += 1
            return post(tensor, kind)

        channel._post = counted  # type: ignore[method-assign]  # to look on
    for step in range(STEPS):
        messages = messages if step < 2 else [*messages[step:], *messages[:step]]
        transport.begin({THERE: range(len(messages))})
        for j, message in enumerate(messages):
            if rank == 0:
                pieces = 0
                transport.send(THERE, j, message)
                if step == 1 and len(message) == 1:
                    assert pieces == (1 if nbytes(message) < 1 << 21 else 2)
            else:
                message = transport.recv(THERE, j)
                for part in message:
                    if part is not None:
                        assert part.is_leaf
                        assert part.untyped_storage().nbytes() == part.nbytes
            seen.append(facts(message))
        transport.flush()
    assert (transport.in_flight.current, transport.received.current) == (0, 0)
    transport.close()
    assert not [thread.name for thread in threading.enumerate() if "->" in thread.name]
    return seen


def out_of_order(rank: int, world: int, window: int) -> list[list[float]]:
    """Each step has another order; rank 1 takes the messages in yet another one, for which the window is too small."""
    transport = connect(Crew.of(), [THERE], window=window)
    got = []
    for order in ([0, 1, 2, 3, 4], [4, 2, 0], [7]):
        transport.begin({THERE: order})
        if rank == 0:
            for j in order:
                transport.send(THERE, j, (torch.full((j + 1,), float(j)),))
        else:
            got += [_only(transport.recv(THERE, j)).tolist() for j in reversed(order)]
        transport.flush()
    transport.close()
    return got


def fill_window(rank: int, world: int, window: int) -> tuple[int, int, int, int]:
    """Rank 1 takes nothing until rank 0 has sent all; tell what both held, and rank 1's peak."""
    transport = connect(Crew.of(), [THERE], window=window)
    transport.begin({THERE: range(6)})
    held = 0
    if rank == 0:
        for j in range(6):
            transport.send(THERE, j, (torch.full((SIZE // 4,), float(j)),))
        # The senders' thread sees the first ones go; the rest cannot.
        _until(lambda: transport.has_room(THERE, 6 - window + 1))
        held = transport.in_flight.current
        dist.barrier()
    else:
        _until(lambda: transport.received.current == window * SIZE)
        dist.barrier()
        time.sleep(0.1)
        held = transport.received.current
        assert transport.ready(THERE, 0)
        assert not transport.ready(THERE, 5)
        for j in range(6):
            assert _only(transport.recv(THERE, j))[0] == j
    transport.flush()
    result = held, transport.received.current, transport.in_flight.current, transport.received.peak
    transport.received.reset_peak()
    assert transport.received.peak == 0
    # From the second step on receives are posted before anything is sent, a window of them.
    transport.begin({THERE: range(6)})
    assert transport.received.current == (window * SIZE if rank == 1 else 0)
    for j in range(6):
        if rank == 0:
            transport.send(THERE, j, (torch.full((SIZE // 4,), float(-j)),))
        else:
            assert _only(transport.recv(THERE, j))[-1] == -j
            assert transport.received.current <= window * SIZE
    transport.flush()
    transport.close()
    return result


def hold_back(rank: int, world: int, argument: None) -> tuple[bool, float, float]:
    """Rank 1 holds the first of two messages back: whether it was ready on arrival, and what taking both took."""
    transport = connect(Crew.of(), [THERE])
    transport.begin({THERE: range(2)}, {THERE: {0: 0.3}})
    if rank == 0:
        for j in range(2):
            transport.send(THERE, j, (torch.zeros(3),))
        transport.flush()
        dist.barrier()
        transport.close()
        return False, 0.0, 0.0
    _until(lambda: transport.ready(THERE, 1))
    early, begin = transport.ready(THERE, 0), time.perf_counter()
    transport.wait(THERE, 0)
    assert transport.ready(THERE, 0)
    transport.recv(THERE, 0)
    waited = time.perf_counter() - begin
    assert begin < transport.arrived_s <= time.perf_counter()
    transport.recv(THERE, 1)
    dist.barrier()
    transport.close()
    return early, waited, time.perf_counter() - begin


def make_room(rank: int, world: int, argument: None) -> tuple[bool, bool, str]:
    """Rank 0 sends until a window of two is full beside that of rank 1, and has room again when one is taken."""
    transport = connect(Crew.of(), [THERE], timeout_s=20)
    transport.begin({THERE: range(4)})
    before = after = False
    text = ""
    if rank == 0:
        for j in range(4):
            transport.make_room(THERE, 2)
            transport.send(THERE, j, (torch.zeros(SIZE // 4),))
        _until(lambda: transport.has_room(THERE, 3))
        assert transport.in_flight.current == 2 * SIZE
        before = transport.has_room(THERE, 2)
        transport._timeout_s = 0.2
        text = _message_of(Late, lambda: transport.make_room(THERE, 2))
        transport._timeout_s = 20
        dist.barrier()
        transport.make_room(THERE, 2)
        after = transport.has_room(THERE, 2)
        assert transport.messages.peak == transport.in_flight.peak <= 2 * SIZE
    else:
        dist.barrier()
        for j in range(4):
            transport.recv(THERE, j)
    transport.flush()
    transport.close()
    return before, after, text


def both_ways(rank: int, world: int, argument: None) -> float:
    """Three ranks in a ring, all sending first, messages far larger than any socket buffer."""
    routes = [Route("F", s, (s + 1) % world, s, (s + 1) % world) for s in range(world)]
    routes += [Route("B", (s + 1) % world, s, (s + 1) % world, s) for s in range(world)]
    transport = connect(Crew.of(), routes)
    transport.begin({route: range(3) for route in routes})
    for j in range(3):
        for route in routes:
            if route.source == rank:
                transport.send(route, j, (torch.full((1 << 20,), float(10 * rank + j)),))
    total = 0.0
    for j in range(3):
        for route in routes:
            if route.target == rank:
                total += float(_only(transport.recv(route, j)).mean())
    transport.flush()
    transport.close()
    return total


def wrong_order(rank: int, world: int, argument: None) -> str:
    transport = connect(Crew.of(), [THERE])
    transport.begin({THERE: [0, 1]})
    if rank == 0:
        transport.send(THERE, 1, (torch.zeros(3),))
        dist.barrier()
        return ""
    text = _message_of(TransportError, lambda: transport.recv(THERE, 0))
    dist.barrier()
    return text


def not_a_header(rank: int, world: int, argument: None) -> str:
    transport = connect(Crew.of(), [THERE])
    transport.begin({THERE: [0]})
    if rank == 0:
        channel = transport._outgoing[THERE]
        dist.send(torch.arange(64), 1, group=channel._group, tag=channel._tag)
        dist.barrier()
        return ""
    text = _message_of(TransportError, lambda: transport.recv(THERE, 0))
    assert transport.ready(THERE, 0)  # so that an op loop that polls gets to see the error
    dist.barrier()
    return text


def nothing_comes(rank: int, world: int, argument: None) -> str:
    transport = connect(Crew.of(), [THERE], timeout_s=0.3)
    transport.begin({THERE: [4, 5]})
    if rank == 0:
        dist.barrier()
        return ""
    assert not transport.ready(THERE, 4)
    text = _message_of(Late, lambda: transport.recv(THERE, 4))
    dist.barrier()
    return text


def nobody_takes(rank: int, world: int, argument: None) -> str:
    transport = connect(Crew.of(), [THERE], timeout_s=0.3)
    text = ""
    if rank == 0:
        transport.send(THERE, 0, (torch.zeros(SIZE // 4),))
        text = _message_of(Late, transport.flush)
    dist.barrier()
    return text


def other_end_dies(rank: int, world: int, file: Path) -> None:
    """Rank 1 is killed; rank 0 writes what it sees in its receive, its send and its flush."""
    transport = connect(Crew.of(), [THERE, BACK], timeout_s=30)
    transport.begin({BACK: [0]})
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # by which launch ends the others
    seen = [
        _message_of(ConnectionLost, lambda: transport.recv(BACK, 0)),
        _message_of(ConnectionLost, lambda: _send_for_ever(transport)),
        _message_of(ConnectionLost, transport.flush),
    ]
    transport.close()
    file.with_suffix(".tmp").write_text("\n".join(seen))
    file.with_suffix(".tmp").rename(file)


def wrong_device(rank: int, world: int, argument: None) -> str:
    transport = connect(Crew.of(), [THERE])
    text = ""
    if rank == 0:
        text = _message_of(InputError, lambda: transport.send(THERE, 0, (torch.zeros(3, device="meta"),)))
        transport.flush()
    transport.close()
    return text


def _send_for_ever(transport: Transport) -> None:
    while True:
        transport.send(THERE, 0, (torch.zeros(8),))
        time.sleep(0.01)


def _message_of(kind: type[Exception], action: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        action()
    assert type(caught.value) is kind
    return str(caught.value)


def _only(message: Message) -> torch.Tensor:
    (tensor,) = message
    assert tensor is not None
    return tensor


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.002)
