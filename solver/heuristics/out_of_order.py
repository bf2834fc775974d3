"""Out-of-order backprop: weight gradients give way to the gradients that other ranks wait for."""

from __future__ import annotations

from ..core.instance import LONGEST
from ..core.method import Method
from ..core.problem import Problem
from ..core.schedule import Schedule
from .filling import fill_waits
from .gpipe import gpipe
from .rows import require_family


def ooo_backprop(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Out-of-order backprop for pipelines (Oh et al., EuroSys 2022): GPipe's order with split backwards, W's last.

    Its gradient fast-forwarding: a rank hands gradients on first, and computes its own weights' where it would wait for
    the next gradient, or at the end. A unit of W that has begun is not broken off. The authors' code puts the W's of
    the last rank behind all its I's, and on the others each W behind its I, which takes as long where stages are equal.
    The paper's other half, the modulo allocation of layers, is a placement: a loop with one layer a stage.

    Equal stages, free messages: the bubble is (p - 1)(F + I) for every m, which is GPipe's less (p - 1)W; each rank
    holds all m activations where `retained` is at most `activation`. Exists on linear placements for every m.

    Raises
    ------
    InputError
        When the placement is not linear.

    Notes
    -----
    `expr/pipe_par/code/OOO_backprop/schedule/ModelScheduleHelper.py` in mlsys-seo/ooo-backprop.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 2}, "costs":
    ...     {"forward": 1, "backward_input": [1, 3], "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in ooo_backprop(problem).ops]
    ['0F0 0F1 0I0 0W0 0I1 0W1', '1F0 1F1 1I0 1I1 1W0 1W1']
    """
    require_family(problem, "OOO-Backprop", "linear")
    return fill_waits(problem, gpipe(problem, sizes), (LONGEST,) * problem.ranks)


OOO_BACKPROP = Method(
    "OOO-Backprop",
    ("OutOfOrderBackprop", "Gradient-fast-forwarding"),
    "GPipe with split backwards, W's where a rank would wait or at the end",
    ooo_backprop,
    placement="linear",
    shapes="every p and m",
    bubble="(p - 1)(F + I)",
    memory="m",
    source="Oh et al., EuroSys 2022; mlsys-seo/ooo-backprop, ModelScheduleHelper.py",
)
