"""Micro-batches that run to and fro over the ranks: Hanayo, and Hanayo with weight gradients in its waits."""

from __future__ import annotations

from ..core.method import Method
from ..core.problem import Problem
from ..core.schedule import Schedule
from .filling import fill_waits
from .rows import paced, require_family


def hanayo(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Hanayo (Liu et al., SC'23, arXiv 2308.15762) with any number of waves w, fused backwards.

    The stages run down the ranks and back up, w times. It is Chimera without its second copy of the weights: what there
    is the other direction is here the way back. Micro-batches go in groups of p, and the first forwards of a group fall
    into the last waits of the group before, as in Chimera. Exists for every p, w and m.

    Equal stages (F and B of one, 1 / (2w) of a rank's layers), free messages, p dividing m: the bubble is
    2(p - 1)(max(F, B) + (m / p - 1) |B - F|). So with B = 2F and m = p its share is (2p - 2) / (3pw + 2p - 2). Rank r
    holds (2w - 1)p + r + 1 activations of a stage, so at most what 1F1B's p are. Both are worked out from the order;
    the paper's formula is known to us second-hand only, as a share of (2p - 2) / (3pw + p - 1), which is larger.

    Raises
    ------
    InputError
        When the placement is not a wave.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2, "placement": "wave", "stages_per_rank": 2}, "batch":
    ...     {"samples": 2}, "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in hanayo(problem).ops]
    ['0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1', '1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1']
    """
    require_family(problem, "Hanayo", "wave", None)
    return paced(problem, sizes, problem.ranks)


def hanayo_w(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Hanayo (arXiv 2308.15762) with split backwards: forwards and I's in its order, W's wherever a rank would wait.

    A rank whose next F or I is not there yet runs the oldest unit of W that it has, and so on until it is there; and
    before an F or I that would bring it above the memory of 1F1B (p micro-batches of all its stages), it runs units
    until there is room. What is left runs at the end. This is the rule of AdaptPipe's public ancestor: it looks
    at nothing ahead, so a unit may end after what the rank waits for is there. Depends on all costs; the problem's own
    limits are not looked at. Exists for every p, w and m.

    Equal stages with F = I <= W of one, free messages, p dividing m: the bubble is (p - 1)F, worked out from runs for p
    to 8, w to 3 and m to 4p. Where `retained` is at most `activation`, no rank holds more than p activations of all its
    stages. Takes about 10 us for each op.

    Raises
    ------
    InputError
        When the placement is not a wave.
    """
    require_family(problem, "Hanayo-W", "wave", None)
    order = paced(problem, sizes, problem.ranks)
    taken = problem.instance(order.sizes).activation.max(axis=1)
    held = (sorted({op.stage for op in row}) for row in order.ops)
    return fill_waits(problem, order, [problem.ranks * int(taken[stages].sum()) for stages in held])


HANAYO = Method(
    "Hanayo",
    ("Wave",),
    "to and fro over the ranks in waves: Chimera's order with one copy of the weights",
    hanayo,
    placement="wave",
    shapes="every p, number of waves w and m",
    bubble="2(p - 1)(max(F, B) + (m / p - 1) |B - F|) where p divides m, a stage being 1 / (2w) of a rank's layers",
    memory="2pw, as much as 1F1B's p",
    source="Liu et al., SC'23, arXiv 2308.15762; the formulas are worked out from the order",
)

HANAYO_W = Method(
    "Hanayo-W",
    ("HanayoW", "Hanayo-float"),
    "Hanayo's order with W's in the waits, in 1F1B's memory: AdaptPipe's public ancestor",
    hanayo_w,
    placement="wave",
    shapes="every p, number of waves w and m",
    bubble="(p - 1)F where p divides m and F = I <= W, a stage being 1 / (2w) of a rank's layers",
    memory="2pw, as much as 1F1B's p",
    source="order: Liu et al., SC'23, arXiv 2308.15762; W's: AdaptPipe's public ancestor",
)
