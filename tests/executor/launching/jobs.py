"""What the ranks of the launch tests do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist

from adaptpipe.executor.errors import RankFailure
from adaptpipe.executor.failures import blame


def add_up(rank: int, world: int, argument: torch.Tensor) -> tuple[int, int, torch.Tensor]:
    total = argument * (rank + 1)
    dist.all_reduce(total)
    return rank, torch.get_num_threads(), total


def fail_at(rank: int, world: int, which: int) -> None:
    if rank == which:
        raise RankFailure(rank, 1, "F", 2, 5, ValueError("boom")) from ValueError("boom")
    dist.recv(torch.zeros(1), which)


def fail_plainly(rank: int, world: int, which: int) -> None:
    if rank == which:
        raise ValueError("boom")
    time.sleep(600)


def fail_in_a_row(rank: int, world: int, which: int) -> None:
    """Each rank waits for the next, and the last fails."""
    if rank == which:
        time.sleep(0.5)
        raise ValueError("boom")
    dist.recv(torch.zeros(1), rank + 1)


def kill_self(rank: int, world: int, which: int) -> None:
    if rank == which:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.recv(torch.zeros(1), which)


def leave(rank: int, world: int, which: int) -> None:
    if rank == which:
        os._exit(7)
    time.sleep(600)


def unpicklable(rank: int, world: int, argument: None) -> object:
    return lambda: rank


def write_pid_and_hang(rank: int, world: int, folder: Path) -> None:
    (folder / f"{rank}.tmp").write_text(str(os.getpid()))
    (folder / f"{rank}.tmp").rename(folder / f"{rank}.pid")
    time.sleep(600)


def ignore_sigterm(rank: int, world: int, folder: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    dist.barrier()
    if rank == 0:
        raise ValueError("boom")
    time.sleep(600)


def environment(rank: int, world: int, name: str) -> str | None:
    return os.environ.get(name)


def fail_while_others_lose_their_connection(rank: int, world: int, which: int) -> None:
    """The others name their place too, as the pipeline does, and the first only sounds as if it were not."""
    try:
        if rank == which:
            raise ConnectionResetError("Connection reset by peer")
        dist.recv(torch.zeros(1), which)
    except (RuntimeError, OSError) as error:
        raise blame(error, rank, stage=rank, op="F", microbatch=0, step=3) from error
