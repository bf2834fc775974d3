"""Problems for tests of heuristics, by their shape."""

from __future__ import annotations

from adaptpipe.solver.core.problem import Problem

SHAPES = [(ranks, times * ranks) for ranks in range(2, 9) for times in (1, 2, 4)]
"""Ranks and micro-batches for which the formulas of every schedule are tested."""


def problem(
    ranks: int,
    microbatches: int,
    placement: str | list[int] | list[list[int]] = "linear",
    stages_per_rank: int | None = None,
    *,
    costs: tuple[int, int, int] = (6, 5, 4),
    latency: int = 0,
    fused: int | None = None,
    memory: dict[str, object] | None = None,
) -> Problem:
    """Equal stages with costs (F, I, W); activation = retained = 1 B and no limit unless said otherwise."""
    pipeline: dict[str, object] = {"ranks": ranks, "placement": placement}
    if stages_per_rank is not None:
        pipeline["stages_per_rank"] = stages_per_rank
    prices: dict[str, object] = dict(zip(("forward", "backward_input", "backward_weight"), costs, strict=True))
    if fused is not None:
        prices["backward"] = fused
    return Problem.from_dict(
        {
            "pipeline": pipeline,
            "batch": {"samples": microbatches},
            "costs": prices,
            "links": {"latency": latency},
            "memory": memory or {"activation": 1, "retained": 1},
        }
    )
