"""The exact searches, which go on from the best schedules and can prove that there is no better one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from .incumbent import Incumbent
from .request import Request, Sizes

Note = Callable[[str], None]
"""Told what a search left open, and why."""


def prove_every_division(request: Request, at: Incumbent, deadline: float, share: float) -> None:
    """CP-SAT with the sizes as variables, where the problem is small enough: what it proves holds for all.

    Where work is counted and not time, it gets a share of the work that the limit stands for.
    """
    from ..cpsat import solve_cpsat

    if at.best is None or at.met:
        return
    solve_cpsat(
        request.problem,
        request.objective,
        at.best.schedule,
        at.floor,
        deadline,
        request.workers,
        request.seed,
        lambda found, _: at.take(found, "cpsat"),
        request.deterministic,
        granularity=request.granularity,
        budget=share * request.time_limit if request.deterministic else float("inf"),
        on_bound=at.raise_floor,
    )


def by_cpsat(request: Request, at: Incumbent, sizes: Sizes, deadline: float, share: float, note: Note) -> None:
    """CP-SAT with given sizes; the share is that of the work, as for `prove_every_division`."""
    from ..cpsat import solve_cpsat

    solve_cpsat(
        request.problem,
        request.objective,
        at.schedule_of(sizes),
        at.bound_of(sizes),
        deadline,
        request.workers,
        request.seed,
        lambda found, _: at.take(found, "cpsat"),
        request.deterministic,
        sizes=sizes,
        budget=share * request.time_limit if request.deterministic else float("inf"),
        on_note=lambda text: note(f"CP-SAT was left out: {text}"),
        granularity=request.granularity,
        on_bound=partial(at.raise_bound, sizes),
    )


def by_ilp(request: Request, at: Incumbent, sizes: Sizes, deadline: float, note: Note) -> None:
    """The ILP with given sizes."""
    from ..ilp import solve_ilp

    if request.deterministic:  # it has no measure of its work: the limit is one of time here
        deadline = time.monotonic() + request.time_limit
    _, bound, _ = solve_ilp(
        request.problem,
        request.objective,
        at.schedule_of(sizes),
        at.bound_of(sizes),
        deadline,
        request.workers,
        request.seed,
        lambda found, _: at.take(found, "ilp"),
        sizes=sizes,
        granularity=request.granularity,
        on_note=note,
    )
    at.raise_bound(sizes, bound)
