"""Compile what searches run, before any clock runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from .core.problem import Problem

ENTRIES = frozenset(
    {
        "greedy_kernel.run",
        "kernel.anneal",
        "kernel.earliest",
        "kernel.expand",
        "kernel.replay",
        "label_kernel.step",
        "end_kernel.step_back",
        "order_heads._fill",
        "paths._pull",
    }
)
"""Compiled functions that are there once all have been used."""


def is_warm() -> bool:
    """Whether compiled code of an earlier run is there, so that nothing will have to be compiled."""
    home = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parent)
    return {path.name.split("-")[0] for path in home.rglob("*.nbi")} >= ENTRIES


def warm_up() -> None:
    """Use every search once on a problem of some ops: the first time, this compiles them."""
    from .anneal import anneal
    from .beam import beam
    from .bounds import lower_bound
    from .bounds.tight import tight_bound
    from .evaluate.noise import Noise
    from .heuristics.greedy import greedy
    from .robust import robust

    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 3, "placement": "v"},
            "batch": {"samples": 5},
            "costs": {"forward": 93, "backward_input": 91, "backward_weight": 47},
            "links": {"latency": 6},
            "memory": {"activation": 201, "retained": 74, "limit": 804},
        }
    )
    sizes, far = problem.default_sizes(), time.monotonic() + 3600
    lower_bound(problem, "makespan"), lower_bound(problem, "span")
    start = greedy(problem, deadline=0.0)
    assert start is not None, "one micro-batch needs two thirds of the limit"
    anneal(problem, start, iterations=100)
    tight_bound(problem, sizes, deadline=far, known=10**6)
    beam(problem, sizes, width=10, deadline=far)
    robust(problem, start, "makespan", Noise(), iterations=10)
