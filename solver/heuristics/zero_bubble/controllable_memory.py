"""V-Min, V-Half and V-ZB: schedules on a V whose building blocks spread memory evenly over the ranks."""

from __future__ import annotations

from ...core.method import Method
from ...core.ops import Op
from ...core.problem import Problem
from ...core.schedule import Schedule
from ..rows import Row, assemble, require_family
from .building_block import Block, repeated


def v_min(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """V-Min (Qi et al., arXiv 2405.15362): about a third of 1F1B's memory.

    In the building block each of the four passes over the V is one slot from rank to rank: F down at r, F up at
    2p - 1 - r, I up at 2p + c + r and I down at 4p - 1 + c - r, c being 2 where 3 divides p and else 0, lest passes
    collide. `building_block.repeated` tells what follows; all ops are squeezed. Exists for every m.

    F = I = W in both stages of a rank, free messages, m >= p: the bubble is 4p - 5 F's where p is 3k + 1 and else
    4p - 7, about two thirds of 1F1B's 6(p - 1); none where p = 1. A rank holds at most 2 ⌊(p + 4) / 3⌋ activations of
    one stage where `retained` is at most `activation`; 1F1B holds 2p. Where F, I and W differ, the bubble grows with m.

    Raises
    ------
    InputError
        When the placement is not V.
    """
    require_family(problem, "V-Min", "v", 2)
    p, shift = problem.ranks, 2 if problem.ranks % 3 == 0 else 0
    block = tuple((r, 2 * p - 1 - r, 2 * p + shift + r, 4 * p - 1 + shift - r) for r in range(p))
    return _schedule(problem, sizes, block, keeps_pace=False)


def v_half(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """V-Half (Qi et al., arXiv 2405.15362): half of 1F1B's memory.

    In the building block F down and I up take two slots from rank to rank, F up and I down one: F down at 2r, F up at
    3p - 2 - r, I up at 3p - 1 + c + 2r and I down at 6p - 2 + c - r, c being 3 where p is even and else 0, lest passes
    collide. `building_block.repeated` tells what follows; the ops between warm-up and cool-down keep their pace, as
    they would get in each other's way at costs that are not equal. Exists for every m.

    F = I = W in both stages of a rank, free messages, m >= p: the bubble is 3p - 7 F's where p is even (1 where p = 2),
    3p - 4 where it is odd, about half of 1F1B's 6(p - 1); none where p = 1, and one F more in places (where p = 3 and
    m = 4, and for odd p from 9 on). A rank holds at most 2 ⌊(p + 2) / 2⌋ activations of one stage where `retained` is
    at most `activation`; 1F1B holds 2p.

    Raises
    ------
    InputError
        When the placement is not V.
    """
    require_family(problem, "V-Half", "v", 2)
    p, shift = problem.ranks, 3 if problem.ranks % 2 == 0 else 0
    block = tuple((2 * r, 3 * p - 2 - r, 3 * p - 1 + shift + 2 * r, 6 * p - 2 + shift - r) for r in range(p))
    return _schedule(problem, sizes, block, keeps_pace=True)


def v_zb(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """V-ZB (Qi et al., arXiv 2405.15362): no bubble in 1F1B's memory.

    In the building block F down and I up take four slots from rank to rank, F up and I down two: F down at 4r, F up at
    6p - 5 - 2r, I up at 6p - 4 + 4r and I down at 12p - 9 - 2r, which never collide. `building_block.repeated` tells
    what follows; all ops are squeezed. The authors' code has no V-ZB: these slots are worked out from what the paper
    says of it, that memory is even over the ranks and 1F1B's, and nothing is idle. Exists for every m.

    F = I = W in both stages of a rank, free messages: the span has no bubble where m >= 2p, and the makespan one of
    p - 1 F's where m >= p. A rank holds at most 2p activations of one stage where `retained` is at most `activation`,
    as much as 1F1B.

    Raises
    ------
    InputError
        When the placement is not V.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2, "placement": "v", "stages_per_rank": 2}, "batch":
    ...     {"samples": 3}, "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in v_zb(problem).ops]  # doctest: +ELLIPSIS
    ['0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 0I0 ...', '1F0 2F0 1F1 2F1 2I0 1I0 ...']
    """
    require_family(problem, "V-ZB", "v", 2)
    p = problem.ranks
    block = tuple((4 * r, 6 * p - 5 - 2 * r, 6 * p - 4 + 4 * r, 12 * p - 9 - 2 * r) for r in range(p))
    return _schedule(problem, sizes, block, keeps_pace=False)


def _schedule(problem: Problem, sizes: tuple[int, ...] | None, block: Block, keeps_pace: bool) -> Schedule:
    microbatches = len(problem.default_sizes() if sizes is None else sizes)
    runs = repeated(block, microbatches, keeps_pace)

    def row(rank: int, _: int) -> list[Op]:
        made, stages = Row(), (rank, problem.stages - 1 - rank)
        for turn, kind in runs[rank]:
            made.add(stages[turn], kind)
        return made.ops

    return assemble(problem, sizes, row)


V_MIN = Method(
    "V-Min",
    ("VMin",),
    "about a third of 1F1B's memory, from a building block",
    v_min,
    placement="v",
    shapes="every p and m",
    bubble="4p - 5 F's where p is 3k + 1, else 4p - 7, where F = I = W and m >= p > 1",
    memory="2 floor((p + 4) / 3) of half a rank's layers",
    source="Qi et al., arXiv 2405.15362",
)

V_HALF = Method(
    "V-Half",
    ("VHalf",),
    "half of 1F1B's memory, from a building block",
    v_half,
    placement="v",
    shapes="every p and m",
    bubble="3p - 7 F's where p is even, else 3p - 4, where F = I = W, m >= p and 3 < p < 9",
    memory="2 floor((p + 2) / 2) of half a rank's layers",
    source="Qi et al., arXiv 2405.15362",
)

V_ZB = Method(
    "V-ZB",
    ("VZB",),
    "zero bubble in 1F1B's memory, from a building block",
    v_zb,
    placement="v",
    shapes="every p and m",
    bubble="0 of the span where F = I = W and m >= 2p",
    memory="2p of half a rank's layers",
    source="Qi et al., arXiv 2405.15362",
)
