"""When weights are updated, and which version of them an op uses."""

from __future__ import annotations

from typing import Literal, get_args

from .errors import InputError

Updates = Literal["step", "stash", "double", "newest"]
"""How a schedule updates weights.

step
    Once a batch, after a flush: every op of a batch uses the same weights.
stash
    Each stage after each micro-batch's backward. A backward uses the weights of its own forward, which are kept until
    then (weight stashing: PipeDream, SOSP 2019, section 3.3).
double
    Once a batch without a flush. A micro-batch uses the weights before the update of the batch before its own, forward
    and backward, so two versions are kept (double buffering: PipeDream-2BW, arXiv 2006.09503, section 3.1).
newest
    Once a batch without a flush, each stage by itself. Every op uses the newest weights, so a backward may use others
    than its forward (PipeMare, arXiv 1910.05124). What corrects for that, an average of how the weights move, takes as
    much memory as one more version.
"""

MEANING: dict[Updates, str] = {
    "step": "one update a batch, after a flush",
    "stash": "an update after each micro-batch, whose backward uses the stale weights of its forward",
    "double": "one update a batch without a flush, of gradients that are one update old",
    "newest": "one update a batch without a flush, of gradients that mix weights before and after an update",
}
"""In one line, for people."""


def require_updates(updates: str) -> None:
    """Refuse what is no way to update weights.

    Raises
    ------
    InputError
        Listing those there are.
    """
    if updates not in get_args(Updates):
        raise InputError(f"updates: {updates!r} is none of {', '.join(get_args(Updates))}")
