"""Warming up: no search compiles anything after it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from numba.core.dispatcher import Dispatcher

from adaptpipe.solver import Measurement, Part, Problem, Profile, solve
from adaptpipe.solver.core.cluster import uniform_cluster
from adaptpipe.solver.core.result import Objective
from adaptpipe.solver.evaluate.noise import Noise
from adaptpipe.solver.greedy import greedy
from adaptpipe.solver.planning.answer import answer
from adaptpipe.solver.planning.workload import Workload
from adaptpipe.solver.robust import robust
from adaptpipe.solver.warming import is_warm, warm_up

ROOT = Path(__file__).resolve().parents[2]
OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


def compiled() -> set[tuple[str, str]]:
    """Every compiled function of the solver that is loaded, with each of its signatures."""
    modules = [module for name, module in sys.modules.items() if name.startswith("adaptpipe.solver.")]
    found = {id(each): each for module in modules for each in vars(module).values() if isinstance(each, Dispatcher)}
    return {
        (f"{each.py_func.__module__}.{each.py_func.__name__}", str(signature))
        for each in found.values()
        for signature in each.signatures
    }


def everything(sizes: list[int], placement: str) -> Problem:
    """Sizes, units and prices of fused backwards; memory is short."""

    def cost(fixed: int, each: int) -> dict[str, int]:
        return {"fixed": fixed, "per_sample": each}

    data: dict[str, Any] = {
        "pipeline": {"ranks": 3, "placement": placement},
        "batch": {"samples": 9, "microbatch_sizes": sizes},
        "costs": {
            "forward": cost(3, 9),
            "backward_input": cost(2, 9),
            "weight_units": [cost(1, 3), cost(1, 4)],
            "backward": cost(2, 14),
            "overhead": 1,
        },
        "links": {"latency": 2},
        "memory": {"activation": cost(0, 20), "retained": cost(0, 8), "limit": 130},
    }
    return Problem.from_dict(data)


def workload() -> Workload:
    """Layers that differ, two sizes, ranks of two speeds."""
    sizes = (Measurement(1, 1e-3, 1e-3, 1e-3, 2e-3, 5, 3, 9), Measurement(2, 2e-3, 2e-3, 2e-3, 4e-3, 10, 6, 18))
    parts = tuple(Part("layer", 4 + index, sizes) for index in range(7))
    cluster = uniform_cluster("three", 3, 60, 1e-5, 1e9)
    return Workload("warm", Profile("", parts, 0.0), replace(cluster, speed=(1.0, 1.0, 0.5)), 5, (1, 2))


def compiled_late() -> list[str]:
    """What is compiled, or loaded, only after warming up."""
    warm_up()
    assert is_warm()
    before = compiled()
    for sizes, placement in (([1], "linear"), ([1, 2, 3], "v"), ([1, 2], "bidirectional")):
        problem = everything(sizes, placement)
        for objective in OBJECTIVES:
            solve(problem, objective=objective, time_limit=1, workers=1)
            start = greedy(problem, deadline=0.0)
            assert start is not None
            robust(problem, start, objective, Noise(), iterations=10)
    answer(workload(), time_limit=1)
    return sorted(f"{name}{signature}" for name, signature in compiled() - before)


def test_nothing_is_compiled_once_all_is_warm() -> None:
    """In a process of its own: here, other tests may have compiled it."""
    code = "from tests.solver.test_warming import compiled_late; print(compiled_late())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
