"""All forwards, then all backwards: GPipe, and over several stages per rank breadth-first."""

from __future__ import annotations

from ..core.errors import InputError
from ..core.method import Method
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.schedule import Schedule
from .rows import assemble, require_family


def gpipe(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """GPipe (Huang et al., arXiv 1811.06965, section 2.3): every F, stage after stage, then every fused B.

    On a loop this is the order of `looped_bfs` but for the micro-batches' order in the backward. Exists for every
    one-direction placement and every m. Linear, equal stages, free messages: the makespan is (m + p - 1)(F + B), so the
    bubble is (p - 1) / (m + p - 1); each rank holds all m activations.

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

    return _breadth_first(problem, sizes, 1)


def looped_bfs(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """Looped breadth-first (Lamy-Poirier, arXiv 2211.05953; PyTorch's ScheduleLoopedBFS), fused backwards.

    Every rank runs all micro-batches through its first stage, then all through its second, and so on, and back the
    same way; with weights sharded over replicas, each stage's are gathered and its gradients reduced once per step. In
    the backward the micro-batches come in reverse order, as in PyTorch. With equal micro-batches that changes neither
    times nor memory, since every F of a rank precedes every B; and slices may come in this order. Exists on loops for
    every m.

    Equal stages (F and B of one), free messages and m >= p: the bubble is that of interleaved 1F1B, (p - 1)(F + B),
    1F1B's of the same model divided by v; each rank holds all m activations of each of its v stages.

    Raises
    ------
    InputError
        When the placement is not a loop.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 1, "placement": "loop", "stages_per_rank": 2}, "batch":
    ...     {"samples": 2}, "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> " ".join(map(str, looped_bfs(problem).ops[0]))
    '0F0 0F1 1F0 1F1 1B1 1B0 0B1 0B0'
    """
    require_family(problem, "LoopedBFS", "loop", None)
    return _breadth_first(problem, sizes, -1)


def _breadth_first(problem: Problem, sizes: tuple[int, ...] | None, step: int) -> Schedule:
    """All forwards, stage after stage; then all backwards, micro-batches counted up (step 1) or down (-1)."""

    def row(rank: int, microbatches: int) -> list[Op]:
        stages = [stage for _, stage in problem.placement.held[rank]]
        forward = [Op(stage, Kind.F, j) for stage in stages for j in range(microbatches)]
        return forward + [Op(stage, Kind.B, j) for stage in reversed(stages) for j in range(microbatches)[::step]]

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

LOOPED_BFS = Method(
    "LoopedBFS",
    ("ScheduleLoopedBFS", "Breadth-first", "BFS"),
    "all micro-batches through a rank's first stage, then all through its second, then back",
    looped_bfs,
    placement="loop",
    shapes="every p, v and m; m >= p for the formulas",
    bubble="(p - 1)(F + B), a stage being 1/v of a rank's layers",
    memory="m v",
    source="Lamy-Poirier, arXiv 2211.05953; PyTorch's schedules.py",
    sliced=None,
)
