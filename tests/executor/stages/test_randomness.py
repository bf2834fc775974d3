"""Dropout: its masks belong to a step, a stage and a micro-batch, and to nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from adaptpipe.executor.launching.launcher import launch
from adaptpipe.executor.stages.randomness import RandomState
from adaptpipe.solver import Placement, Problem, Schedule, place
from adaptpipe.solver.heuristics import one_f_one_b, zb_h1

from ..orders import problem_for, schedule_for
from ..running import module_jobs as jobs
from ..running.pipeline_jobs import Case

pytestmark = pytest.mark.timeout(120)

SIZES = (1, 2, 1, 2)


def case(placement: Placement, policy: str) -> Case:
    problem = problem_for(placement, SIZES)
    return Case(policy, "", problem, schedule_for(placement, SIZES, policy))


def by_hand(method: Callable[[Problem, tuple[int, ...]], Schedule]) -> Case:
    problem = problem_for(place("linear", 4), SIZES)
    return Case(method.__name__, "", problem, method(problem, SIZES))


def test_masks_do_not_depend_on_order_or_place() -> None:
    """Losses of one model, cut into four stages, are the same to the bit on one, two and four ranks in every order.

    And where micro-batches go through replicas of the stages in two directions.
    """
    on_two = [case(place("v", 2, 2), "random"), case(place("loop", 2, 2), "gpipe")]
    found = [
        result
        for ranks, cases in (
            (1, [case(place("loop", 1, 4), "1f1b")]),
            (2, on_two),
            (4, [by_hand(one_f_one_b), by_hand(zb_h1), case(place("bidirectional", 4), "zb")]),
        )
        for rank in launch(jobs.losses_with_dropout, ranks, cases, threads=1)
        for result in rank
    ]
    assert all(gradient < 1e-5 for _, gradient in found)
    assert len({tuple(losses) for losses, _ in found}) == 1
    assert len(set(found[0][0])) == 3  # another step draws other masks


def test_the_seed_is_that_of_torch_on_rank_0() -> None:
    first, second = launch(jobs.torchs_own_seed, 2, case(place("linear", 2), "zb"), threads=1)
    assert first == second
    assert first[0] == first[1] != first[2]


def test_every_part_of_the_key_counts() -> None:
    drawn = set()
    for seed, replica, step, stage, microbatch in (
        (1, 0, 0, 0, 0),
        (2, 0, 0, 0, 0),
        (1, 1, 0, 0, 0),
        (1, 0, 1, 0, 0),
        (1, 0, 0, 1, 0),
        (1, 0, 0, 0, 1),
    ):
        state = RandomState(seed, replica)
        state.step = step
        with state.of(stage, microbatch):
            drawn.add(torch.rand(1).item())
    assert len(drawn) == 6


def test_the_random_state_is_given_back_after_an_error() -> None:
    def fail() -> None:
        with RandomState(1).of(0, 0):
            torch.rand(1)
            raise ValueError("boom")

    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="boom"):
        fail()
    assert torch.equal(before, torch.get_rng_state())
