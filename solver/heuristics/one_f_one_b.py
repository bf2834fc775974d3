"""1F1B with fused or split backward, and with more forwards ahead."""

from __future__ import annotations

from ..core.method import Method
from ..core.ops import Kind
from ..core.problem import Problem
from ..core.schedule import Schedule
from .rows import alternating, require_family


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
    return alternating(problem, sizes, ahead=1)


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
    return alternating(problem, sizes, ahead=1, backward=(Kind.I, Kind.W))


def eager_one_f_one_b(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Eager 1F1B (Zhuang et al., arXiv 2211.05322; DAPPLE's policy PB: Fan et al., arXiv 2007.01045).

    Rank r starts with 2(p - 1 - r) forwards, twice 1F1B's, then alternates F and B, both fused as there. So a message
    has the time of an F and a B to arrive before it is needed. Exists on linear placements for every m.

    Equal stages and free messages: the bubble is 1F1B's, (p - 1)(F + B), and rank r holds min(m, 2(p - r) - 1)
    activations. With messages of c ticks, 2c <= F + B, the makespan is (m + p - 1)(F + B) + 2(p - 1)c, whatever m is,
    where 1F1B's is (m + p - 1)(F + B) + (2(p - 1)(m / p + 1) - 2)c if p divides m.

    Raises
    ------
    InputError
        When the placement is not linear.

    Notes
    -----
    Alpa's `1f1b_overlap_friendly`, in alpa/pipeline_parallel/schedules.py of alpa-projects/alpa. DAPPLE's policy PA is
    1F1B.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 4}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in eager_one_f_one_b(problem).ops]
    ['0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3', '1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3']
    """
    require_family(problem, "Eager1F1B", "linear")
    return alternating(problem, sizes, ahead=2)


ONE_F_ONE_B = Method(
    "1F1B",
    ("OneFOneB", "Schedule1F1B", "PipeDream-Flush", "DAPPLE", "DAPPLE-PA"),
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

EAGER_ONE_F_ONE_B = Method(
    "Eager1F1B",
    ("Eager-1F1B", "DAPPLE-PB", "1F1B-overlap-friendly", "1f1b_overlap_friendly"),
    "1F1B with twice the forwards ahead, which hides messages",
    eager_one_f_one_b,
    placement="linear",
    shapes="every p and m",
    bubble="(p - 1)(F + B), and with messages of c at most (F + B) / 2 only 2(p - 1)c more",
    memory="min(m, 2p - 1)",
    source="Zhuang et al., arXiv 2211.05322; DAPPLE's policy PB: Fan et al., arXiv 2007.01045",
)
