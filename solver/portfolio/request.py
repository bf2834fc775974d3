"""What is asked of the solver, and how it tells of its progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..core.errors import InputError
from ..core.granularity import Granularity
from ..core.method import Method
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Schedule

Sizes = tuple[int, ...]


def require_effort(time_limit: float, workers: int) -> None:
    """Refuse a time in which, or a number of workers with which, nothing can be searched.

    Raises
    ------
    InputError
        With the value.
    """
    if not (time_limit > 0 and math.isfinite(time_limit)):
        raise InputError(f"time limit: {time_limit} is not a positive number of seconds")
    if workers < 1:
        raise InputError(f"workers: {workers} is below 1")


@dataclass(frozen=True, slots=True)
class Progress:
    """A better schedule was found.

    Parameters
    ----------
    found_by
        By which part.
    value, bound
        Objective value and the bound known then, in ticks.
    gap
        `value / bound - 1`; None where the bound is 0 and the value is not.
    time_s
        Seconds since the start.
    proven_for
        What `bound` holds for, as in `Result`.
    """

    found_by: str
    value: int
    bound: int
    gap: float | None
    time_s: float
    proven_for: Literal["problem", "sizes"] = "problem"


@dataclass(frozen=True, slots=True)
class Request:
    """A call of `solve`; its parameters mean the same there. The problem is the one that the granularity leaves."""

    problem: Problem
    method: Method
    objective: Objective
    time_limit: float
    workers: int
    seed: int
    sizes: Sizes | None
    iterations: int | None
    deterministic: bool
    granularity: Granularity
    on_progress: Callable[[Progress], None] | None
    start: Schedule | None = None


class Clock:
    """The time limit; in a deterministic run, time plays no part and nothing is ever late."""

    def __init__(self, time_limit: float, deterministic: bool) -> None:
        self.started, self.limit, self.deterministic = time.monotonic(), time_limit, deterministic
        self.deadline = float("inf") if deterministic else self.started + time_limit

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return self.left < 0

    def part(self, share: float) -> float:
        """Moment at which a share of the time that is left will be over."""
        return float("inf") if self.deterministic else time.monotonic() + share * max(self.left, 0.0)

    def point(self, share: float) -> float:
        """Moment at which a share of the whole time will be over."""
        return float("inf") if self.deterministic else self.started + share * self.limit
