"""What there is to know of a way to get a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .errors import InputError
from .problem import Problem
from .schedule import Schedule
from .updates import Updates

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
    sliced
        Whether it is for micro-batches that are cut into slices, and for no others; None: for both.
    updates
        When its schedules update weights. Others than "step" train with stale weights, so that their times are not to
        be compared with those of synchronous schedules as they are; no search starts from them.

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
    sliced: bool | None = False
    updates: Updates = "step"

    def suits(self, problem: Problem) -> bool:
        """Whether it is for micro-batches as the problem has them: sliced, or whole."""
        return self.sliced is None or self.sliced == (problem.slices is not None)

    def require(self, problem: Problem) -> None:
        """Refuse a problem that it does not suit.

        Raises
        ------
        InputError
            With the remedy.
        """
        if self.suits(problem):
            return
        if self.sliced:
            raise InputError(
                f"batch.slices: {self.name} needs slices, and micro-batches are whole; set batch.slices = 4, or choose "
                "another method"
            )
        raise InputError(
            f"batch.slices: {self.name} runs whole micro-batches, and these are cut into {problem.slice_count} slices; "
            "leave batch.slices out, or choose auto, or a schedule of slices"
        )

    def schedule(self, problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
        """Its schedule of a problem that it suits; `build` does not ask.

        Raises
        ------
        InputError
            When it does not suit the problem, or does not exist for its shape.
        """
        assert self.build is not None, "a method that searches has no schedule of its own"
        self.require(problem)
        return self.build(problem, sizes)
