"""1F1B over the slices of micro-batches: Seq1F1B, its interleaved form, and MEPipe's SVPP."""

from __future__ import annotations

from ..core.method import Method
from ..core.problem import Problem
from ..core.schedule import Schedule
from ..evaluate.simulate import simulate
from .filling import fill_waits
from .rows import alternating, require_family


def seq_one_f_one_b(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Seq1F1B (Sun et al., arXiv 2406.03488), with fused backwards: 1F1B whose ops are those of slices.

    Forwards follow each other slice by slice; the backwards of a micro-batch begin with its last slice. So rank r
    starts with p - 2 - r + k forwards, k being the slices of each, as in the authors' code, k - 1 more than 1F1B; then
    it alternates F and B. Exists on linear placements for every m and k; where micro-batches are whole, it is 1F1B.

    Equal stages, equal slices with F and B of one, free messages: the bubble is (p - 1)(F + B), a k-th of 1F1B's. Rank
    r holds the activations of min(m k, p - 1 - r + k) slices.

    Raises
    ------
    InputError
        When the placement is not linear.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 2, "slices": 2}, "costs":
    ...     {"forward": 2, "backward_input": 2, "backward_weight": 2}})
    >>> [" ".join(map(str, row)) for row in seq_one_f_one_b(problem).ops]
    ['0F0 0F1 0F2 0B1 0F3 0B0 0B3 0B2', '1F0 1F1 1B1 1F2 1B0 1F3 1B3 1B2']
    """
    require_family(problem, "Seq1F1B", "linear")
    return _grouped(problem, sizes, ahead=1)


def seq_interleaved(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Seq1F1B-I (Sun et al., arXiv 2406.03488): interleaved 1F1B whose ops are those of slices.

    Micro-batches go round in groups, as in `interleaved`: the least number of them that has p slices, or somewhat more
    where that does not divide m; larger groups come first. With n micro-batches in the first, rank r starts with
    (v - 1) n k + 2(p - 1 - r) + k - 1 forwards. Exists on loop placements for every v, m and k.

    Equal stages, equal slices with F and B of one, free messages, m k >= p: the bubble is (p - 1)(F + B). Rank 0 holds
    the activations of min(m k v, (v - 1) n k + 2(p - 1) + k) slices.

    Raises
    ------
    InputError
        When the placement is not a loop.

    Notes
    -----
    The authors' code takes groups of p slices or more; here they are of whole micro-batches, so that every slice of one
    is in the same group.
    """
    require_family(problem, "Seq1F1B-I", "loop", None)
    return _grouped(problem, sizes, ahead=2)


def svpp(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """SVPP of MEPipe (Sun et al., EuroSys 2025): slices over v stages per rank, W's in the waits.

    Forwards and backwards as in Seq1F1B-I, but rank r is only p - 1 - r forwards ahead of the last rank: it starts with
    (v - 1) n k + p - 2 - r + k. Every backward is split, and a rank that would wait runs weight gradients, unit by
    unit (a GEMM each), the oldest first. It runs them as well before an F that would bring it above the memory of the
    same order with fused backwards. Depends on all costs. Exists on loop placements for every v, m and k; with v = 1
    the forwards and backwards are those of Seq1F1B.

    Equal stages, equal slices with F, I and W of one, free messages, m k >= p: the bubble is (p - 1)(F + I), worked out
    from runs. With fused backwards it is (p - 1)(F + B), a share of (p - 1) / (p - 1 + m k v). Where `retained` is at
    most `activation`, rank 0 holds min(m k v, (v - 1) n k + p - 1 + k) slices. That share is the paper's, and so is
    v max(p, k) + min(p, k) - 1 slices, which is the same where p divides k, or k divides p and p / k divides m; both
    are known to us second-hand only.

    Takes about 10 us for each op.

    Raises
    ------
    InputError
        When the placement is not a loop.
    """
    require_family(problem, "SVPP", "loop", None)
    order = _grouped(problem, sizes, ahead=1)
    peaks = simulate(problem, order).peak_memory
    return fill_waits(problem, order, [peak - problem.static_bytes(rank) for rank, peak in enumerate(peaks)])


def _grouped(problem: Problem, sizes: tuple[int, ...] | None, ahead: int) -> Schedule:
    """F and B in turn, in groups of whole micro-batches that have p slices or more."""
    return alternating(problem, sizes, ahead, least=-(-problem.ranks // problem.slice_count))


SEQ_ONE_F_ONE_B = Method(
    "Seq1F1B",
    ("Seq-1F1B",),
    "1F1B over the slices of micro-batches",
    seq_one_f_one_b,
    placement="linear",
    shapes="every p, m and number of slices k",
    bubble="(p - 1)(F + B) of a slice",
    memory="min(m k, p - 1 + k) slices",
    source="Sun et al., arXiv 2406.03488; warm-up: schedules.py of thunlp/Seq1F1B",
    sliced=True,
)

SEQ_INTERLEAVED = Method(
    "Seq1F1B-I",
    ("Seq1F1B-Interleaved",),
    "interleaved 1F1B over the slices of micro-batches",
    seq_interleaved,
    placement="loop",
    shapes="every p, v, m and number of slices k; m k >= p for the formulas",
    bubble="(p - 1)(F + B) of a slice, a stage being 1/v of a rank's layers",
    memory="min(m k v, (v - 1) n k + 2(p - 1) + k) slices, n = ceil(p / k) where that divides m",
    source="Sun et al., arXiv 2406.03488; warm-up: schedules.py of thunlp/Seq1F1B",
    sliced=True,
)

SVPP = Method(
    "SVPP",
    ("MEPipe",),
    "slices over several stages per rank, with weight gradients in the waits, unit by unit",
    svpp,
    placement="loop",
    shapes="every p, v, m and number of slices k; m k >= p for the formulas",
    bubble="(p - 1)(F + I) of a slice, a stage being 1/v of a rank's layers",
    memory="min(m k v, (v - 1) n k + p - 1 + k) slices, n = ceil(p / k) where that divides m",
    source="MEPipe: Sun et al., EuroSys 2025; the formulas are worked out from the order",
    sliced=True,
)
