"""V-Half, V-Min and V-ZB: as good as their authors' code makes them, and as their formulas say."""

from __future__ import annotations

import pytest

from adaptpipe.solver import Problem, check, simulate
from adaptpipe.solver.heuristics import v_half, v_min, v_zb
from tests.solver.heuristics.shapes import SHAPES, problem

THEIRS = [
    # p, m, F, I, W, message, bubble of V-Half and of V-Min, activations held by V-Half and by V-Min
    (8, 24, 1, 1, 1, 0, 0.1056, 0.1579, 10, 8),
    (8, 32, 1, 1, 1, 0, 0.0813, 0.1233, 10, 8),
    (16, 48, 1, 1, 1, 0, 0.1246, 0.1700, 18, 12),
    (8, 24, 4959, 5217, 3519, 213, 0.1456, 0.2822, 10, 8),
    (16, 48, 14407, 14380, 9676, 1610, 0.1847, 0.3300, 18, 12),
    (24, 72, 6763, 6969, 5251, 755, 0.1823, 0.3158, 26, 18),
    (32, 96, 9458, 9748, 7288, 879, 0.1810, 0.3110, 34, 24),
]
"""What the authors' code makes (sail-sg/zero-bubble-pipeline-parallelism, tag v0.1.0)."""


@pytest.mark.parametrize("row", THEIRS, ids=lambda row: "-".join(map(str, row[:3])))
def test_no_worse_than_their_authors_code(row: tuple[float, ...]) -> None:
    ranks, microbatches, *costs, latency = map(int, row[:6])
    forward, backward, weight = costs
    at = problem(ranks, microbatches, "v", costs=(forward, backward, weight), latency=latency)
    for build, bubble, held in ((v_half, row[6], row[8]), (v_min, row[7], row[9])):
        timeline = simulate(at, build(at))
        assert round(timeline.span_bubble, 4) <= bubble, build.__name__
        assert max(timeline.peak_memory) == held, build.__name__


def equal(ranks: int, microbatches: int) -> Problem:
    return problem(ranks, microbatches, "v", costs=(1, 1, 1))


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_v_half_formula(ranks: int, microbatches: int) -> None:
    at = equal(ranks, microbatches)
    timeline = simulate(at, v_half(at))
    idle = 1 if ranks == 2 else 3 * ranks - (7 if ranks % 2 == 0 else 4)
    assert timeline.makespan == timeline.span == 6 * microbatches + idle
    assert max(timeline.peak_memory) == 2 * ((ranks + 2) // 2)


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_v_min_formula(ranks: int, microbatches: int) -> None:
    at = equal(ranks, microbatches)
    timeline = simulate(at, v_min(at))
    idle = 4 * ranks - (5 if ranks % 3 == 1 else 7)
    assert timeline.makespan == timeline.span == 6 * microbatches + idle
    assert max(timeline.peak_memory) == 2 * ((ranks + 4) // 3)


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_v_zb_formula(ranks: int, microbatches: int) -> None:
    at = equal(ranks, microbatches)
    timeline = simulate(at, v_zb(at))
    assert timeline.makespan == 6 * microbatches + ranks - 1
    assert timeline.span == 6 * microbatches or microbatches < 2 * ranks
    assert max(timeline.peak_memory) == 2 * ranks


def test_they_exist_for_every_shape_within_their_memory_and_none_idles_without_another_rank() -> None:
    for ranks in range(1, 14):
        for microbatches in (1, 2, 3, ranks, 2 * ranks + 1):
            at = problem(ranks, microbatches, "v", costs=(7, 4, 2), latency=1)
            for build, most in (
                (v_half, 2 * ((ranks + 2) // 2)),
                (v_min, 2 * ((ranks + 4) // 3)),
                (v_zb, 2 * ranks),
            ):
                schedule = build(at)
                assert check(at, schedule) == (), (build.__name__, ranks, microbatches)
                timeline = simulate(at, schedule)
                assert max(timeline.peak_memory) <= most, (build.__name__, ranks, microbatches)
                assert ranks > 1 or timeline.bubble == 0


def test_where_v_half_is_one_forward_above_its_formula() -> None:
    for ranks in range(3, 17):
        for microbatches in range(ranks, 2 * ranks + 1, 1 if ranks < 9 else ranks):
            at = equal(ranks, microbatches)
            idle = simulate(at, v_half(at)).makespan - 6 * microbatches - 3 * ranks + (7 if ranks % 2 == 0 else 4)
            more = (ranks, microbatches) == (3, 4) or (ranks >= 9 and ranks % 2 == 1 and microbatches > ranks)
            assert idle == more, (ranks, microbatches)
