"""What there is to know of a way to get a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .problem import Problem
from .schedule import Schedule

Heuristic = Callable[[Problem, tuple[int, ...] | None], Schedule]
"""Schedule of a problem and micro-batch sizes, by construction; sizes None: the problem's default."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to get a schedule.

    Parameters
    ----------
    name
        Name in results and tables.
    aliases
        Other names for the same; like `name`, matched without regard to case.
    description
        One line for people.
    build
        The heuristic; None for a method that searches.
    placement
        The family of placements (`place`) for which a heuristic exists, or "any" for those of one direction. A method
        that searches has "any", for all there are.
    shapes
        Which numbers of ranks p, stages per rank v and micro-batches m are legal.
    bubble
        Idle time of the busiest rank, where the formula assumes equal stages and free messages, in F, I, W and
        B = I + W of a stage; or the share where it says so.
    memory
        Activations of a stage that the fullest rank holds, where `retained` is at most `activation`.
    source
        Paper and section, or code.

    Examples
    --------
    >>> Method("greedy", (), "list scheduling").build is None
    True
    """

    name: str
    aliases: tuple[str, ...]
    description: str
    build: Heuristic | None = None
    placement: str = ""
    shapes: str = ""
    bubble: str = ""
    memory: str = ""
    source: str = ""
