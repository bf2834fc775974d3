"""Where a weight gradient is cut: each row in one unit, units of the work asked for, GEMMs rather whole."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adaptpipe.executor.weights.cutting import Border, borders, even_parts

Gemms = list[tuple[int, int]]

GEMMS = st.lists(st.just((0, 0)) | st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=12)
TIMES = st.lists(st.integers(0, 9), min_size=1, max_size=6)


def cut(gemms: Gemms, times: list[int]) -> tuple[Border, ...]:
    return borders([work for work, _ in gemms], [rows for _, rows in gemms], times)


def before(gemms: Gemms, place: Border) -> float:
    """Work that lies before a place."""
    entry, row = place
    part = gemms[entry][0] * row / gemms[entry][1] if row else 0
    return sum(work for work, _ in gemms[:entry]) + part


@given(GEMMS, TIMES)
def test_places_ascend_from_the_first_row_to_the_last(gemms: Gemms, times: list[int]) -> None:
    found = cut(gemms, times)
    assert len(found) == len(times) + 1
    assert (found[0], found[-1]) == ((0, 0), (len(gemms), 0))
    assert list(found) == sorted(found)
    for entry, row in found:
        assert row == 0 or 0 < row < gemms[entry][1]


@given(GEMMS, TIMES)
def test_a_unit_has_its_share_of_the_work(gemms: Gemms, times: list[int]) -> None:
    """As near as a row, or a tenth of the unit, allows."""
    total = sum(work for work, _ in gemms)
    assume(total and sum(times))
    found = cut(gemms, times)
    for unit, (place, reached) in enumerate(zip(found[1:-1], _sums(times), strict=False)):
        target = total * reached / sum(times)
        near = min(times[unit : unit + 2]) / sum(times) * total / 10
        row = max(work / max(rows, 1) for work, rows in gemms)
        assert abs(before(gemms, place) - target) <= max(near, row / 2) + 1e-9


@given(GEMMS, TIMES)
def test_a_gemm_is_cut_only_far_from_its_ends(gemms: Gemms, times: list[int]) -> None:
    total = sum(work for work, _ in gemms)
    assume(total and sum(times))
    for unit, (place, reached) in enumerate(zip(cut(gemms, times)[1:-1], _sums(times), strict=False)):
        if place[1]:
            target = total * reached / sum(times)
            near = min(times[unit : unit + 2]) / sum(times) * total / 10
            for end in (before(gemms, (place[0], 0)), before(gemms, (place[0] + 1, 0))):
                assert abs(end - target) > near - 1e-9


@given(GEMMS, st.integers(1, 6))
def test_units_that_take_no_time_are_alike(gemms: Gemms, count: int) -> None:
    assert cut(gemms, [0] * count) == cut(gemms, [1] * count)


def test_hundreds_of_gemms() -> None:
    found = borders([3] * 400, [8] * 400, [1] * 4)
    assert found == ((0, 0), (100, 0), (200, 0), (300, 0), (400, 0))


@pytest.mark.parametrize(
    ("work", "rows", "times", "found"),
    [
        ([], [], [1, 2], [(0, 0), (0, 0), (0, 0)]),  # nothing waits
        ([90], [3], [1, 1, 1, 1, 1], [(0, 0), (0, 1), (0, 1), (0, 2), (0, 2), (1, 0)]),  # more units than rows
        ([10, 11], [5, 5], [1, 1], [(0, 0), (1, 0), (2, 0)]),  # near
        ([10, 14], [5, 7], [1, 1], [(0, 0), (1, 1), (2, 0)]),  # not near
        ([10, 10], [5, 5], [0, 1, 0, 1, 0], [(0, 0), (0, 0), (1, 0), (1, 0), (2, 0), (2, 0)]),
        ([0, 0], [2, 2], [1, 1], [(0, 0), (1, 0), (2, 0)]),  # a micro-batch without rows
        ([0, 8], [0, 4], [1, 1], [(0, 0), (1, 2), (2, 0)]),
    ],
)
def test_odd_cases(work: list[int], rows: list[int], times: list[int], found: list[Border]) -> None:
    assert list(borders(work, rows, times)) == found


@given(st.lists(st.integers(0, 20), max_size=7), st.integers(1, 5))
def test_parts_are_as_even_as_can_be(work: list[int], count: int) -> None:
    parts = even_parts(work, count)
    ways = [
        [sum(work[a:b]) for a, b in pairwise((0, *cuts, len(work)))]
        for k in range(min(count, max(1, len(work))))
        for cuts in combinations(range(1, len(work)), k)
    ]
    assert sum(part**2 for part in parts) == min(sum(part**2 for part in way) for way in ways)
    assert list(parts) in [[part for part in way if part] for way in ways]


def _sums(times: list[int]) -> list[int]:
    return [sum(times[: unit + 1]) for unit in range(len(times))]
