"""Micro-batches that enter at both ends: Chimera, DualPipe, and DualPipeV, which is DualPipe folded to one copy."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from ..core.method import Method
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.schedule import Schedule
from .rows import assemble, paced, refuse, require_family


def chimera(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Chimera (Li and Hoefler, arXiv 2107.06925, sections 3.1 and 3.5) with fused backwards.

    Half of the micro-batches run down the ranks and half run up, each rank holding a stage of both directions; each
    direction is 1F1B with p / 2 micro-batches, and the two fit into each other without a conflict. More than p
    micro-batches are "directly concatenated": the first forwards of the next p fall into the last waits of those before
    (not "forward doubling", which pairs forwards and recomputes them). Exists for every even p and every m.

    Equal stages, free messages, p dividing m: the bubble is (p - 2)(max(F, B) + (m / p - 1) |B - F|). So with F = B
    its share is the paper's (p - 2) / (2m + p - 2), and with B = 2F and m = p it is (p - 2) / (3m / 2 + p - 2). Rank r
    holds p / 2 + min(r, p - 1 - r) + 1 activations, so at most p, and two copies of the weights.

    Raises
    ------
    InputError
        When the placement is not bidirectional, or p is odd.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2, "placement": "bidirectional"}, "batch": {"samples": 2},
    ...     "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in chimera(problem).ops]
    ['0F0 1F1 1B1 0B0', '0F1 1F0 1B0 0B1']
    """
    _require_even("Chimera", problem)
    return paced(problem, sizes, problem.ranks // 2)


def dualpipe(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """DualPipe (DeepSeek-V3: arXiv 2412.19437, section 3.2.1; the eight steps of deepseek-ai/DualPipe, dualpipe.py).

    Both directions at once as in Chimera, but in its middle part each rank runs a forward of one direction and a
    backward of the other as a pair whose messages overlap with the computation of the other; at both ends the backward
    is split to fill waits with W's. The code asks for an even number m >= 2p of micro-batches; for any other m this is
    the order for the next such number without the ops of the micro-batches that are not there. p must be even.

    The two ops of a pair are two ops here, one directly after the other, and each waits for its own input only: with
    equal stages, W <= I <= F <= B, free messages and such an m, the bubble is (p / 2 - 1)(F + I - W), and otherwise no
    less. The published formula, (p / 2 - 1)(F&B + B - 3W), is of pairs that begin when both inputs are there; it comes
    out for F&B = F + B and F = I. Each rank holds p + 1 activations and two copies of the weights.

    Raises
    ------
    InputError
        When the placement is not bidirectional, or p is odd.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2, "placement": "bidirectional"}, "batch": {"samples": 4},
    ...     "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> " ".join(map(str, dualpipe(problem).ops[0]))
    '0F0 1F2 0F1 1B2 1F3 0B0 1B3 0I1 0W1'
    """
    _require_even("DualPipe", problem)
    ranks = problem.ranks

    def row(rank: int, microbatches: int) -> list[Op]:
        position = min(rank, ranks - 1 - rank)
        first = (microbatches + 1) // 2
        ends = ((rank, 0, first), (ranks - 1 - rank, first, microbatches))
        near, far = ends if rank < ranks // 2 else ends[::-1]
        return _numbered(_steps(ranks // 2, position, max(ranks, first)), near, far)

    return assemble(problem, sizes, row)


def dualpipe_v(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """DualPipeV (deepseek-ai/DualPipe, dualpipev.py; PyTorch's ScheduleDualPipeV): DualPipe cut in half and folded.

    The two directions of DualPipe (DeepSeek-V3: arXiv 2412.19437, section 3.2.1) are the way down and the way back of
    a V, so there is one copy of the weights. The steps are those of `dualpipe` for twice the ranks. The code asks for
    m >= 2p; for smaller m this is the order for 2p without the ops of the micro-batches that are not there.

    Equal stages (F, I and W of one) with W <= I <= F <= B, free messages and m >= 2p: the bubble is (p - 1)(F + I - W),
    or the published (p - 1)(F&B + B - 3W) where pairs begin together, F&B = F + B and F = I. Each rank holds 2p + 1
    activations of one stage, half of its layers.

    Raises
    ------
    InputError
        When the placement is not V.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 1, "placement": "v", "stages_per_rank": 2}, "batch":
    ...     {"samples": 2}, "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> " ".join(map(str, dualpipe_v(problem).ops[0]))
    '0F0 1F0 0F1 1B0 1F1 0B0 1B1 0I1 0W1'
    """
    require_family(problem, "DualPipeV", "v", 2)
    ranks = problem.ranks

    def row(rank: int, microbatches: int) -> list[Op]:
        near, far = (rank, 0, microbatches), (2 * ranks - 1 - rank, 0, microbatches)
        return _numbered(_steps(ranks, rank, max(2 * ranks, microbatches)), near, far)

    return assemble(problem, sizes, row)


def _steps(half: int, position: int, count: int) -> Iterator[tuple[Kind, int]]:
    """The eight steps of one rank: kinds, each of the rank's stage 0 or 1. A W is of the earliest I without one.

    Of the 2 `half` ranks that a micro-batch passes, stage 0 is on the one with number `position` from its end, which is
    below `half`; `count` micro-batches pass each stage.
    """
    ahead = half - 1 - position
    yield from [(Kind.F, 0)] * (2 * ahead)
    yield from [(Kind.F, 0), (Kind.F, 1)] * (position + 1)
    yield from [(Kind.I, 1), (Kind.W, 1), (Kind.F, 1)] * ahead
    yield from [(Kind.F, 0), (Kind.B, 1), (Kind.F, 1), (Kind.B, 0)] * (count - half - ahead)
    yield from [(Kind.B, 1), (Kind.F, 1), (Kind.B, 0)] * ahead
    yield from [(Kind.B if k <= position else Kind.I, 1 - k % 2) for k in range(2 * (position + 1))]
    yield from [(Kind.W, 0), (Kind.I, 0)] * ahead
    yield from [(Kind.W, 0)] * (position + 1)


def _numbered(steps: Iterator[tuple[Kind, int]], *ends: tuple[int, int, int]) -> list[Op]:
    """Ops of the steps; each end is the stage, its first micro-batch, and where its micro-batches stop."""
    ops: list[Op] = []
    begun: Counter[tuple[bool, int]] = Counter()
    waiting: deque[Op] = deque()
    for kind, end in steps:
        if kind is Kind.W:
            ops.append(waiting.popleft())
            continue
        stage, first, _ = ends[end]
        microbatch = first + begun[kind is Kind.F, end]
        begun[kind is Kind.F, end] += 1
        ops.append(Op(stage, kind, microbatch))
        if kind is Kind.I:
            waiting.append(Op(stage, Kind.W, microbatch))
    stops = {stage: stop for stage, _, stop in ends}
    return [op for op in ops if op.microbatch < stops[op.stage]]


def _require_even(method: str, problem: Problem) -> None:
    require_family(problem, method, "bidirectional")
    ranks = problem.ranks
    if ranks % 2:
        nearest = " or ".join(str(count) for count in (ranks - 1, ranks + 1) if count)
        refuse("pipeline.ranks", method, "an even number of ranks", f"there are {ranks}", f"ranks = {nearest}")


CHIMERA = Method(
    "Chimera",
    ("Bidirectional",),
    "1F1B from both ends at once, on two copies of the weights",
    chimera,
    placement="bidirectional",
    shapes="even p, every m",
    bubble="(p - 2)(max(F, B) + (m / p - 1) |B - F|) where p divides m",
    memory="p, and two copies of the weights",
    source="Li and Hoefler, arXiv 2107.06925, sections 3.1 and 3.5",
)

DUALPIPE = Method(
    "DualPipe",
    (),
    "forwards of one direction paired with backwards of the other, on two copies of the weights",
    dualpipe,
    placement="bidirectional",
    shapes="even p, every m; even m >= 2p for the formulas",
    bubble="(p / 2 - 1)(F + I - W) where W <= I <= F <= B; (p / 2 - 1)(F&B + B - 3W) where pairs begin together",
    memory="p + 1, and two copies of the weights",
    source="DeepSeek-V3: arXiv 2412.19437, section 3.2.1; deepseek-ai/DualPipe, dualpipe.py",
)

DUALPIPE_V = Method(
    "DualPipeV",
    ("ScheduleDualPipeV", "Cut-in-half"),
    "DualPipe folded to a V: one copy of the weights",
    dualpipe_v,
    placement="v",
    shapes="every p and m; m >= 2p for the formulas",
    bubble="(p - 1)(F + I - W) of half a rank's layers where W <= I <= F <= B; (p - 1)(F&B + B - 3W) where pairs "
    "begin together",
    memory="2p + 1 of half a rank's layers",
    source="DeepSeek-V3: arXiv 2412.19437, section 3.2.1; deepseek-ai/DualPipe, dualpipev.py",
)
