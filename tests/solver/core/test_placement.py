"""Which rank holds which stage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Placement, explicit, place


@pytest.mark.parametrize(
    ("family", "ranks", "per_rank", "stages"),
    [
        ("linear", 3, 1, ((0, 1, 2),)),
        ("loop", 3, 2, ((0, 1, 2, 0, 1, 2),)),
        ("v", 3, 2, ((0, 1, 2, 2, 1, 0),)),
        ("wave", 2, 4, ((0, 1, 1, 0, 0, 1, 1, 0),)),
        ("bidirectional", 3, 1, ((0, 1, 2), (2, 1, 0))),
    ],
)
def test_families(family: str, ranks: int, per_rank: int, stages: tuple[tuple[int, ...], ...]) -> None:
    placement = place(family, ranks, per_rank)
    assert (placement.stages, placement.name) == (stages, family)


@given(st.integers(1, 8), st.integers(1, 3), st.sampled_from(["linear", "loop", "v", "wave", "bidirectional"]))
def test_held_lists_every_stage_of_every_direction_once(ranks: int, per_rank: int, family: str) -> None:
    count = {"loop": per_rank, "v": 2, "wave": 2 * per_rank}.get(family, 1)
    placement = place(family, ranks, count)
    assert placement.stage_count == ranks * count
    pairs = [(direction, stage, rank) for rank, row in enumerate(placement.held) for direction, stage in row]
    expected = [(d, s, r) for d, row in enumerate(placement.stages) for s, r in enumerate(row)]
    assert sorted(pairs) == sorted(expected)
    if placement.directions == 1:
        assert explicit(ranks, placement.stages[0]) == placement


@given(st.integers(1, 9), st.integers(1, 4))
def test_direction_0_takes_the_first_half_rounded_up(count: int, ranks: int) -> None:
    placement = place("bidirectional", ranks)
    directions = [placement.direction_of(j, count) for j in range(count)]
    assert directions == [0] * ((count + 1) // 2) + [1] * (count // 2)
    assert [placement.rank_of(0, j, count) for j in range(count)] == [[0, ranks - 1][d] for d in directions]


def test_names_do_not_part_equal_placements() -> None:
    assert place("loop", 2, 1) == place("linear", 2)
    assert explicit(2, [1, 0]).name == "explicit"


@pytest.mark.parametrize(
    ("family", "per_rank", "message"),
    [
        ("ring", 1, "pipeline.placement: 'ring' is none of linear, loop, v, wave, bidirectional, nor a list"),
        ("linear", 2, "pipeline.stages_per_rank: 2 does not fit placement 'linear', which needs 1"),
        ("v", 4, "pipeline.stages_per_rank: 4 does not fit placement 'v', which needs 2"),
        ("wave", 3, "pipeline.stages_per_rank: 3 does not fit placement 'wave', which needs an even number"),
        ("loop", 0, "pipeline.stages_per_rank: 0 does not fit placement 'loop', which needs at least 1"),
        ("bidirectional", 2, "pipeline.stages_per_rank: 2 does not fit placement 'bidirectional', which needs 1"),
    ],
)
def test_families_that_do_not_exist(family: str, per_rank: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        place(family, 4, per_rank)


def test_ranks_below_one() -> None:
    with pytest.raises(InputError, match=r"pipeline.ranks: 0 is below 1"):
        place("linear", 0)
    with pytest.raises(InputError, match=r"pipeline.ranks: 0 is below 1"):
        Placement(0, ((),))
