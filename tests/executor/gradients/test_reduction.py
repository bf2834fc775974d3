"""Sums of gradients over stages and replicas, on real ranks: what they give, and what is refused."""

from __future__ import annotations

import re

import pytest
import torch

from adaptpipe.executor.errors import RankFailure
from adaptpipe.executor.launching.launcher import launch

from . import reduction_jobs as jobs

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def found() -> tuple[jobs.Found, ...]:
    """What each of two ranks found."""
    return launch(jobs.find_all, 2, None, threads=1)


def test_copies_start_equal_and_steps_without_zero_grad_add_up(found: tuple[jobs.Found, ...]) -> None:
    """What earlier steps left must not be scaled or summed again: pytorch/torchtitan#1733."""
    for rank in found:
        assert rank.tied < 1e-5
        assert rank.replicated < 1e-5
        assert rank.chained < 1e-5


def test_the_sum_of_a_stage_starts_while_others_still_compute(found: tuple[jobs.Found, ...]) -> None:
    for rank in found:
        first, ops = rank.early
        assert 0 < first < ops


def test_a_parameter_that_not_all_replicas_use(found: tuple[jobs.Found, ...]) -> None:
    (spare, extra, loss, value), (other, same, loss_too, value_too) = (rank.uneven for rank in found)
    assert spare is other is None
    assert extra is not None
    assert same is not None
    assert torch.equal(extra, same)
    assert (loss, value) == (loss_too, value_too), "told to all"
    assert loss > 0
    assert value == pytest.approx(loss, rel=1e-5), "one and three samples weigh in by their number"


def test_what_is_refused_on_every_rank(found: tuple[jobs.Found, ...]) -> None:
    expected = {
        "stage": r"InputError: tied: \(2, '2.weight'\) names stage 2; there are the stages 0 to 1",
        "name": r"InputError: tied: stage 1 has no parameter 'weight'; its parameters: 1.weight",
        "shape": r"InputError: tied: 0.weight of stage 0 has shape \(4, 4\) .* 1.weight of stage 1 has \(3, 4\) and",
        "frozen": r"InputError: tied: 0.weight of stage 0 trains, and 1.weight of stage 1 does not do the same",
        "differ": r"InputError: rank 1 was given another schedule, or other ties, than rank 0",
        "no pp": r"InputError: mesh has the dimensions \['x'\]; give one named 'pp'",
        "three": r"InputError: mesh has the dimensions \['a', 'b', 'pp'\]; give one named 'pp' .* at most one other",
        "part": r"InputError: mesh has 1 of the 2 processes; it must have all of them",
        "ranks": r"InputError: the schedule is for 2 ranks, and each of the mesh's 2 replicas has 1; start 4 processes",
        "ddp": r"InputError: stage 1: 1 is a DistributedDataParallel, which would sum .* mesh=init_device_mesh",
        "fsdp": r"InputError: stage 1: 1 is a FSDPModule, which would sum .* give the bare module",
        "no tie": r"InputError: tied: 0 is no copy of a parameter; a tie lists its copies as \(stage, name\), for",
        "time": r"InputError: timeout_s = nan: must be above 0, and at most 1e\+09 seconds",
        "seed": r"InputError: seed = 'one': must be a whole number",
        "list": r"InputError: stages is a list; give a mapping from numbers of stages to modules",
        "call": r"InputError: stage 0 is a builtin_function_or_method; give an nn.Module",
        "norm": r"InputError: max_norm = 0.0: must be above 0",
        "closed": r"InputError: step 0: the pipeline is closed",
        "sparse": r"RankFailure: rank \d, .*InputError: stage 0: a parameter of shape \(5, 4\) has a sparse gradient",
        "replicas": r"InputError: stage 0: 0.bias has shape \(4,\) and dtype .* and trains in replica 0, and .* "
        "and is frozen in replica 1; replicas of a stage must have the same parameters, and train the same of them",
        "less": r"InputError: stage 0: 0.bias is missing in replica 0, and has shape .* and trains in replica 1",
        "check": r"(RankFailure:|PeerFailed: rank 0 stops .* first:) rank 1: ValueError: no parts",
        "take over": r"(RankFailure:|PeerFailed: rank 0 stops .* first:) rank 1: ValueError: no signature found",
    }
    for rank in found:
        assert set(rank.refused) == set(expected)
        for key, pattern in expected.items():
            assert re.match(pattern, rank.refused[key]), rank.refused[key]
    for key in ("check", "take over"):
        assert [rank.refused[key].split(":")[0] for rank in found] == ["PeerFailed", "RankFailure"]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("hang", r"stage 0: the gradients of the ranks \[0, 1\] were not summed within 1 s; one of them hangs"),
        ("fail", r"^rank 1: ValueError: boom"),
        (
            "hang in F",
            r"^rank 1, stage 0, F of micro-batch 0, step 0: has been in this op for .*, and others wait; rank 0",
        ),
        ("hang before norm", r"^rank 0, step 1: .*Late: not every rank has come to the gradients' norm within 1 s"),
        (
            "hang before evaluation",
            r"^rank 1, step 1: .*Late: evaluate was not called on every rank of the pipeline within 1 s",
        ),
        ("hang before the trace", r"^rank 0: .*Late: rank 1 did not come to save_trace within 1 s"),
    ],
)
def test_a_process_that_others_wait_for(what: str, message: str) -> None:
    with pytest.raises(RankFailure, match=message):
        launch(jobs.wait_for_another, 2, what, threads=1)
