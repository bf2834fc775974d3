"""A problem with sizes to choose, and its schedules."""

from __future__ import annotations

from adaptpipe.solver import Problem, Schedule
from adaptpipe.solver.greedy import greedy


def affine(fixed: int, per_sample: int) -> dict[str, int]:
    """A cost by size."""
    return {"fixed": fixed, "per_sample": per_sample}


def pipeline(
    ranks: int = 3,
    samples: int = 12,
    sizes: tuple[int, ...] = (1, 2, 3, 4),
    placement: str = "linear",
    limit: int | None = 36,
    units: int = 1,
) -> Problem:
    """Fused backwards cheaper than their halves; in `limit`, twelve samples for each stage of a rank fit by default."""
    weight = [affine(4, 8)] if units == 1 else [affine(2, 4)] * units
    memory = {"activation": affine(0, 3), "retained": affine(0, 1)}
    return Problem.from_dict(
        {
            "pipeline": {"ranks": ranks, "placement": placement},
            "batch": {"samples": samples, "microbatch_sizes": list(sizes)},
            "costs": {
                "forward": affine(9, 18),
                "backward_input": affine(8, 17),
                "weight_units": weight,
                "backward": affine(10, 24),
            },
            "links": {"latency": 2},
            "memory": memory if limit is None else memory | {"limit": limit},
        }
    )


def some_schedule(problem: Problem, sizes: tuple[int, ...] | None = None) -> Schedule:
    """A greedy schedule under the first policy."""
    found = greedy(problem, sizes, deadline=0.0)
    assert found is not None
    return found
