"""Ramps: sums, allowed sizes, and the shape."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver.sizes.ramp import Ramp, neighbours, ramps

allowed_sizes = st.sets(st.integers(1, 9), min_size=1).map(lambda sizes: tuple(sorted(sizes)))


@given(st.data(), allowed_sizes, st.integers(1, 60))
def test_a_ramp_grows_stays_and_shrinks(data: st.DataObject, sizes: tuple[int, ...], samples: int) -> None:
    size = data.draw(st.sampled_from(sizes))
    ends = st.sampled_from([each for each in sizes if each <= size])
    lengths = st.integers(0, 8)
    shape = Ramp(
        size, data.draw(lengths), data.draw(lengths), data.draw(ends), data.draw(ends), data.draw(st.booleans())
    )
    found = shape.divide(samples, sizes)
    if found is None:  # the sizes do not add up, or the ways up and down hold more than the batch
        assert 1 not in sizes or samples < sum((shape.first, shape.last, size)) + 16 * size
        return
    assert sum(found) == samples
    assert set(found) <= set(sizes)
    assert max(found) <= shape.size
    top = found.index(max(found))
    assert list(found[:top]) == sorted(found[:top])
    assert list(found[top:]) == sorted(found[top:], reverse=True)


def test_what_is_left_over_goes_up_or_down() -> None:
    assert Ramp(4, 1, 1, 1, 1, early=True).divide(13, (1, 2, 3, 4)) == (1, 3, 4, 4, 1)
    assert Ramp(4, 1, 1, 1, 1, early=False).divide(13, (1, 2, 3, 4)) == (1, 4, 4, 3, 1)


def test_some_of_the_largest_are_given_up_where_the_rest_is_no_sum() -> None:
    # 14 = 2 * 5 + 4, and 4 is no sum of 3's; 14 = 5 + 9 is.
    assert Ramp(5, 0, 0).divide(14, (3, 5)) == (5, 3, 3, 3)


@given(allowed_sizes, st.integers(1, 60), st.integers(1, 8), st.integers(1, 9))
def test_no_division_comes_twice(sizes: tuple[int, ...], samples: int, length: int, likely: int) -> None:
    found = [shape.divide(samples, sizes) for shape in islice(ramps(samples, sizes, length, likely), 300)]
    assert None not in found
    assert len(found) == len(set(found))


def test_the_likely_size_comes_first() -> None:
    shapes = list(ramps(96, tuple(range(1, 9)), 8, 4))
    assert shapes[0].size == 4
    assert {shape.size for shape in shapes} == {2, 3, 4, 5, 6}


@given(allowed_sizes, st.data())
def test_neighbours_differ_and_are_allowed(sizes: tuple[int, ...], data: st.DataObject) -> None:
    size = data.draw(st.sampled_from(sizes))
    shape = Ramp(size, data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5)), sizes[0], sizes[0])
    for each in neighbours(shape, sizes):
        assert each != shape
        assert {each.size, each.first, each.last} <= set(sizes)
        assert min(each.up, each.down) >= 0
