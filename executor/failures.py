"""Who failed first: ranks that lose their connection find out why from the store that all ranks share."""

from __future__ import annotations

import json
import re
import time
import traceback

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from .errors import ConnectionLost, Late, PeerFailed, RankFailure

_KEY = "adaptpipe/first-failure"
_TIMED_OUT = re.compile("timed out|time-?out", re.IGNORECASE)
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
    if isinstance(error, RankFailure):
        failure = error
        if not error.details:
            place = (error.rank, error.stage, error.op, error.microbatch, error.step)
            failure = RankFailure(*place, error.cause, _trace(error.__cause__), error.lost)
    else:
        lost = _lost_connection(error)
        if lost:
            first = first_failure(patience_s)
            if first is not None and first.rank != rank:
                return PeerFailed(rank, first)
        failure = RankFailure(rank, stage, op, microbatch, step, error, _trace(error), lost)
    if dist.is_initialized() and not failure.lost:
        fields = [
            failure.rank,
            failure.stage,
            failure.op,
            failure.microbatch,
            failure.step,
            failure.cause,
            failure.details,
        ]
        _get_default_store().compare_set(_KEY, "", json.dumps(fields))
    return failure


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


def is_time_out(error: BaseException) -> bool:
    """Tell whether torch gave up waiting."""
    return isinstance(error, RuntimeError) and bool(_TIMED_OUT.search(str(error)))


def is_late(failure: BaseException) -> bool:
    """Tell whether a failure only says that another rank has not done its part in time."""
    return isinstance(failure, Late) or isinstance(failure.__cause__, Late)


def _lost_connection(error: BaseException) -> bool:
    """Tell whether an exception says that another rank is gone, and nothing about why."""
    return isinstance(error, ConnectionLost) or (isinstance(error, RuntimeError) and bool(_LOST.search(str(error))))


def _trace(error: BaseException | None) -> str:
    return "" if error is None else "".join(traceback.format_exception(error)).rstrip()
