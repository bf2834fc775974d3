"""Wait for what processes do together, and no longer than others of them may take to come."""

from __future__ import annotations

import pickle
from datetime import timedelta
from itertools import count
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from .errors import Late
from .failures import is_time_out

T = TypeVar("T")

_meetings = count()
"""Numbers of the calls of `gather`, which all processes make in one order."""


def wait_in_time(work: dist.Work | None, timeout_s: float, late: str) -> None:
    """Wait for a collective that was started with `async_op=True`.

    Parameters
    ----------
    work
        Its handle.
    timeout_s
        Seconds to wait.
    late
        What to say when not every process has come by then.

    Raises
    ------
    Late
        If it takes longer.
    """
    assert work is not None, "this process is in the group"
    try:
        work.wait(timedelta(seconds=timeout_s))
    except RuntimeError as error:
        if is_time_out(error):
            raise Late(late) from error
        raise


def gather(mine: T, timeout_s: float, what: str, *, only: int | None = None) -> list[T]:
    """Tell every process of the default group what each of them has.

    Parameters
    ----------
    mine
        Anything that can be pickled.
    timeout_s
        Seconds to wait for the last process to come, and again for what it has.
    what
        What processes come together for, as "the start of a step".
    only
        The one process that is told; the others get an empty list. None: all.

    Raises
    ------
    Late
        If it takes longer, with the ranks that did not come.
    """
    world, me, device = dist.get_world_size(), dist.get_rank(), _meeting_place()
    store, mark = _get_default_store(), f"adaptpipe/meeting-{next(_meetings)}"
    store.set(f"{mark}/{me}", "")
    data = torch.frombuffer(bytearray(pickle.dumps(mine)), dtype=torch.uint8).to(device)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(world)]
    late = f"not every rank has told of its part in {what} within {timeout_s:g} s"
    try:
        work = dist.all_gather(sizes, torch.tensor([len(data)], device=device), async_op=True)
        wait_in_time(work, timeout_s, late)
    except Late as error:
        missing = [rank for rank in range(world) if not store.check([f"{mark}/{rank}"])]
        if not missing:
            raise
        names = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
        raise Late(f"{names} did not come to {what} within {timeout_s:g} s") from error
    lengths = [int(size) for size in sizes]
    data = torch.nn.functional.pad(data, (0, max(lengths) - len(data)))
    told = only is None or only == me
    parts = [torch.empty_like(data) for _ in range(world)] if told else []
    if only is None:
        work = dist.all_gather(parts, data, async_op=True)
    else:
        work = dist.gather(data, parts or None, dst=only, async_op=True)
    wait_in_time(work, timeout_s, late)
    return [pickle.loads(part[:length].cpu().numpy().tobytes()) for part, length in zip(parts, lengths, strict=False)]


def _meeting_place() -> torch.device:
    """Where tensors of all processes can meet."""
    if "cpu:" in dist.get_backend_config():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())
