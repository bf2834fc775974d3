"""The same layers, grouped into the stages of another placement: equal work for methods of different placements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import lcm

from .errors import InputError
from .granularity import total
from .placement import Placement
from .problem import Affine, Cost, Problem


@dataclass(frozen=True, slots=True)
class _Piece:
    """Layers `first` to `last` (half open) of the `count` layers of a stage."""

    stage: int
    first: int
    last: int
    count: int

    def of(self, cost: Cost) -> Cost:
        """What these layers cost of their stage."""
        return _share(cost, self.first, self.last, self.count)

    def units(self, units: tuple[Cost, ...]) -> Iterator[Cost]:
        """Their weight units: units come last layer first, and one that spans layers is cut where they are."""
        low, high = (len(units) * (self.count - layer) for layer in (self.last, self.first))
        for index, unit in enumerate(units):
            start = index * self.count
            begin, end = max(low, start), min(high, start + self.count)
            if begin < end:
                yield _share(unit, begin - start, end - start, self.count)


def regroup(problem: Problem, placement: Placement) -> Problem:
    """The problem with its layers grouped into the stages of another placement of the same ranks.

    Layers keep their order, and every new stage has the same number of them; where the number of stages stays, the
    stages do. A layer has its part of its stage's times and bytes, rounded so that the parts add up: the work of all
    layers together is the same on every placement. That holds for the `fixed` part of a cost, too, as if it were the
    layers' own; what an op takes beside its layers does not grow with the number of stages. A message between two
    layers of a stage is as large as the one that leaves it. A W that is whole stays whole; units stay with their
    layers. Limits and reserve are the ranks', and stay.

    Parameters
    ----------
    problem
        The problem; `layers` says how many layers each stage has.
    placement
        The new placement.

    Raises
    ------
    InputError
        When the layers do not make as many equal stages; the message says which number of layers would.

    Examples
    --------
    >>> from adaptpipe.solver import place
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2, "layers_per_stage": 3}, "batch": {"samples": 2},
    ...     "costs": {"forward": 10, "backward_input": 10, "backward_weight": 5}})
    >>> regroup(problem, place("loop", 2, 3)).forward
    (3, 3, 4, 3, 3, 4)
    """
    if placement.ranks != problem.ranks:
        raise InputError(
            f"pipeline.ranks: the placement has {placement.ranks} ranks, and the problem {problem.ranks}; "
            "layers move between stages, not to other ranks"
        )
    if placement.stage_count == problem.stages:
        return replace(problem, placement=placement)
    pieces = _pieces(problem, placement.stage_count)
    memory, links = problem.memory, problem.links
    whole = all(len(units) == 1 for units in problem.weight_units)

    def each(costs: tuple[Cost, ...]) -> tuple[Cost, ...]:
        return tuple(total(tuple(piece.of(costs[piece.stage]) for piece in stage)) for stage in pieces)

    def integers(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(cost for cost in each(values) if isinstance(cost, int))

    def units(rows: tuple[tuple[Cost, ...], ...]) -> tuple[tuple[Cost, ...], ...]:
        found = (tuple(unit for piece in reversed(s) for unit in piece.units(rows[piece.stage])) for s in pieces)
        return tuple((total(row),) if whole else row for row in found)

    freed = None if memory.retained_units is None else units(memory.retained_units)
    # Rounded by themselves, weights could come out as more than the static bytes that they are part of.
    versions = memory.weights or (0,) * problem.stages
    weights = integers(versions)
    rest = tuple(static - part for static, part in zip(memory.static, versions, strict=True))
    counts = tuple(sum(piece.last - piece.first for piece in stage) for stage in pieces)
    return replace(
        problem,
        placement=placement,
        layers=() if set(counts) == {1} else counts,
        forward=each(problem.forward),
        backward_input=each(problem.backward_input),
        weight_units=units(problem.weight_units),
        backward=None if problem.backward is None else each(problem.backward),
        overhead=tuple(max(problem.overhead[piece.stage] for piece in s) for s in pieces) if problem.overhead else (),
        memory=replace(
            memory,
            activation=each(memory.activation),
            retained=each(memory.retained) if freed is None else tuple(total(row) for row in freed),
            retained_units=freed,
            static=tuple(map(sum, zip(weights, integers(rest), strict=True))),
            weights=weights if memory.weights else (),
        ),
        links=replace(
            links, message=tuple(links.message[stage[-1].stage] for stage in pieces) if links.message else ()
        ),
    )


def _pieces(problem: Problem, stages: int) -> list[list[_Piece]]:
    """For each new stage, the layers it has of each old one."""
    layers = problem.layers or (1,) * problem.stages
    count = sum(layers)
    if count % stages:
        least = lcm(stages, problem.stages) // problem.stages
        raise InputError(
            f"pipeline.layers_per_stage: the {problem.stages} stages have {count} layers in all, which do not make "
            f"{stages} stages of equally many; they would with a multiple of {least} layers in each of the "
            f"{problem.stages}"
        )
    size = count // stages
    starts = [0, *accumulate(layers)]
    return [
        [
            _Piece(s, max(first, begin) - begin, min(first + size, end) - begin, end - begin)
            for s, (begin, end) in enumerate(pairwise(starts))
            if begin < first + size and end > first
        ]
        for first in range(0, count, size)
    ]


def _share(cost: Cost, first: int, last: int, count: int) -> Cost:
    if isinstance(cost, Affine):
        return Affine(*(_part(value, first, last, count) for value in (cost.fixed, cost.per_sample)))
    return _part(cost, first, last, count)


def _part(value: int, first: int, last: int, count: int) -> int:
    """What the steps from `first` to `last` of `count` have of a value; all steps together have it all."""
    return value * last // count - value * first // count
