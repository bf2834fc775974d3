"""A weight gradient as ranges of its units: which there are, and when each of them runs.

Where it has too many units, some are taken together: here, "unit" is one of the pieces that `Prices.points` leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ortools.sat.python import cp_model

from ..core.instance import UNLIMITED

if TYPE_CHECKING:
    from .variables import Point, Variables

Range = tuple[int, int]
"""Half-open range of units."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """The variables of one weight gradient of several units.

    Parameters
    ----------
    start
        For each unit, the start of the range that begins with it, where there is one.
    chosen
        For each range, whether it is an op of the schedule.
    cut
        Whether there is more than one range.
    freed
        For each unit, the moment at which it has freed its bytes, and its value in the hint; none without a limit.
    """

    start: tuple[cp_model.IntVar, ...]
    chosen: dict[Range, cp_model.IntVar]
    cut: cp_model.IntVar
    freed: tuple[Point, ...]

    @property
    def whole(self) -> cp_model.IntVar:
        """Whether it is one op."""
        return self.chosen[0, len(self.start)]


def add_ranges(v: Variables, s: int, j: int) -> Ranges:
    """Each unit is in one range, unless the backward is fused, or not there; each range is an op after I.

    Units free their bytes when their range ends. All ranges of a W that begin with the same unit share a start, as no
    two of them are chosen. That is exact, whatever the number of ranges and their order.
    """
    model, prices, end = v.model, v.prices, v.backward_end[s][j]
    rank, units = int(prices.instance.rank[s, j]), prices.units[s]
    none = [*(literal for literal in (v.fused[s][j],) if literal is not None), *(~there for there in v.here(j))]
    first, begin = ([], []) if v.hint is None else (v.hint.first[s, j].tolist(), v.hint.start[s, j].tolist())
    # In the hint, a range that is not there might start right after its I.
    until = v.backward_finish(s, j)[1]
    values = [at if of == a else until for a, (of, at) in enumerate(zip(first, begin, strict=True))] or [-1] * units
    alike = prices.alike(s, j)
    for a in range(2, units) if alike and first else ():
        values[a] = values[a] if first[a] == a else values[a - 1]
    start = (v.weight[s][j], *(v.moment(f"{s}W{j}[{a}]", values[a]) for a in range(1, units)))

    chosen: dict[Range, cp_model.IntVar] = {}
    for a in range(units):
        for b in range(a + 1, units + 1):
            value = first[a:b] == [a] * (b - a) and (b == units or first[b] == b) if first else None
            chosen[a, b] = v.literal(value)
    for k in range(units):
        model.add_exactly_one(*(literal for (a, b), literal in chosen.items() if a <= k < b), *none)
    cut = v.literal(max(first) > 0 if first else None)
    model.add_exactly_one(chosen[0, units], cut, *none)

    v.done[s][j] = done = v.moment(f"done{s}.{j}", v.done_finish(s, j)[1])
    model.add(done >= end)
    freed: list[Point] = []
    for k in range(units) if prices.room[rank] < UNLIMITED else ():
        at = until
        if first and first[k] >= 0:
            stop = len(first) - first[::-1].index(first[k])
            at = begin[k] + prices.range_ticks(s, j, first[k], stop)
        freed.append((v.moment(f"freed{s}.{j}[{k}]", at), at))
        model.add(freed[k][0] >= end)
        model.add(freed[k][0] <= done)
    for a in range(1, units):
        model.add(start[a] >= (start[a - 1] if alike and a > 1 else end))
    for (a, b), literal in chosen.items():
        ticks, name = prices.range_ticks(s, j, a, b), f"W{s}.{j}[{a}:{b}]"
        v.run(rank, start[a], ticks, literal, name)
        for moment in (done, *(freed[k][0] for k in range(a, b) if freed)):
            model.add(moment >= start[a] + ticks).only_enforce_if(literal)
    return Ranges(start, chosen, cut, tuple(freed))
