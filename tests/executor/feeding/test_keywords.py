"""Keyword arguments of stages, and sequences of several lengths."""

from __future__ import annotations

import re

import pytest

from adaptpipe.executor.launching.launcher import launch
from adaptpipe.solver import place

from ..orders import problem_for, schedule_for
from ..running import module_jobs as jobs
from ..running.pipeline_jobs import Case

pytestmark = pytest.mark.timeout(120)

SIZES = (1, 2, 3)


def case(policy: str) -> Case:
    placement = place("v", 2, 2)
    return Case(policy, "", problem_for(placement, SIZES, units=2), schedule_for(placement, SIZES, policy))


@pytest.mark.parametrize("policy", ["1f1b", "zb"])
def test_each_stage_gets_the_keywords_it_takes(policy: str) -> None:
    """Cut by micro-batch where they have rows; lengths differ between steps, and between micro-batches."""
    assert max(launch(jobs.keywords_and_lengths, 2, case(policy), threads=1)) < 1e-5


def test_keywords_that_nobody_can_take() -> None:
    wanted = [
        r"InputError: mask has shape \(5, 3\); its first dimension must be the 6 samples",
        r"InputError: mask has 1 micro-batches, and the schedule 3: \[1, 2, 3\]",
        r"InputError: maks: no stage takes a keyword of this name; they take mask, scale, x",
    ]
    for messages in launch(jobs.wrong_keywords, 2, case("1f1b"), threads=1):
        assert len(messages) == len(wanted)
        for message, pattern in zip(messages, wanted, strict=True):
            assert re.match(pattern, message), message
