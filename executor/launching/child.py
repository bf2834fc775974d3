"""What a local rank does: get ready, join the others, run its function, tell how it went."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
from ctypes import Array, c_int64
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import ModuleType
from typing import ClassVar, Literal

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from ..errors import PeerFailed, RankFailure
from ..failures import blame, is_late
from ..whereabouts import Board

HOST = "127.0.0.1"

Outcome = tuple[Literal["done", "failed", "late", "hearsay"], bytes]
"""How a rank ended, and a pickle: its result; its failure; that it has waited for another in vain; or a failure that
another one caused, or may have."""


@dataclass(frozen=True, slots=True)
class Job:
    """All that a rank needs.

    Parameters
    ----------
    work
        Pickle of the function and its argument.
    module
        Name and file of the function's module, for one that cannot be imported by name.
    main
        How to run the parent's main module again, as ("path", file) or ("name", module); None where the work does not
        need it.
    environ
        The parent's environment; a fork server's is that of its start.
    rank, world, port, threads, backend
        Of the process group and its store on this machine.
    """

    work: bytes = field(repr=False)
    module: tuple[str, str] | None
    main: tuple[Literal["path", "name"], str] | None
    environ: dict[str, str] = field(repr=False)
    rank: int
    world: int
    port: int
    threads: int
    backend: str


class MainReached(BaseException):
    """Ends the second run of a main module at the place where the first one started the ranks."""


class Bootstrap:
    """Whether this process is running its parent's main module again, to find the functions and classes in it."""

    runs_main: ClassVar[bool] = False

    @classmethod
    def stop_if_running(cls) -> None:
        """Stop here, if so; a script without `if __name__ == "__main__"` would start ranks of ranks."""
        if cls.runs_main:
            raise MainReached


def rank_main(job: Job, outcome: Connection, cells: Array[c_int64]) -> None:
    """Be a rank; the target of a local process."""
    Board.mine = Board(cells).place(job.rank)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which then ends the ranks
    threading.Thread(target=_die_with_parent, name="parent", daemon=True).start()
    try:
        result = pickle.dumps(_run(job))
    except BaseException as error:
        verdict = blame(error, job.rank)
        kind: Literal["failed", "late", "hearsay"] = "late" if is_late(error) else "failed"
        if isinstance(verdict, PeerFailed) or verdict.lost:
            kind = "hearsay"
        _tell(outcome, (kind, pickle.dumps(verdict)))
        # Threads may be waiting in gloo for ever: no farewell.
        os._exit(1)
    _tell(outcome, ("done", result))
    if dist.is_initialized():
        try:
            dist.barrier()  # whoever closes early would look like a failure to the others
            dist.destroy_process_group()
        except RuntimeError:  # another rank failed after all, which is for that rank to tell
            os._exit(1)


def _run(job: Job) -> object:
    os.environ.update(job.environ)
    if "GLOO_SOCKET_IFNAME" not in os.environ and any(name == "lo" for _, name in socket.if_nameindex()):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # the machine's own name may not resolve
    torch.set_num_threads(job.threads)
    if job.main is not None:
        _run_main_again(*job.main)
    if job.module is not None:
        _import(*job.module)
    function, argument = pickle.loads(job.work)
    store = PrefixStore("adaptpipe", TCPStore(HOST, job.port, is_master=False))
    if "nccl" in job.backend:
        torch.cuda.set_device(job.rank % torch.cuda.device_count())
    dist.init_process_group(job.backend, store=store, rank=job.rank, world_size=job.world)
    return function(job.rank, job.world, argument)


def _tell(outcome: Connection, message: Outcome) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        outcome.send(message)
    except OSError:  # the parent is gone, and this process follows
        os._exit(1)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _import(name: str, file: str) -> None:
    try:
        importlib.import_module(name)
    except ImportError:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)


def _run_main_again(kind: Literal["path", "name"], where: str) -> None:
    module = ModuleType("__mp_main__")
    if kind == "name":
        spec = importlib.util.find_spec(where)
        assert spec is not None, where
        loader = spec.loader
        module.__file__, module.__package__ = spec.origin, spec.parent
        code = loader.get_code(where)  # type: ignore[union-attr]  # the parent ran it, so there is one
    else:
        module.__file__ = where
        with open(where, "rb") as source:
            code = compile(source.read(), where, "exec")
    assert code is not None, where
    sys.modules["__mp_main__"] = sys.modules["__main__"] = module
    Bootstrap.runs_main = True
    try:
        exec(code, module.__dict__)
    except MainReached:
        pass
    finally:
        Bootstrap.runs_main = False


def describe_exit(code: int | None) -> str:
    """Say how a process ended that did not tell.

    Examples
    --------
    >>> describe_exit(-9), describe_exit(1)
    ('killed by signal 9 (SIGKILL)', 'exited with code 1 before it returned')
    """
    if code is not None and code < 0:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    return f"exited with code {code} before it returned"


def unpickle_failure(data: bytes) -> RankFailure | PeerFailed:
    """Read the failure that a rank sent."""
    failure = pickle.loads(data)
    assert isinstance(failure, RankFailure | PeerFailed), failure
    return failure
