"""Two replicas of each stage, for micro-batches that go both ways: what they give, and what is refused."""

from __future__ import annotations

import re

import pytest
import torch

from adaptpipe.executor.launching.launcher import launch

from . import replica_jobs as jobs

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def found() -> tuple[jobs.Found, ...]:
    """What each of four ranks found."""
    return launch(jobs.find_all, 4, None, threads=1)


def test_replicas_start_equal_and_get_one_gradient(found: tuple[jobs.Found, ...]) -> None:
    """The sum, to the bit the same on both; in the norm it counts once. Also where two pipelines share a batch out."""
    for trained in ([rank.alone for rank in found], [rank.two for rank in found]):
        for rank in trained:
            assert rank.worst < 1e-9
            assert len(rank.gradients) == 4
            for other in trained:
                for copy in rank.gradients.keys() & other.gradients.keys():
                    assert torch.equal(rank.gradients[copy], other.gradients[copy])


def test_a_batch_is_needed_on_both_ranks_of_stage_0(found: tuple[jobs.Found, ...]) -> None:
    messages = [rank.no_batch for rank in found]
    assert messages[1] == messages[2] == ""
    for rank in (0, 3):
        assert messages[rank] == f"InputError: batch is None on rank {rank}, which holds stage 0 and needs it"


def test_what_is_refused_on_every_rank(found: tuple[jobs.Found, ...]) -> None:
    alike = "replicas of a stage must have the same parameters, and train the same of them"
    expected = {
        "frozen": r"stage 0: 0.bias has shape \(4,\) and dtype torch.float64 and trains on rank 0, and has shape "
        rf"\(4,\) and dtype torch.float64 and is frozen on rank 3; {alike}",
        "missing": rf"stage 0: 0.bias is missing on rank 0, and has shape .* and trains on rank 3; {alike}",
        "one way": r"rank \d was given the stages \[\d\], and the schedule's placement has \[\d, \d\] there: stage to "
        r"rank is \[0, 1, 2, 3\], and the other way \[3, 2, 1, 0\]",
        "two pipelines": r"stage 0: 0.bias .* and trains on rank 0 of replica 0, and .* and is frozen on rank 1 of "
        rf"replica 1; {alike}",
    }
    for rank in found:
        assert set(rank.refused) == set(expected)
        for key, pattern in expected.items():
            assert re.fullmatch(f"InputError: {pattern}", rank.refused[key]), rank.refused[key]
