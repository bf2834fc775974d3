"""What can go wrong while a schedule runs. No torch in here, so that the command line can catch these cheaply."""

from __future__ import annotations

import traceback

from adaptpipe.solver import AdaptPipeError


class ExecutorError(AdaptPipeError, RuntimeError):
    """Base of the errors of a run, as opposed to errors of its input."""


class WeightQueueError(ExecutorError):
    """The queue of weight gradients was left, or used, in a state that would give wrong gradients."""


class TransportError(ExecutorError):
    """A message did not arrive, or was not the one that the schedule expects next."""


class Late(TransportError):
    """Something of another rank has not come in time. That rank hangs, or one that it waits for."""


class ConnectionLost(TransportError):
    """The process at the other end is gone. Somebody else's failure, most likely: see `PeerFailed`."""


class MemoryLimitError(ExecutorError):
    """An op would hold more than the rank's memory limit leaves: the stage needs more than was planned."""


class RankFailure(ExecutorError):
    """A rank failed; the first line of the message says where and why. The command line exits with 3.

    Parameters
    ----------
    rank
        The process that failed.
    stage, op, microbatch, step
        What it was doing, as far as it is known; `op` is the text of the kind or of the whole op, as `F` or `2F0`.
    cause
        The exception, or its text where it comes from another process.
    details
        More for below the first line, as the traceback in the other process.
    lost
        Whether all it knows is that a connection is gone, so that another rank must have failed before.

    Examples
    --------
    >>> print(RankFailure(1, 1, "F", 2, 0, ValueError("boom")))
    rank 1, stage 1, F of micro-batch 2, step 0: ValueError: boom
    """

    def __init__(
        self,
        rank: int,
        stage: int | None,
        op: str | None,
        microbatch: int | None,
        step: int | None,
        cause: BaseException | str,
        details: str = "",
        lost: bool = False,
    ) -> None:
        self.rank = rank
        self.stage = stage
        self.op = op
        self.microbatch = microbatch
        self.step = step
        self.cause = cause if isinstance(cause, str) else describe(cause)
        self.details = details
        self.lost = lost
        super().__init__(self.headline + (f"\n{details}" if details else ""))

    @property
    def headline(self) -> str:
        """The one line that says which rank failed, where, and why."""
        place = [f"rank {self.rank}"]
        if self.stage is not None:
            place.append(f"stage {self.stage}")
        if self.op is not None:
            place.append(self.op + ("" if self.microbatch is None else f" of micro-batch {self.microbatch}"))
        elif self.microbatch is not None:
            place.append(f"micro-batch {self.microbatch}")
        if self.step is not None:
            place.append(f"step {self.step}")
        return f"{', '.join(place)}: {self.cause}"

    def __reduce__(self) -> tuple[type[RankFailure], tuple[object, ...]]:
        return type(self), (
            self.rank,
            self.stage,
            self.op,
            self.microbatch,
            self.step,
            self.cause,
            self.details,
            self.lost,
        )


class PeerFailed(ExecutorError):
    """This rank is fine, and had to stop because another one failed first.

    Parameters
    ----------
    rank
        The rank that stops.
    first
        The first failure.

    Examples
    --------
    >>> print(PeerFailed(2, RankFailure(1, None, None, None, None, "ValueError: boom")))
    rank 2 stops because another rank failed first: rank 1: ValueError: boom
    """

    def __init__(self, rank: int, first: RankFailure) -> None:
        self.rank = rank
        self.first = first
        super().__init__(f"rank {rank} stops because another rank failed first: {first}")

    def __reduce__(self) -> tuple[type[PeerFailed], tuple[object, ...]]:
        return type(self), (self.rank, self.first)


def describe(error: BaseException) -> str:
    """Write an exception as its type and message, the form that ends a traceback.

    Examples
    --------
    >>> describe(KeyError("x"))
    "KeyError: 'x'"
    """
    return "".join(traceback.format_exception_only(error)).strip()
