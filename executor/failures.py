"""Who failed first: ranks that lose their connection find out why from the store that all ranks share."""

from __future__ import annotations

import json
import re
import time
import traceback

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from .errors import ConnectionLost, PeerFailed, RankFailure

_KEY = "adaptpipe/first-failure"
_LOST = re.compile(r"connection (closed|reset|refused)|broken pipe|socket (closed|error)", re.IGNORECASE)


def blame(
    error: BaseException,
    rank: int,
    stage: int | None = None,
    op: str | None = None,
    microbatch: int | None = None,
    step: int | None = None,
    *,
    patience_s: float = 1.0,
) -> RankFailure | PeerFailed:
    """Turn an exception into the one to raise, and tell the other ranks if it is the first.

    A failing rank calls this before it closes anything, so whoever then sees a closed connection finds the cause.

    Parameters
    ----------
    error
        What was caught. A `RankFailure` or `PeerFailed` comes back as it is.
    rank, stage, op, microbatch, step
        Where this rank was.
    patience_s
        How long to look for the cause of a lost connection, in seconds. There is none where a rank was killed.

    Returns
    -------
    RankFailure or PeerFailed
        `PeerFailed` if the connection was lost because another rank failed.
    """
    if isinstance(error, PeerFailed):
        return error
    if is_connection_loss(error):
        first = first_failure(patience_s)
        if first is not None and first.rank != rank:
            return PeerFailed(rank, first)
        return RankFailure(rank, stage, op, microbatch, step, error, _trace(error))
    if not isinstance(error, RankFailure):
        error = RankFailure(rank, stage, op, microbatch, step, error, _trace(error))
    elif not error.details:
        error = RankFailure(
            error.rank, error.stage, error.op, error.microbatch, error.step, error.cause, _trace(error.__cause__)
        )
    if dist.is_initialized():
        fields = [error.rank, error.stage, error.op, error.microbatch, error.step, error.cause, error.details]
        _get_default_store().compare_set(_KEY, "", json.dumps(fields))
    return error


def first_failure(patience_s: float = 0.0) -> RankFailure | None:
    """Look up the first failure that any rank told of, waiting for one up to `patience_s` seconds."""
    if not dist.is_initialized():
        return None
    end = time.monotonic() + patience_s
    store = _get_default_store()
    try:
        while not store.check([_KEY]):
            if time.monotonic() >= end:
                return None
            time.sleep(0.02)
        return RankFailure(*json.loads(store.get(_KEY)))
    except (RuntimeError, OSError):  # the store has gone with its process
        return None


def is_connection_loss(error: BaseException) -> bool:
    """Tell whether an exception says that another process is gone, and nothing about why."""
    return isinstance(error, ConnectionLost) or (isinstance(error, RuntimeError) and bool(_LOST.search(str(error))))


def _trace(error: BaseException | None) -> str:
    return "" if error is None else "".join(traceback.format_exception(error)).rstrip()
