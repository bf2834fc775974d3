"""Every synchronous schedule of the literature gives the unsplit model's loss and gradients, on real ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from adaptpipe.executor.launching.launcher import launch
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.solver import InputError, Placement, place
from adaptpipe.solver.core.method import Method
from adaptpipe.solver.core.slices import Slices
from adaptpipe.solver.heuristics import LITERATURE

from ..orders import problem_for
from . import literature_jobs as jobs

pytestmark = pytest.mark.timeout(240)

METHODS = [method for method in LITERATURE if method.updates == "step"]
COUNTS = {2: (4, 5, 1), 4: (8,)}
"""Micro-batches on so many ranks; each method has a schedule for the first of these numbers."""
SLICES = Slices(tokens=(5, 3), work=(1, 1))
"""Of sequences of eight tokens, where a method is for slices."""


def placements(method: Method, ranks: int) -> tuple[Placement, ...]:
    """Where a method's stages can be."""
    if method.placement == "any":
        return place("linear", ranks), place("v", ranks, 2)
    if method.placement == "wave" and ranks == 2:
        return place("wave", ranks, 2), place("wave", ranks, 4)
    return (place(method.placement, ranks, 1 if method.placement in ("linear", "bidirectional") else 2),)


def cases(method: Method, ranks: int) -> Iterator[jobs.Case]:
    """A method's schedules."""
    assert method.build is not None
    for placement in placements(method, ranks):
        for count in COUNTS[ranks]:
            problem = problem_for(placement, (1,) * count, units=2)
            if method.sliced:
                problem = replace(problem, slices=SLICES)
            try:
                yield jobs.Case(method.name, problem, method.build(problem, None))
            except InputError:
                if count == COUNTS[ranks][0]:
                    raise


@pytest.mark.parametrize(("ranks", "execution"), [(2, "adaptive"), (4, "static")])
def test_gradients_equal_the_unsplit_models(ranks: int, execution: ExecutionMode) -> None:
    """All in one set of processes; of a stage with two replicas, on both."""
    everything = [case for method in METHODS for case in cases(method, ranks)]
    assert {case.method for case in everything} == {method.name for method in METHODS}
    for rank in launch(jobs.errors_of_all, ranks, (everything, execution), threads=1):
        for case, errors in zip(everything, rank, strict=True):
            assert errors.loss <= 1e-9, str(case)
            wrong = {name: error for name, error in errors.gradients.items() if not error <= 1e-9}
            assert errors.gradients, str(case)
            assert not wrong, str(case)
