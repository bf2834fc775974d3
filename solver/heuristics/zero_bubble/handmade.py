"""The hand-made zero-bubble schedules: ZB-H1, ZB-H2 and ZB-V."""

from __future__ import annotations

from ...core.method import Method
from ...core.ops import Kind, Op
from ...core.problem import Problem
from ...core.schedule import Schedule
from ..rows import Row, assemble, require_family


def zb_h1(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """ZB-H1 (Qi et al., arXiv 2401.10241, section 2.1): 1F1B with the weight gradients moved into the cool-down.

    Rank r warms up as in 1F1B, with p - 1 - r forwards, and lets its W's lag r micro-batches behind its I's, so that
    every rank has p micro-batches in flight. Exists on linear placements for every m.

    Equal stages, free messages, W no longer than F and I, m >= p: the bubble is (p - 1)(F + I - W), and every rank
    holds min(m, p) activations where `retained` is at most `activation`. With messages of c ticks the span is
    m(F + I + W) + (p - 1)(F + I - W) + 4(p - 1)c on the rows of the paper's Table 5.

    Raises
    ------
    InputError
        When the placement is not linear.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 3}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in zb_h1(problem).ops]
    ['0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2', '1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2']
    """
    require_family(problem, "ZB-H1", "linear")
    return _handmade(problem, sizes, 1)


def zb_h2(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """ZB-H2 (Qi et al., arXiv 2401.10241, section 2.2): twice ZB-H1's forwards ahead and twice its lag of W.

    Rank r starts with 2(p - 1 - r) forwards and its W's lag 2r micro-batches behind its I's, so that every rank has
    2p - 1 micro-batches in flight and its ops make a parallelogram: compare spans, not makespans.

    Equal stages, free messages, W no longer than F and I, m >= 2p: the span's bubble is (p - 1)(F + I - 2W), and every
    rank holds min(m, 2p - 1) activations where `retained` is at most `activation`. Where m = p
    it is that of ZB-H1. With messages of c ticks it grows by 2(p - 1)c on the rows of the paper's Table 5.

    Raises
    ------
    InputError
        When the placement is not linear.
    """
    require_family(problem, "ZB-H2", "linear")
    return _handmade(problem, sizes, 2)


def _handmade(problem: Problem, sizes: tuple[int, ...] | None, factor: int) -> Schedule:
    def row(rank: int, microbatches: int) -> list[Op]:
        made, lag = Row(), factor * rank
        for _ in range(min(factor * (problem.ranks - 1 - rank), microbatches)):
            made.add(rank, Kind.F)
        for j in range(microbatches):
            if made.count(rank, Kind.F) < microbatches:
                made.add(rank, Kind.F)
            made.add(rank, Kind.I)
            if j >= lag:
                made.add(rank, Kind.W)
        while made.count(rank, Kind.W) < microbatches:
            made.add(rank, Kind.W)
        return made.ops

    return assemble(problem, sizes, row)


def zb_v(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """ZB-V (Qi et al., arXiv 2401.10241, section 6), zero bubble within 1F1B's memory, in its fixed order.

    The stages run down the ranks and back up, so a rank holds one long-lived and one short-lived stage and all ranks
    hold the same. Rank r starts with 2(p - r) - 1 forwards of its first stage, then alternates forwards of both r
    times, then runs p - r rounds of F, I, W of its second stage; from there F, I, W of the first stage alternate with
    F, I, W of the second. In the cool-down the W's of the last p - r micro-batches wait for the end. For m < 2p - 1
    it is the order for 2p - 1 without the ops of the micro-batches that are not there. Exists for every m.

    Where F = I = W and messages are free, the span is m(F + I + W) with the prices of both stages, without a bubble,
    where m >= 2p - 1, and 2(p - 1)F more where m = p. Every rank holds at most 2p activations of one stage where
    `retained` is at most `activation`, as much as 1F1B's p of a stage twice as deep. At the prices of the paper's Table
    8 the bubble is within 0.0016 of the printed one, above it on the rows of 6.2B and below it on the others.

    Raises
    ------
    InputError
        When the placement is not V.
    """
    require_family(problem, "ZB-V", "v", 2)
    ranks = problem.ranks

    def row(rank: int, microbatches: int) -> list[Op]:
        down, up = rank, 2 * ranks - 1 - rank
        total = max(microbatches, 2 * ranks - 1)
        made = Row()
        for _ in range(2 * (ranks - rank) - 1):
            made.add(down, Kind.F)
        for _ in range(rank):
            made.add(up, Kind.F)
            made.add(down, Kind.F)
        for _ in range(ranks - rank):
            made.add(up, Kind.F, Kind.I, Kind.W)
        while made.count(up, Kind.F) < total:
            if made.count(down, Kind.F) < total:
                made.add(down, Kind.F)
            made.add(down, Kind.I, Kind.W)
            made.add(up, Kind.F, Kind.I, Kind.W)
        for _ in range(rank):
            made.add(down, Kind.I)
            made.add(up, Kind.I)
        for _ in range(ranks - rank):
            made.add(down, Kind.I, Kind.W)
        for stage in (up, down):
            while made.count(stage, Kind.W) < total:
                made.add(stage, Kind.W)
        return [op for op in made.ops if op.microbatch < microbatches]

    return assemble(problem, sizes, row)


ZB_H1 = Method(
    "ZB-H1",
    ("ZBH1",),
    "hand-made zero bubble in 1F1B's memory",
    zb_h1,
    placement="linear",
    shapes="every p and m",
    bubble="(p - 1)(F + I - W) where W is no longer than F and I, and m >= p",
    memory="min(m, p)",
    source="Qi et al., arXiv 2401.10241, section 2.1",
)

ZB_H2 = Method(
    "ZB-H2",
    ("ZBH2",),
    "hand-made zero bubble in twice 1F1B's memory",
    zb_h2,
    placement="linear",
    shapes="every p and m",
    bubble="(p - 1)(F + I - 2W) of the span where W is no longer than F and I, and m >= 2p",
    memory="min(m, 2p - 1)",
    source="Qi et al., arXiv 2401.10241, section 2.2",
)

ZB_V = Method(
    "ZB-V",
    ("ZBV", "ZBVZeroBubble", "ScheduleZBVZeroBubble"),
    "hand-made zero bubble in 1F1B's memory, in a fixed order",
    zb_v,
    placement="v",
    shapes="every p and m",
    bubble="0 of the span where F = I = W and m >= 2p - 1",
    memory="2p of half a rank's layers",
    source="Qi et al., arXiv 2401.10241, section 6",
)
