"""Running schedules on real ranks: gradients, losses, memory, and what goes wrong."""

from __future__ import annotations

import pytest

from adaptpipe.executor.launch import launch
from adaptpipe.solver import place

from . import pipeline_jobs as jobs
from .orders import POLICIES, problem_for, schedule_for

pytestmark = pytest.mark.timeout(60)

SIZES = ((1,), (3,), (1, 1, 1), (1, 3, 2), (2, 2, 2, 2), (1, 1, 1, 2, 1, 1, 3, 1))


def cases(ranks: int, model: str) -> list[jobs.Case]:
    found = []
    for family, per_rank in (("linear", 1), ("loop", 2), ("v", 2)):
        placement = place(family, ranks, per_rank)
        for number, sizes in enumerate(SIZES):
            for policy in POLICIES:
                schedule = schedule_for(placement, sizes, policy, seed=number)
                name = f"{model} {family} p={ranks} sizes={sizes} {policy}"
                found.append(jobs.Case(name, model, problem_for(placement, sizes), schedule))
    return found


@pytest.mark.parametrize("model", ["gpt", "mixed"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_gradients_equal_the_unsplit_models(ranks: int, model: str) -> None:
    """Any number of micro-batches, more or fewer than ranks, equal or not.

    A stage waits for a micro-batch that does not come when m < p: pytorch/torchtitan#775. Receive buffers had the shape
    of micro-batch 0: pytorch/pytorch#126600. The split backward summed both halves of a `chunk`: pytorch/pytorch#170277.
    """
    for results in launch(jobs.compare_all, ranks, cases(ranks, model), threads=1):
        for name, gradient, loss in results:
            assert gradient < 1e-5, name
            assert loss < 1e-5, name
