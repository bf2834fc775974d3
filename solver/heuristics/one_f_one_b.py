"""1F1B, with fused or split backward, and its interleaved form."""

from __future__ import annotations

from ..core.method import Method
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.schedule import Schedule
from .rows import Row, assemble, require_family


def one_f_one_b(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """1F1B (PipeDream-Flush: Narayanan et al., arXiv 2006.09503, section 3.2), with fused backwards.

    Rank r starts with p - 1 - r forwards, then alternates F and B. Exists on linear placements for every m.
    Equal stages and free messages: the makespan is (m + p - 1)(F + B); rank r holds min(m, p - r) activations.

    Raises
    ------
    InputError
        When the placement is not linear.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 3}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in one_f_one_b(problem).ops]
    ['0F0 0F1 0B0 0F2 0B1 0B2', '1F0 1B0 1F1 1B1 1F2 1B2']
    """
    require_family(problem, "1F1B", "linear")
    return _alternate(problem, sizes, (Kind.B,))


def one_f_one_b_split(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """1F1B whose backwards are split, each W right after its I.

    The split is the zero-bubble paper's (Qi et al., arXiv 2401.10241, section 2), without its moves of W. The gradient
    leaves a stage W earlier than in 1F1B. Equal stages and free messages: the bubble is at most 1F1B's,
    (p - 1)(F + I + W), and at least (p - 1)(F + I); memory as 1F1B where `retained` is at most `activation`.

    Raises
    ------
    InputError
        When the placement is not linear.
    """
    require_family(problem, "1F1B-split", "linear")
    return _alternate(problem, sizes, (Kind.I, Kind.W))


def _alternate(problem: Problem, sizes: tuple[int, ...] | None, backward: tuple[Kind, ...]) -> Schedule:
    def row(rank: int, microbatches: int) -> list[Op]:
        made = Row()
        for _ in range(min(problem.ranks - 1 - rank, microbatches)):
            made.add(rank, Kind.F)
        for _ in range(microbatches):
            if made.count(rank, Kind.F) < microbatches:
                made.add(rank, Kind.F)
            made.add(rank, *backward)
        return made.ops

    return assemble(problem, sizes, row)


def interleaved(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2), with fused backwards, on loop placements.

    Micro-batches go round in groups: a rank runs a group through its first stage, then through its second, and so on.
    The m micro-batches make max(1, m // p) near-equal groups, the larger ones first, so every m is legal; where p
    divides m they are groups of p, as in the paper. With largest group n, rank r starts with (v - 1) n + 2(p - 1 - r)
    forwards. With v = 1 this is 1F1B.

    Equal stages (F and B of one), free messages and m >= p: the bubble is (p - 1)(F + B), that is 1F1B's of the same
    model divided by v. Rank 0 holds min(m v, (v - 1) n + 2p - 1) activations for v > 1.

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
    ranks = problem.ranks
    rounds, rest = divmod(problem.stages, ranks)
    require_family(problem, "Interleaved1F1B", "loop", rounds if not rest else 1)
    if rounds == 1:
        return _alternate(problem, sizes, (Kind.B,))

    def row(rank: int, microbatches: int) -> list[Op]:
        count = max(1, microbatches // ranks)
        base, larger = divmod(microbatches, count)
        groups = [base + (g < larger) for g in range(count)]
        stages = range(rank, problem.stages, ranks)
        forward = [stage for size in groups for stage in stages for _ in range(size)]
        backward = [stage for size in groups for stage in reversed(stages) for _ in range(size)]
        ahead = min((rounds - 1) * groups[0] + 2 * (ranks - 1 - rank), len(forward))
        made = Row()
        for stage in forward[:ahead]:
            made.add(stage, Kind.F)
        for position, stage in enumerate(backward):
            if ahead + position < len(forward):
                made.add(forward[ahead + position], Kind.F)
            made.add(stage, Kind.B)
        return made.ops

    return assemble(problem, sizes, row)


ONE_F_ONE_B = Method(
    "1F1B",
    ("OneFOneB", "Schedule1F1B", "PipeDream-Flush", "DAPPLE"),
    "one forward, one fused backward",
    one_f_one_b,
    placement="linear",
    shapes="every p and m",
    bubble="(p - 1)(F + B)",
    memory="min(m, p)",
    source="PipeDream-Flush: Narayanan et al., arXiv 2006.09503, section 3.2",
)

ONE_F_ONE_B_SPLIT = Method(
    "1F1B-split",
    (),
    "1F1B with each backward split, W right after I",
    one_f_one_b_split,
    placement="linear",
    shapes="every p and m",
    bubble="between (p - 1)(F + I) and (p - 1)(F + I + W)",
    memory="min(m, p)",
    source="1F1B, with the split of Qi et al., arXiv 2401.10241, section 2",
)

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
