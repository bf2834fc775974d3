"""Compile what searches run, before any clock runs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from .core.problem import Problem


def is_warm() -> bool:
    """Whether compiled code of an earlier run is there, wherever it is kept, so that nothing will be compiled."""
    from .anneal.kernel import anneal
    from .beam.kernel import expand
    from .bounds.division_kernel import cheapest
    from .bounds.end_kernel import step_back
    from .bounds.label_kernel import step
    from .evaluate.kernel import earliest
    from .floating.kernel import run as float_units
    from .greedy.kernel import run
    from .planning.bounds.packing_kernel import packs
    from .planning.search.kernel import climb, level
    from .robust.kernel import settle
    from .sizes.resize_kernel import anneal as resize

    entries: tuple[Any, ...] = (
        earliest, run, anneal, cheapest, step, step_back, expand, settle, resize, level, climb, packs, float_units,
    )  # fmt: skip
    return all(any(Path(each.stats.cache_path).glob(f"*.{each.__name__}-*.nbi")) for each in entries)


def warm_up() -> None:
    """Use every search once on a problem of some ops: the first time, this compiles them."""
    from .anneal import anneal
    from .beam import beam
    from .bounds import lower_bound
    from .bounds.tight import tight_bound
    from .evaluate.noise import Noise
    from .greedy import greedy
    from .planning.warming import warm_up as warm_up_planning
    from .robust import robust
    from .sizes import resize

    problem, several = _problem(1), _problem(1, 2)
    sizes, far = problem.default_sizes(), time.monotonic() + 3600
    lower_bound(problem, "makespan"), lower_bound(problem, "span"), lower_bound(several, "makespan")
    start = greedy(problem, deadline=0.0)
    assert start is not None, "one micro-batch needs two thirds of the limit"
    anneal(problem, start, iterations=100)
    tight_bound(problem, sizes, deadline=far, known=10**6)
    beam(problem, sizes, width=10, deadline=far)
    robust(problem, start, "makespan", Noise(), iterations=10)
    warm_up_planning()
    resize(several, replace(start, sizes=several.default_sizes()), iterations=10)


def _problem(*sizes: int) -> Problem:
    def cost(each: int) -> dict[str, int]:
        return {"fixed": 0, "per_sample": each}

    return Problem.from_dict(
        {
            "pipeline": {"ranks": 3, "placement": "v"},
            "batch": {"samples": 5, "microbatch_sizes": list(sizes)},
            "costs": {"forward": cost(93), "backward_input": cost(91), "backward_weight": cost(47)},
            "links": {"latency": 6},
            "memory": {"activation": cost(201), "retained": cost(74), "limit": 804},
        }
    )
