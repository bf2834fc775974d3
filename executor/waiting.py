"""Wait for what processes do together, and no longer than others of them may take to come."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist

from .errors import Late
from .failures import is_time_out


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
