"""From the values of a solution to a schedule."""

from __future__ import annotations

from collections.abc import Callable

from ortools.sat.python import cp_model

from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.schedule import Schedule
from ..evaluate.check import check
from ..evaluate.simulate import simulate
from ..evaluate.timeline import Timeline
from .prices import kinds
from .variables import Variables


def schedule_of(v: Variables, value: Callable[[cp_model.IntVar], int]) -> Schedule:
    """Ops of each rank in the order of their starts.

    An op of no duration comes before one that starts at the same moment. Of several of them, those of a micro-batch
    that passes first come first (of several classes, those of the first class), and of one micro-batch F before I
    before W, in the order of the data flow: so nothing waits in a circle, and what frees memory for an F (an op of an
    earlier micro-batch) is before it. The slices of a micro-batch take turns in each of these.
    """
    prices, instance = v.prices, v.prices.instance
    slices = instance.problem.slice_count
    rows: list[list[tuple[tuple[int, int, int, int, int, int, int], Op]]] = [[] for _ in range(instance.ranks)]
    names = _names(v, value)
    for s in range(instance.stages):
        for j in names:
            literal = v.fused[s][j]
            fused = literal is not None and bool(value(literal))
            forward, backward = value(v.forward[s][j]), value(v.backward[s][j])
            ticks = int((prices.backward if fused else prices.backward_input)[s, j])
            place, turn, into = int(prices.place[j]), j % slices, rows[int(instance.rank[s, j])]
            group = int(prices.group[j]) if slices == 1 else 0
            end = forward + int(prices.forward[s, j])
            into.append(((forward, end, place, group, 0, turn, s), Op(s, Kind.F, names[j])))
            kind = Kind.B if fused else Kind.I
            into.append(((backward, backward + ticks, place, group, 1, -turn, -s), Op(s, kind, names[j])))
            for first, stop in _parts(v, s, j, value, fused):
                ranges = v.ranges[s][j]
                weight = value(v.weight[s][j] if ranges is None else ranges.start[first])
                points = prices.points[s]
                cut = (points[first], points[stop]) if stop - first < prices.units[s] else None
                end = weight + prices.range_ticks(s, j, first, stop)
                into.append(((weight, end, place, group, 2, -turn, -s), Op(s, Kind.W, names[j], cut)))
    ops = tuple(tuple(op for _, op in sorted(row, key=lambda item: item[0])) for row in rows)
    sizes = tuple(instance.sizes[j] for j in names)
    return Schedule(instance.problem.placement, sizes, ops, slices)


def _names(v: Variables, value: Callable[[cp_model.IntVar], int]) -> dict[int, int]:
    """The schedule's number of each of the model's micro-batches that are there: in the order in which they come."""
    there = [j for j, literal in enumerate(v.present) if literal is None or value(literal)]
    if len(there) < len(v.present):
        ways = [direction for direction, _ in kinds(v.prices.instance)]
        there.sort(key=lambda j: (ways[j], value(v.forward[0][j]), int(v.prices.place[j])))
    return {j: name for name, j in enumerate(there)}


def _parts(v: Variables, s: int, j: int, value: Callable[[cp_model.IntVar], int], fused: bool) -> list[tuple[int, int]]:
    """Ranges of pieces of W(s, j)."""
    ranges = v.ranges[s][j]
    if ranges is not None:
        return [part for part, literal in ranges.chosen.items() if value(literal)]
    return [] if fused else [(0, v.prices.units[s])]


def timeline_of(problem: Problem, schedule: Schedule) -> Timeline | None:
    """The schedule simulated in ticks; None where it is not valid: a solver is not believed."""
    return None if check(problem, schedule) else simulate(problem, schedule)
