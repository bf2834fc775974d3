"""Splits cover every layer exactly once, and are as balanced as they say."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.models import GPTConfig, describe_split, split_layers
from adaptpipe.solver import InputError

WEIGHT = st.one_of(st.integers(0, 9), st.floats(0, 1e300), st.sampled_from([0.1, 0.2, 0.3]))


@st.composite
def shapes(draw: st.DrawFn, largest: int) -> tuple[int, int]:
    count = draw(st.integers(1, largest))
    return count, draw(st.integers(1, count))


def covers_once(parts: tuple[range, ...], count: int) -> bool:
    return [layer for part in parts for layer in part] == list(range(count)) and all(parts)


@settings(deadline=None)
@given(shapes(200))
def test_every_layer_belongs_to_exactly_one_stage(shape: tuple[int, int]) -> None:
    count, stages = shape
    parts = split_layers(count, stages)
    assert len(parts) == stages
    assert covers_once(parts, count)
    lengths = [len(part) for part in parts]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


@pytest.mark.parametrize(
    ("count", "stages", "lengths"), [(30, 4, [8, 8, 7, 7]), (10, 8, [2, 2, 1, 1, 1, 1, 1, 1]), (80, 32, None)]
)
def test_division_with_a_remainder_loses_no_layer(count: int, stages: int, lengths: list[int] | None) -> None:
    """30 layers on 4 ranks trained 28, and 80 layers on 16 ranks of 2 stages trained 64 (NVIDIA/Megatron-LM#1304)."""
    parts = split_layers(count, stages)
    assert sum(len(part) for part in parts) == count
    if lengths:
        assert [len(part) for part in parts] == lengths


@settings(deadline=None)
@given(shapes(9).flatmap(lambda shape: st.tuples(st.just(shape[1]), st.lists(st.integers(0, 9), min_size=shape[0]))))
def test_weighted_split_equals_brute_force(case: tuple[int, list[int]]) -> None:
    stages, weights = case
    weights = weights[:9]
    count = len(weights)

    def rank(bounds: tuple[int, ...]) -> tuple[int, int, list[int]]:
        ends = (0, *bounds, count)
        loads = [sum(weights[start:stop]) for start, stop in pairwise(ends)]
        return max(loads), sum(load**2 for load in loads), [-end for end in ends]

    best = min(rank(bounds) for bounds in combinations(range(1, count), stages - 1))
    parts = split_layers(count, stages, weights)
    assert covers_once(parts, count)
    assert [0, *(-part.stop for part in parts)] == best[2]


def test_the_heaviest_stage_counts_before_the_squares() -> None:
    # Loads 6, 2, 3 have the smaller sum of squares, 49 to 51; but a pipeline waits for its heaviest stage.
    assert split_layers(4, 3, [1, 5, 2, 3]) == (range(0, 1), range(1, 2), range(2, 4))


@settings(deadline=None)
@given(shapes(12), st.data())
def test_weights_of_any_scale(shape: tuple[int, int], data: st.DataObject) -> None:
    count, stages = shape
    weights = data.draw(st.lists(WEIGHT, min_size=count, max_size=count))
    parts = split_layers(count, stages, weights)
    assert len(parts) == stages
    assert covers_once(parts, count)


@settings(deadline=None)
@given(shapes(20), st.sampled_from([1, 0.1, 1e-9, 1e200]))
def test_equal_weights_split_as_no_weights(shape: tuple[int, int], weight: float) -> None:
    count, stages = shape
    assert split_layers(count, stages, [weight] * count) == split_layers(count, stages)


def test_description_names_layers_and_parameters() -> None:
    config = GPTConfig(layers=2, width=8, heads=2, sequence=16)
    lines = describe_split(config, split_layers(4, 3))
    assert lines[0] == "stage 0: 2 layers, embedding to block 0, 3,048 parameters"
    assert lines[2] == "stage 2: 1 layer, head, 2,320 parameters"
    assert lines[3] == "all stages: 4 layers, each in one stage, 6,240 parameters, those of the model"
    tied = describe_split(replace(config, tied=True), split_layers(4, 3))
    assert tied[3] == f"{lines[3]}; 1 of the model's matrices in several layers, and counted in each"


@pytest.mark.parametrize("parts", [(range(2), range(3, 4)), (range(2), range(1, 4)), (range(2), range(2, 3))])
def test_a_split_that_loses_or_repeats_a_layer_is_refused(parts: tuple[range, ...]) -> None:
    """Of 30 layers on 4 ranks, 28 were trained in silence: NVIDIA/Megatron-LM#1304."""
    with pytest.raises(InputError, match="each of the 4 layers must be in one stage, in order; split_layers makes"):
        describe_split(GPTConfig(layers=2, width=8, heads=2, sequence=16), parts)


@pytest.mark.parametrize(
    ("count", "stages", "weights", "message"),
    [
        (4, 5, None, r"stages = 5 and layers = 4: .* at most 4 stages, or a model of at least 5 layers"),
        (4, 5, [1, 1, 1, 1], r"stages = 5 and layers = 4"),
        (4, 0, None, r"stages = 0: must be at least 1"),
        (0, 1, None, r"layers = 0: a model has at least one"),
        (3, 2, [1, 2], r"weights: 2 for 3 layers"),
        (3, 2, [1, -2, 1], r"weights\[1\] = -2: must be finite and not negative"),
        (3, 2, [1, 2, float("nan")], r"weights\[2\] = nan: must be finite"),
        (3, 2, [float("inf"), 2, 1], r"weights\[0\] = inf: must be finite"),
    ],
)
def test_refusals(count: int, stages: int, weights: list[float] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split_layers(count, stages, weights)
