"""Measuring links: each pair of ranks by itself, both ways."""

from __future__ import annotations

import pytest

from adaptpipe.executor.errors import RankFailure
from adaptpipe.executor.launching.launcher import launch

from . import layers_jobs as jobs

pytestmark = pytest.mark.timeout(120)


def test_a_slow_link_is_told_from_the_others() -> None:
    """Large messages from rank 2 to rank 0 take 0.4 s more: bandwidth one way, and nothing else.

    One of them on the way back does too, which is chance.
    """
    first, *others = launch(jobs.links_of, 3, (2, 0), threads=1)
    assert all(other == first for other in others)
    slow = first.bandwidth[2][0]
    assert slow < 4000 / 0.3
    for a in range(3):
        assert (first.latency_s[a][a], first.bandwidth[a][a]) == (0.0, 0.0)
        for b in range(3):
            assert first.latency_s[a][b] == first.latency_s[b][a]
            if a != b:
                assert first.latency_s[a][b] > 0
                assert (a, b) == (2, 0) or first.bandwidth[a][b] > 2 * slow


def test_one_rank_has_no_links() -> None:
    with pytest.raises(RankFailure, match="ranks = 1: links are measured with 2 at least"):
        launch(jobs.links_of, 1, (0, 0), threads=1)
