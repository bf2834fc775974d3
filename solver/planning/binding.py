"""What keeps a plan from being faster: the busiest rank, its waits, and the ranks whose memory is full."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.problem import price
from ..evaluate.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Binding:
    """Where the time of a step goes, by its busiest rank.

    Parameters
    ----------
    rank
        The rank that computes longest.
    work
        Share of the step in which it computes.
    mean
        The mean of that share over all ranks.
    fill, drain
        Shares of the step before its first op, and after its last.
    waits
        Share of the step that it waits between its ops.
    full
        Ranks that could not take one more of their smallest micro-batches at the moment when they hold most.
    """

    rank: int
    work: float
    mean: float
    fill: float
    drain: float
    waits: float
    full: tuple[int, ...]


def binding(timeline: Timeline) -> Binding:
    """What binds a plan's schedule.

    Examples
    --------
    >>> from adaptpipe.solver import Problem, simulate
    >>> from adaptpipe.solver.heuristics import one_f_one_b
    >>> costs = {"forward": [1, 2], "backward_input": 1, "backward_weight": 1}
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 2}, "costs": costs, "memory":
    ...     {"activation": 1, "limit": [2, 2]}})
    >>> found = binding(simulate(problem, one_f_one_b(problem, None)))
    >>> found.rank, round(found.work, 2), round(found.fill, 2), found.full
    (1, 0.73, 0.09, (0,))
    """
    length = timeline.makespan or 1
    rank = max(range(timeline.problem.ranks), key=lambda each: timeline.work[each])
    ops = timeline.of(rank)
    begin = int(timeline.start.min()) if len(timeline.start) else 0
    fill = (ops[0][1] - begin) / length if ops else 0.0
    drain = (begin + timeline.makespan - ops[-1][2]) / length if ops else 0.0
    work = timeline.work[rank] / length
    return Binding(rank, work, timeline.utilisation, fill, drain, max(0.0, 1 - work - fill - drain), _full(timeline))


def _full(timeline: Timeline) -> tuple[int, ...]:
    problem, size = timeline.problem, min(timeline.schedule.sizes)
    found = []
    for rank, (limit, peak) in enumerate(zip(problem.memory.limit, timeline.peak_memory, strict=True)):
        takes = [price(problem.memory.activation[stage], size) for _, stage in problem.placement.held[rank]]
        least = min((take for take in takes if take), default=0)
        if limit is not None and least and peak + least > limit:
            found.append(rank)
    return tuple(found)
