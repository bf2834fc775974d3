"""Asynchronous training on real ranks: weights stashed, equal to the same stale updates in one process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from adaptpipe.executor.launching.launcher import launch
from adaptpipe.executor.running.plan import Plan
from adaptpipe.solver import InputError, Kind, NoAnswerError, Op, Schedule, place
from adaptpipe.solver.core.stream import weight_copies
from adaptpipe.solver.core.updates import Updates
from adaptpipe.solver.heuristics import pipedream

from ..orders import problem_for
from . import asynchronous_jobs as jobs

pytestmark = pytest.mark.timeout(300)

ONES = (1,) * 8


def case(ranks: int, sizes: Sequence[int], order: str, optimizer: str) -> jobs.Stale:
    problem = problem_for(place("linear", ranks), sizes, units=2)
    schedule = pipedream(problem, tuple(sizes))
    if order != "fused":
        schedule = schedule.split()
    return jobs.Stale(
        f"{order} {optimizer} p={ranks}", problem, late(schedule) if order == "late" else schedule, optimizer
    )


def late(schedule: Schedule) -> Schedule:
    """Cut every W in two and put its second half after the next op, so that more micro-batches are under way."""
    rows = []
    for row in schedule.ops:
        ops: list[Op] = []
        waiting: list[Op] = []
        for op in row:
            ops.append(replace(op, units=(0, 1)) if op.kind is Kind.W else op)
            if op.kind is not Kind.W:
                ops += waiting
                waiting = []
            else:
                waiting.append(replace(op, units=(1, 2)))
        rows.append((*ops, *waiting))
    return replace(schedule, ops=tuple(rows))


def cases(ranks: int) -> list[jobs.Stale]:
    sizes = (1, 3, 2, 1, 1, 2, 1)
    return [
        case(ranks, ONES, "fused", "SGD"),
        case(ranks, sizes, "fused", "Adam"),
        case(ranks, sizes, "split", "SGD"),
        case(ranks, ONES, "late", "Adam"),
    ]


@pytest.fixture(scope="module")
def pair() -> tuple[jobs.Pair, ...]:
    """One set of two processes for all."""
    return launch(jobs.on_two_ranks, 2, (cases(2), case(2, (1, 1), "fused", "SGD")), threads=1)


def test_two_ranks_equal_the_same_stale_updates_in_one_process(pair: tuple[jobs.Pair, ...]) -> None:
    require_equal(cases(2), [rank.trained for rank in pair])


def test_four_ranks_equal_the_same_stale_updates_in_one_process() -> None:
    require_equal(cases(4), launch(jobs.train_all, 4, cases(4), threads=1))


def require_equal(given: Sequence[jobs.Stale], found: Sequence[Sequence[jobs.Trained]]) -> None:
    for number, each in enumerate(given):
        whole = jobs.train_whole(each)
        for rank, results in enumerate(found):
            ours = results[number]
            assert ours.report is not None
            assert ours.report.versions == weight_copies(each.schedule)[rank], each.name
            assert ours.losses == pytest.approx(whole.losses, rel=1e-10), each.name
            for stage, state in ours.states.items():
                for name, value in state.items():
                    assert torch.allclose(value, whole.states[stage][name], rtol=1e-10, atol=1e-12), (each.name, name)


@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
def test_forwards_of_pipedream_are_as_many_updates_behind_as_ranks_follow(ranks: int) -> None:
    schedule = case(ranks, ONES, "fused", "SGD").schedule
    for stage in range(ranks):
        behind = ranks - 1 - stage
        assert [jobs.met(schedule, stage, j) for j in range(len(ONES))] == [
            max(0, j - behind) for j in range(len(ONES))
        ]


def test_versions_are_held_as_planned(pair: tuple[jobs.Pair, ...]) -> None:
    """Stage s of p has p - s versions under PipeDream's order, and the activations of 1F1B with a flush beside."""
    for rank, held in enumerate(each.held for each in pair):
        assert held.versions == 2 - rank == weight_copies(cases(2)[0].schedule)[rank]
        assert held.stream == held.flushed + (held.versions - 1) * held.weights


def test_a_version_counts_from_the_update_that_leaves_it(pair: tuple[jobs.Pair, ...]) -> None:
    """In a drain no forward follows, and the next backward ends without it."""
    held = pair[0].held
    activation = held.flushed // 2
    assert held.weights > activation
    assert held.short == activation + held.weights


def test_versions_count_against_a_limit(pair: tuple[jobs.Pair, ...]) -> None:
    assert [each.held.within for each in pair] == ["no error"] * 2
    assert re.search("rank 0 (holds|would hold) .*, above memory.limit", pair[0].held.beyond)


def test_a_checkpoint_goes_on_with_the_same_updates(pair: tuple[jobs.Pair, ...]) -> None:
    assert [each.resumed for each in pair] == [0.0, 0.0]


def test_versions_that_do_not_fit_are_refused() -> None:
    each = case(3, ONES, "fused", "SGD")
    memory = replace(each.problem.memory, static=(9, 9, 9), weights=(4, 4, 4), limit=(16, 16, 16))
    problem = replace(each.problem, memory=memory)
    Plan.of(problem, replace(each.schedule, updates="step"), "static")
    with pytest.raises(NoAnswerError, match="rank 0: static memory 17 B, 8 B of it for more copies of the weights"):
        Plan.of(problem, each.schedule, "static", updates="stash")


@pytest.mark.parametrize(
    ("has", "runs", "message"),
    [
        ("stash", "step", "updates are 'stash': .* train with AsyncPipeline"),
        ("step", "stash", "updates are 'step': .* train with Pipeline"),
        ("double", "stash", "updates are 'double': .* is simulated only, so train with a schedule of PipeDream"),
        ("newest", "step", "updates are 'newest': .* is simulated only, so train with a schedule of PipeDream"),
    ],
)
def test_other_updates_are_refused(has: Updates, runs: Updates, message: str) -> None:
    each = case(2, ONES, "fused", "SGD")
    with pytest.raises(InputError, match=message):
        Plan.of(each.problem, replace(each.schedule, updates=has), "static", updates=runs)


def test_misuse_is_refused_and_breaks_nothing(pair: tuple[jobs.Pair, ...]) -> None:
    messages = (
        r"stage 1: 1\.first\.weight trains, and no optimizer has it",
        "the schedule's updates are 'stash'",
        r"batches: the ranks were given \[0, 1\]",
        r"batches: the ranks were given \[0, 0\]",
        r"batches\[0\] is a Tensor; give a pair",
        r"batches\[1\]: (batch|target) has shape \(7, 4\); its first dimension must be the 8 samples",
        r"stage [01]: [01]\.first\.bias has a gradient hook",
    )
    for each in pair:
        for message, told in zip(messages, each.misused, strict=True):
            assert re.search(f"InputError: .*{message}", told)
