"""Compile what searches run, before any clock runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from .core.problem import Problem


def is_warm() -> bool:
    """Whether compiled code of an earlier run is there, wherever it is kept, so that nothing will be compiled."""
    from .anneal.kernel import anneal
    from .beam.kernel import expand
    from .bounds.end_kernel import step_back
    from .bounds.label_kernel import step
    from .evaluate.kernel import earliest
    from .heuristics.greedy_kernel import run
    from .robust.kernel import settle

    entries: tuple[Any, ...] = (earliest, run, anneal, step, step_back, expand, settle)
    return all(any(Path(each.stats.cache_path).glob(f"*.{each.__name__}-*.nbi")) for each in entries)


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
