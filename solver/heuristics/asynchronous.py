"""Schedules without a flush: PipeDream, PipeDream-2BW and PipeMare, which train with stale weights."""

from __future__ import annotations

from dataclasses import replace

from ..core.method import Method
from ..core.problem import Problem
from ..core.schedule import Schedule
from ..core.updates import Updates
from .one_f_one_b import one_f_one_b
from .rows import refuse, require_family


def pipedream(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """PipeDream with weight stashing (Narayanan et al., SOSP 2019, doi 10.1145/3341301.3359646, sections 3.2 and 3.3).

    1F1B whose stages update their weights after every micro-batch (the paper's minibatch) and go on without a flush.
    The backward of a micro-batch uses the weights of its forward. Exists on linear placements for every m.

    Equal stages, free messages and m >= p: no bubble in the steady state, p - s activations and p - s versions of the
    weights on stage s, where a gradient is p - 1 - s updates late. With messages of c ticks the first stage's round
    trip binds: F + B + 2c (p - 1) / p for each micro-batch. Where m < p no more than m are in flight on any stage, and
    the first p - m + 1 stages take turns: (p - m + 1)(F + B) + 2c (p - m). One batch by itself is 1F1B: (m + p - 1)
    (F + B).

    Raises
    ------
    InputError
        When the placement is not linear.

    Examples
    --------
    >>> from adaptpipe.solver.core.stream import staleness, weight_copies
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 3}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> schedule = pipedream(problem)
    >>> [" ".join(map(str, row)) for row in schedule.ops]
    ['0F0 0F1 0B0 0F2 0B1 0B2', '1F0 1B0 1F1 1B1 1F2 1B2']
    >>> print(schedule.updates, *weight_copies(schedule), *staleness(schedule))
    stash 2 1 1 0
    """
    return _alternating(problem, sizes, PIPEDREAM.name, "stash")


def pipedream_2bw(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """PipeDream-2BW (Narayanan et al., arXiv 2006.09503, section 3.1): 1F1B with double-buffered weights.

    Gradients of the m micro-batches of a batch add up to one update, and batches follow each other without a flush. A
    batch runs with the weights before the update of the batch before it, so W(t + 1) = W(t) - lr grad(W(t - 1)): every
    stage is one update late, and holds two versions. That needs m >= p, as in the paper: then no more than two batches
    are in the pipeline at once.

    Equal stages and free messages: no bubble in the steady state, p - s activations on stage s.

    Raises
    ------
    InputError
        When the placement is not linear, or there are fewer micro-batches than ranks.
    """
    require_family(problem, PIPEDREAM_2BW.name, "linear")
    count, ranks = len(problem.default_sizes() if sizes is None else sizes), problem.ranks
    if count < ranks:
        refuse(
            "batch.samples",
            PIPEDREAM_2BW.name,
            "as many micro-batches as ranks, or more",
            f"there are {count} on {ranks} ranks",
            f"{ranks} micro-batches",
        )
    return _alternating(problem, sizes, PIPEDREAM_2BW.name, "double")


def pipemare(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """PipeMare (Yang et al., arXiv 1910.05124, sections 2 and 3): 1F1B without a flush and without stashed weights.

    A stage updates its weights once a batch, as soon as its own backwards of the batch are done, and every op uses the
    newest. So p - 1 - s of the m micro-batches have their forward on stage s before, and their backward after the
    update of the batch before: in the mean a forward is (p - 1 - s) / m updates late, and a backward not at all. What
    the paper does against it costs no time in a schedule: learning rates that are at first the smaller the later a
    stage's updates are, and backwards whose weights are set back by a running average of their movement, which is as
    large as the weights: two copies on every stage. The paper's own pipeline moves in lock step and is twice as late,
    (2 (p - 1 - s) + 1) / m; 1F1B is the order with the fewest micro-batches in flight that has no bubble, where
    messages are free.

    Exists on linear placements for every m. Bubble, activations and times as PipeDream's.

    Raises
    ------
    InputError
        When the placement is not linear.
    """
    return _alternating(problem, sizes, PIPEMARE.name, "newest")


def _alternating(problem: Problem, sizes: tuple[int, ...] | None, name: str, updates: Updates) -> Schedule:
    require_family(problem, name, "linear")
    return replace(one_f_one_b(problem, sizes), updates=updates)


PIPEDREAM = Method(
    "PipeDream",
    ("PipeDream-stashing",),
    "1F1B without a flush, each stage updating after each micro-batch, with stashed weights",
    pipedream,
    placement="linear",
    shapes="every p and m",
    bubble="0 in the steady state, where m >= p; (p - 1)(F + B) in one batch by itself",
    memory="min(m, p), and as many versions of the weights",
    source="Narayanan et al., SOSP 2019, sections 3.2 and 3.3",
    updates="stash",
)

PIPEDREAM_2BW = Method(
    "PipeDream-2BW",
    ("2BW", "PipeDream2BW"),
    "1F1B without a flush, one update a batch, with double-buffered weights",
    pipedream_2bw,
    placement="linear",
    shapes="m >= p",
    bubble="0 in the steady state; (p - 1)(F + B) in one batch by itself",
    memory="p, and two versions of the weights",
    source="Narayanan et al., arXiv 2006.09503, section 3.1",
    updates="double",
)

PIPEMARE = Method(
    "PipeMare",
    (),
    "1F1B without a flush, one update a batch, every op with the newest weights",
    pipemare,
    placement="linear",
    shapes="every p and m",
    bubble="0 in the steady state, where m >= p; (p - 1)(F + B) in one batch by itself",
    memory="min(m, p), and an average as large as the weights",
    source="Yang et al., arXiv 1910.05124, sections 2 and 3",
    updates="newest",
)
