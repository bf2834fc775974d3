"""Where a weight gradient is cut into units: between its GEMMs where that is near, else between rows of one.

No torch in here. `work` is what each GEMM costs, in any one unit, in the order in which the GEMMs became ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

Border = tuple[int, int]
"""A place between rows: the GEMM, and how many of its rows lie before the place. (e, 0) is the place before GEMM e."""

_NEAR = 10
"""A unit ends with a GEMM that ends within a tenth of the unit: slivers of a GEMM cost a call and gain nothing."""


def borders(work: Sequence[int], rows: Sequence[int], times: Sequence[int]) -> tuple[Border, ...]:
    """Cut GEMMs into consecutive units whose work is in proportion to given times.

    Parameters
    ----------
    work, rows
        For each GEMM, what it costs, and its output rows. Where nothing costs anything, GEMMs count alike.
    times
        What each unit takes, in any one measure. All zero: units are alike.

    Returns
    -------
    tuple of Border
        U + 1 places, ascending: unit u is what lies between places u and u + 1. The first is (0, 0), the last the end,
        so every row of every GEMM is in exactly one unit.

    Examples
    --------
    >>> borders([40, 20, 20], [4, 2, 2], [1, 1])
    ((0, 0), (1, 0), (3, 0))
    >>> borders([80], [4], [1, 1, 2])
    ((0, 0), (0, 1), (0, 2), (1, 0))
    """
    shares = tuple(times) if any(times) else (1,) * len(times)
    costs = tuple(work) if any(work) else (1,) * len(work)
    ends, whole = [0, *accumulate(costs)], sum(shares)
    found: list[Border] = [(0, 0)]
    entry = 0
    for unit, reached in enumerate(accumulate(shares[:-1])):
        target = reached * ends[-1]  # in costs times `whole`, so that all is exact
        while entry < len(costs) and ends[entry + 1] * whole <= target:
            entry += 1
        found.append(max(found[-1], _place(ends, rows, entry, target, whole, min(shares[unit : unit + 2]))))
    return (*found, (len(costs), 0))


def _place(ends: Sequence[int], rows: Sequence[int], entry: int, target: int, whole: int, unit: int) -> Border:
    """The place for a target within a GEMM; `unit` is the smaller of the two units that meet there."""
    if entry == len(rows):
        return entry, 0
    before, after = target - ends[entry] * whole, ends[entry + 1] * whole - target
    if min(before, after) * _NEAR <= unit * ends[-1]:
        return (entry, 0) if before <= after else (entry + 1, 0)
    row = (2 * before * rows[entry] + before + after) // (2 * (before + after))  # the nearest
    return (entry, row) if row < rows[entry] else (entry + 1, 0)


def even_parts(work: Sequence[int], count: int) -> tuple[int, ...]:
    """Join consecutive pieces into at most `count` parts that are as even as can be.

    Returns
    -------
    tuple of int
        Work of each part, none of it 0; empty where there is no work. The sum of its squares is the least there is.

    Examples
    --------
    >>> even_parts([4, 4, 1, 3], 4), even_parts([4, 4, 1, 3], 2), even_parts([0, 0], 4)
    ((4, 4, 1, 3), (4, 8), ())
    >>> even_parts([4, 4, 1, 3], 3)
    (4, 4, 4)
    """
    ends = [0, *accumulate(work)]
    # For each number of pieces, the best way to join them into that many parts: sum of squares, and the parts.
    best: list[tuple[int, tuple[int, ...]]] = [(end * end, (end,)) for end in ends]
    least = best[-1]
    for _ in range(1, min(count, len(work))):
        best = [
            min(
                (best[cut][0] + (ends[at] - ends[cut]) ** 2, (*best[cut][1], ends[at] - ends[cut]))
                for cut in range(at + 1)
            )
            for at in range(len(ends))
        ]
        least = min(least, best[-1])
    return tuple(part for part in least[1] if part)
