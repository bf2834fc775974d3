"""1F1B over several stages per rank."""

from __future__ import annotations

from ..core.method import Method
from ..core.problem import Problem
from ..core.schedule import Schedule
from .rows import alternating, require_family


def interleaved(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2), with fused backwards, on loop placements.

    Micro-batches go round in groups: a rank runs a group through its first stage, then through its second, and so on.
    The m micro-batches make max(1, m // p) near-equal groups, the larger ones first, so every m is legal; where p
    divides m they are groups of p, as in the paper. With largest group n, rank r starts with (v - 1) n + 2(p - 1 - r)
    forwards. With v = 1 this is 1F1B.

    Equal stages (F and B of one), free messages and m >= p: the bubble is (p - 1)(F + B), that is 1F1B's of the same
    model divided by v. Rank 0 holds min(m v, (v - 1) n + 2p - 1) activations for v > 1.

    With messages of c ticks the makespan is (m v + p - 1)(F + B) + (2pv - 2)c on the rows of Tables 5 and 8 of the
    zero-bubble papers, and the papers print p c less. This order does not run in that time: in the authors' simulation
    (file interleave.py in sail-sg/zero-bubble-pipeline-parallelism) only the first micro-batch of a group waits for the
    gradient that goes round from rank 0 to rank p - 1; without those waits it comes out here, too. `interleaved_wide`
    is faster than either.

    Raises
    ------
    InputError
        When the placement is not a loop.

    Notes
    -----
    A group of fewer than p micro-batches in mid-flow can make two ranks wait for each other: rank 0 would need the
    group's second forward before rank p - 1 has left its previous backwards. So there is none beside larger ones.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2, "placement": "loop", "stages_per_rank": 2}, "batch":
    ...     {"samples": 2}, "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in interleaved(problem).ops]
    ['0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1', '1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1']
    """
    return _grouped(problem, sizes, "Interleaved1F1B", problem.ranks)


def interleaved_wide(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Interleaved 1F1B (arXiv 2104.04473, section 2.2) in groups of more than p micro-batches.

    A group of p has to be back on its first rank at the very moment at which that rank has run it: any message makes
    the rank wait, once per group and stage. One micro-batch more gives the messages the time of an op. The m
    micro-batches make max(1, m // (p + 1)) near-equal groups; all else is as in `interleaved`. Megatron-LM has the
    size of its groups as the option microbatch_group_size_per_vp_stage.

    Equal stages, v > 1 and m >= p: with free messages the bubble is that of `interleaved`, (p - 1)(F + B). With
    messages of c ticks, p c <= F and B, and m > p the makespan is (m v + p - 1)(F + B) + 2(p - 1)c; so it is on all
    rows of the zero-bubble papers' tables, too. With largest group n, rank 0 holds min(m v, (v - 1) n + 2p - 1)
    activations.

    Raises
    ------
    InputError
        When the placement is not a loop.
    """
    return _grouped(problem, sizes, "Interleaved1F1B-wide", problem.ranks + 1)


def _grouped(problem: Problem, sizes: tuple[int, ...] | None, method: str, least: int) -> Schedule:
    """Interleaved 1F1B in groups of at least that many micro-batches, where there are as many."""
    require_family(problem, method, "loop", None)
    return alternating(problem, sizes, ahead=1 if problem.stages == problem.ranks else 2, least=least)


INTERLEAVED = Method(
    "Interleaved1F1B",
    ("ScheduleInterleaved1F1B", "1F1B-I", "Interleaved"),
    "1F1B over several stages per rank",
    interleaved,
    placement="loop",
    shapes="every p, v and m; m >= p for the formulas",
    bubble="(p - 1)(F + B), a stage being 1/v of a rank's layers",
    memory="min(m v, (v - 1) p + 2p - 1) where p divides m",
    source="Narayanan et al., arXiv 2104.04473, section 2.2",
)

INTERLEAVED_WIDE = Method(
    "Interleaved1F1B-wide",
    ("1F1B-I-wide", "Interleaved-wide"),
    "interleaved 1F1B in groups of more than p micro-batches, which hides messages",
    interleaved_wide,
    placement="loop",
    shapes="every p, v and m; m >= p for the formulas",
    bubble="(p - 1)(F + B), a stage being 1/v of a rank's layers; messages of c add 2(p - 1)c if m > p, p c <= F, B",
    memory="min(m v, (v - 1) n + 2p - 1), n = ceil(m / max(1, m // (p + 1)))",
    source="Narayanan et al., arXiv 2104.04473, section 2.2; group sizes: Megatron-LM, model_parallel_config.py",
)
