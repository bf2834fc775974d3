"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

from ..core.errors import InputError
from ..core.method import Method
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.schedule import Schedule
from .rows import assemble


def gpipe(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """GPipe (Huang et al., arXiv 1811.06965, section 2.3): every F, stage after stage, then every fused B.

    On a placement with several stages per rank this is the looped breadth-first order (arXiv 2211.05953).
    Exists for every one-direction placement and every m. Linear, equal stages, free messages: the makespan is
    (m + p - 1)(F + B), so the bubble is (p - 1) / (m + p - 1); each rank holds all m activations.

    Raises
    ------
    InputError
        When the placement has two directions.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 2}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> [" ".join(map(str, row)) for row in gpipe(problem).ops]
    ['0F0 0F1 0B0 0B1', '1F0 1F1 1B0 1B1']
    """
    if problem.placement.directions > 1:
        raise InputError(
            "pipeline.placement: GPipe needs a placement with one direction (linear, loop, v, wave or a list), and "
            f"this problem's is {problem.placement.name!r}; set another placement or choose another method"
        )

    def row(rank: int, microbatches: int) -> list[Op]:
        stages = [stage for _, stage in problem.placement.held[rank]]
        forward = [Op(stage, Kind.F, j) for stage in stages for j in range(microbatches)]
        return forward + [Op(stage, Kind.B, j) for stage in reversed(stages) for j in range(microbatches)]

    return assemble(problem, sizes, row)


GPIPE = Method(
    "GPipe",
    ("ScheduleGPipe",),
    "all forwards, then all backwards",
    gpipe,
    placement="any",
    shapes="every p, v and m",
    bubble="(p - 1)(F + B) on linear placements",
    memory="m, of each stage of the rank",
    source="Huang et al., arXiv 1811.06965, section 2.3",
)
