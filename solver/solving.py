"""Solve a problem with a method."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from .core.errors import InputError
from .core.granularity import ALL, Granularity
from .core.problem import Problem
from .core.result import Objective, Result
from .core.schedule import Schedule
from .evaluate.noise import Noise
from .evaluate.simulate import simulate
from .methods import find_method
from .portfolio.request import Progress, Request, require_effort
from .portfolio.running import run
from .robust import hardened

PLAIN_SHARE = 0.5
"""Share of the time after which the search for the best schedule as planned ends, where a robust one is wanted."""

ROBUST_MOVES = 2_000
"""Moves of the robust search that a second of the limit stands for, where work is counted and not time."""

__all__ = ["Progress", "solve"]


def solve(
    problem: Problem,
    method: str = "auto",
    *,
    objective: Objective = "makespan",
    time_limit: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    sizes: tuple[int, ...] | None = None,
    iterations: int | None = None,
    deterministic: bool = False,
    robust: Noise | None = None,
    granularity: Granularity = ALL,
    start: Schedule | None = None,
) -> Result:
    """Find a schedule, and say how good it is proven to be.

    `auto` first asks whether there is a schedule at all and how good one can be. Then it tries every heuristic that
    flushes, exists for the problem and keeps the limits, and the greedy grid; anneals the best of them; gives the rest
    of the time to CP-SAT, where the problem has few enough ops. It stops as soon as a schedule meets the bound. `cpsat`
    does the same whatever the size; `anneal` leaves CP-SAT out. With several micro-batch sizes allowed, near-uniform
    divisions of the batch are tried, that into fewest micro-batches, and, for small batches, uneven ones; OPTIMAL may
    then be proven for the sizes chosen only, as `proven_for` says.

    Parameters
    ----------
    problem
        The problem.
    method
        A name or alias of `methods.METHODS`.
    objective
        "makespan" or "span".
    time_limit
        Seconds. A schedule that is known by then is always returned.
    workers, seed
        Processes of the annealer and threads of CP-SAT; seed of both.
    on_progress
        Told of each better schedule, with the bound known then.
    sizes
        Samples of each micro-batch; None: the solver chooses.
    iterations
        Moves that each process of the annealer may propose, and moves that the robust search tries; None: as many as
        fit in the time.
    deterministic
        Count work and not time, and leave out what can only count time (the bound of tight memory, the beam search):
        the same arguments give the same schedule. The time limit is then a measure of the work, and the time
        that it takes depends on the machine.
    robust
        A schedule that is short in the mean under this noise is wanted. What is left of the time, at least half of it,
        is spent on changing the best schedule as planned for it; the result has the figures of both, and its bound and
        gap are still those of the planned value. Where the time is too short, the best schedule as planned stays, and
        `reason` says so.
    granularity
        What a search may choose beside the order; bound and gap are those of schedules that keep to it. Without fused
        backwards every backward is split; without units every W is whole; without sizes the batch is divided
        near-uniformly. A schedule by name is what it is.
    start
        A schedule that is known: a search goes on from it, and is never worse. One that breaks a limit, or has what
        `granularity` leaves out, is not used.

    Returns
    -------
    Result
        Without a timeline, `reason` says why; else what the search left open. Ctrl-C ends the search and keeps the
        best, with "interrupted" as reason.

    Raises
    ------
    InputError
        When the method is unknown or does not exist for the problem's placement or slices, or an option is out of
        range; when `start` is for another shape, not for the given sizes, or asynchronous.
    NoAnswerError
        When `start` cannot run.

    Examples
    --------
    >>> problem = Problem.from_dict({
    ...     "pipeline": {"ranks": 2},
    ...     "batch": {"samples": 2},
    ...     "costs": {"forward": 2, "backward_input": 2, "backward_weight": 1},
    ... })
    >>> result = solve(problem, time_limit=10)
    >>> str(result.status), result.value
    ('OPTIMAL', 13)
    """
    chosen = find_method(method)
    chosen.require(problem)
    if objective not in ("makespan", "span"):
        raise InputError(f"objective: {objective!r} is neither makespan nor span")
    require_effort(time_limit, workers)
    if iterations is not None and iterations < 1:
        raise InputError(f"iterations: {iterations} is below 1")
    if sizes is not None:
        problem.instance(sizes)
    if start is not None:
        simulate(problem, start)
        if start.updates != "step":
            raise InputError(f"start: its updates are {start.updates!r}, and searches are for schedules that flush")
        if sizes is not None and start.sizes != sizes:
            raise InputError(f"start: its micro-batch sizes are {start.sizes}, and sizes asks for {sizes}")
    if robust is not None and chosen.updates != "step":
        raise InputError(
            f"robust: a search under noise changes the order, and with it the weights that {chosen.name} uses; "
            "leave it out, or choose a method that flushes"
        )
    started = time.monotonic()
    share = 1.0 if robust is None else PLAIN_SHARE
    if chosen.build is not None:
        granularity = ALL
    plain = run(
        Request(
            granularity.restricted(problem), chosen, objective, share * time_limit, workers, seed, sizes, iterations,
            deterministic, granularity, on_progress, start,
        )
    )  # fmt: skip
    plain = replace(
        plain,
        granularity=granularity,
        timeline=None if plain.timeline is None else simulate(problem, plain.timeline.schedule),
    )
    if robust is None or plain.timeline is None or plain.interrupted:
        return plain
    return hardened(
        problem,
        plain,
        robust,
        iterations=iterations if not deterministic or iterations is not None else round(ROBUST_MOVES * time_limit),
        deadline=None if deterministic else started + time_limit,
        seed=seed,
    )
