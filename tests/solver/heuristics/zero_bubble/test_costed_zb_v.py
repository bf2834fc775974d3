"""ZB-V at mean costs: its authors' figures, its formula, and its authors' orders."""

from __future__ import annotations

import hashlib

import pytest

from adaptpipe.solver import check, simulate
from adaptpipe.solver.heuristics import costed_zb_v
from benchmarks.instances import Published, load, published
from tests.solver.heuristics.shapes import problem

CELLS = [cell for cell in published() if cell.method == "ZB-V" and load(cell.instance).placement.ranks < 32]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.instance)
def test_it_gives_the_published_cell_within_the_published_memory(cell: Published) -> None:
    at = load(cell.instance)
    schedule = costed_zb_v(at)
    assert check(at, schedule) == (), "the limit is 2p activations of one stage"
    assert round(simulate(at, schedule).span_bubble, 4) == cell.span_bubble


THEIRS = [
    # m, F, I, W, message, activation, retained on 6 ranks; with W's before backwards and before forwards, or not
    ((16, 4, 7, 6, 0, 5, 4), "3f61b305d149"),  # before backwards only
    ((15, 2, 7, 10, 3, 8, 8), "29a5d2ee4277"),
    ((12, 1, 7, 8, 3, 4, 4), "226cb19eba05"),
    ((17, 12, 10, 9, 1, 10, 5), "458556e2f16f"),  # before forwards only
    ((18, 9, 10, 11, 1, 2, 1), "261e03a9dcfe"),
    ((15, 6, 12, 8, 0, 6, 6), "c4061de98eae"),
    ((18, 6, 9, 8, 9, 9, 4), "8cc7d165673c"),  # before both
    ((12, 2, 2, 1, 0, 1, 0), "03c620abe611"),
    ((21, 7, 5, 12, 9, 4, 3), "0f46ed41c414"),  # before neither
    ((18, 8, 9, 11, 9, 5, 2), "ab7a501f57c0"),
    ((17, 7, 7, 10, 0, 2, 1), "4373a0a11f27"),  # where what the pass before was idle matters
    ((15, 7, 8, 4, 0, 10, 4), "ad3b7fa69eca"),
]
"""Hashes of the orders that the authors' code makes; commit 39f2c186 of their repository."""


@pytest.mark.parametrize(("numbers", "order"), THEIRS)
def test_the_order_is_that_of_the_authors_code(numbers: tuple[int, ...], order: str) -> None:
    samples, forward, backward, weight, latency, activation, retained = numbers
    memory: dict[str, object] = {"activation": activation, "retained": retained}
    at = problem(6, samples, "v", costs=(forward, backward, weight), latency=latency, memory=memory)
    text = "\n".join(" ".join(map(str, row)) for row in costed_zb_v(at).ops)
    assert hashlib.sha256(text.encode()).hexdigest()[:12] == order


@pytest.mark.parametrize(("ranks", "times"), [(ranks, times) for ranks in range(2, 9) for times in (1, 2, 4)])
def test_formula(ranks: int, times: int) -> None:
    at = problem(ranks, times * ranks, "v", costs=(5, 5, 5))
    timeline = simulate(at, costed_zb_v(at))
    assert timeline.span == times * ranks * 30 + (0 if times > 1 else (ranks - 1) * 5)
    assert max(timeline.peak_memory) == 2 * ranks
