"""Run a function on all ranks: on local processes started here, or on those that torchrun started."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import Array, c_int64
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from adaptpipe.solver import InputError

from ..errors import PeerFailed, RankFailure
from ..failures import blame
from ..whereabouts import Board
from .child import HOST, Bootstrap, Job, describe_exit, rank_main, unpickle_failure

A = TypeVar("A")
R = TypeVar("R")

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_HEARSAY_S = 2.0  # how long a rank's "connection closed" waits for a better explanation
# The last one is what the first backward of a process imports, half a second of it.
_PRELOADED = [
    "adaptpipe.executor.launching.child",
    "adaptpipe.executor.running.pipeline",
    "adaptpipe.executor.launching.warm",
    "torch.fx.experimental.symbolic_shapes",
]
_MERCY_S = 2.0  # between SIGTERM and SIGKILL


@dataclass(frozen=True, slots=True)
class _Rank:
    """A local process and where its outcome will be read."""

    number: int
    process: BaseProcess
    outcome: Connection


def launch(
    function: Callable[[int, int, A], R],
    ranks: int,
    argument: A,
    *,
    threads: int | None = None,
    backend: str = "gloo",
    preload: Sequence[str] = (),
) -> tuple[R, ...]:
    """Run `function(rank, world, argument)` on every rank and collect what they return.

    Under torchrun (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set) this process is one of the ranks; else all
    are started here, by a fork server that has imported torch. The default process group is there when the function
    starts. When a rank fails, the others are ended; so are all when this process ends, however it does.

    Parameters
    ----------
    function
        Found by name, as pickle does. If it, or anything in `argument`, is of the main module, the ranks run that
        again up to this call, or up to `if __name__ == "__main__"`.
    ranks
        How many.
    argument
        Pickled once, by value.
    threads
        Of torch, per local rank; None shares the cores out.
    backend
        Of the process group. NCCL ("cpu:gloo,cuda:nccl") is untested.
    preload
        Modules that are slow to import and that every rank needs: the fork server imports them once for all ranks,
        if it has not been started yet.

    Returns
    -------
    tuple
        The results by rank, on every rank of torchrun.

    Raises
    ------
    InputError
        If `ranks` is below 1 or not what torchrun started, or if the function cannot be found by name.
    RankFailure
        If a rank fails: the first to do so.
    PeerFailed
        Under torchrun, on ranks that stop because another one failed.
    """
    Bootstrap.stop_if_running()
    if ranks < 1:
        raise InputError(f"ranks = {ranks}: at least 1 is needed")
    if all(name in os.environ for name in _TORCHRUN):
        return _join(function, ranks, argument, backend)
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)  # outlives every rank
    jobs = _jobs(function, ranks, argument, store.port, threads, backend)
    cells = multiprocessing.get_context("forkserver").RawArray(c_int64, Board.size(ranks))
    running: list[_Rank] = []
    try:
        for job in jobs:
            running.append(_start(job, preload, cells))
        results = _collect(running, Board(cells))
        for rank in running:
            rank.process.join()
    finally:
        _end(running)
        del store  # an exception keeps this frame, and the port must not stay open with it
    return tuple(pickle.loads(result) for result in results)


def _jobs(
    function: Callable[[int, int, A], R], ranks: int, argument: A, port: int, threads: int | None, backend: str
) -> list[Job]:
    try:
        work = pickle.dumps((function, argument))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"{getattr(function, '__qualname__', function)} and its argument must go to other processes, and cannot: "
            f"{error}; define the function and its classes at the top level of a module"
        ) from error
    name = function.__module__
    file = getattr(sys.modules[name], "__file__", None)
    if threads is None:
        threads = max(1, _cores() // ranks)
    return [
        Job(
            work=work,
            module=None if name == "__main__" or file is None else (name, file),
            main=_main_module() if b"__main__" in work else None,
            environ=dict(os.environ),
            rank=rank,
            world=ranks,
            port=port,
            threads=threads,
            backend=backend,
        )
        for rank in range(ranks)
    ]


def _main_module() -> tuple[Literal["path", "name"], str]:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return "name", spec.name
    file = getattr(main, "__file__", None)
    if file is None or not os.path.exists(file):
        raise InputError("a function or class of an interactive session cannot go to other processes; put it in a file")
    return "path", os.path.abspath(file)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(job: Job, preload: Sequence[str], cells: Array[c_int64]) -> _Rank:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_PRELOADED, *preload])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=rank_main, args=(job, sender, cells), name=f"rank {job.rank}")
    with _hidden_main():
        process.start()
    sender.close()  # the rank has its own, and its end must be seen here
    return _Rank(job.rank, process, receiver)


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Keep multiprocessing from running the main module in the child, which we do ourselves, and only if needed."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _collect(running: Sequence[_Rank], board: Board) -> list[bytes]:
    """Wait for all results, or for the first failure and raise it."""
    results: dict[int, bytes] = {}
    hearsay: RankFailure | None = None
    deadline: float | None = None
    waiting = {rank.outcome: rank for rank in running}
    while waiting:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = wait(list(waiting), timeout)
        for outcome in ready:
            assert isinstance(outcome, Connection)
            rank = waiting.pop(outcome)
            try:
                kind, data = outcome.recv()
            except (EOFError, OSError):
                rank.process.join()
                raise _died(board, rank.number, describe_exit(rank.process.exitcode)) from None
            if kind == "done":
                results[rank.number] = data
                continue
            failure = unpickle_failure(data)
            if kind in ("failed", "late"):
                assert isinstance(failure, RankFailure)
                raise failure if kind == "failed" else _hung(board, failure, [each.number for each in running])
            # Somebody else failed, and will be heard of in a moment, with more to say.
            hearsay = hearsay or (failure.first if isinstance(failure, PeerFailed) else failure)
            deadline = deadline or time.monotonic() + _HEARSAY_S
        if hearsay is not None and not ready:
            break
    if hearsay is not None:
        raise hearsay
    return [results[number] for number in sorted(results)]


def _died(board: Board, rank: int, cause: str) -> RankFailure:
    where = board.read(rank)
    return RankFailure(rank, None, None, None, None, cause) if where is None else where.failure(cause)


def _hung(board: Board, late: RankFailure, ranks: Sequence[int]) -> RankFailure:
    """Name the rank that has been in one op while another waited in vain; if there is none, the one that waited."""
    places = [where for rank in ranks if rank != late.rank and (where := board.read(rank)) is not None]
    stuck = max((where for where in places if where.seems_to_hang), key=lambda where: where.for_s, default=None)
    if stuck is None:
        return late
    return stuck.failure(f"has been in this op for {stuck.for_s:.1f} s, and others wait; {late.headline}", late.details)


def _end(running: Sequence[_Rank]) -> None:
    for rank in running:
        if rank.process.is_alive():
            rank.process.terminate()
    deadline = time.monotonic() + _MERCY_S
    for rank in running:
        rank.process.join(max(0.0, deadline - time.monotonic()))
        if rank.process.is_alive():
            rank.process.kill()
        rank.process.join()
        rank.outcome.close()


def _join(function: Callable[[int, int, A], R], ranks: int, argument: A, backend: str) -> tuple[R, ...]:
    from torch.distributed.elastic.multiprocessing.errors import record

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world != ranks:
        raise InputError(f"torchrun started {world} ranks, and {ranks} are needed: use --nproc-per-node and --nnodes")
    ours = not dist.is_initialized()
    if ours:
        if "nccl" in backend:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
        dist.init_process_group(backend)

    def run() -> R:
        try:
            return function(rank, world, argument)
        except Exception as error:
            verdict = blame(error, rank)
            raise verdict from (error if verdict is not error else error.__cause__)

    # torchrun shows the error of the rank that failed first, if the ranks leave theirs where `record` does.
    results: list[R | None] = [None] * world
    dist.all_gather_object(results, record(run)())
    if ours:  # its threads must not outlive the interpreter
        dist.barrier()
        dist.destroy_process_group()
    return tuple(results)  # type: ignore[arg-type]  # all are filled
