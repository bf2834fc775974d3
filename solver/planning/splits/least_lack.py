"""How much memory is lacking where it is lacking least: whole layers packed into ranks, exactly, with CP-SAT."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from ..workload import Tie

MOST_TIES = 4
"""Of more ties than these, the rest are taken for granted wherever their layers are: then only a lack is proven."""

SEED, WORKERS = 1, 2

Group = tuple[int, ...]
"""Layers that stay together."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Layers on ranks.

    Parameters
    ----------
    lack
        Bytes that the rank which lacks most holds above its limit; 0 where all are within theirs.
    ranks
        Rank of each layer.
    proven
        Bytes that lack for certain, however layers are packed.
    """

    lack: int
    ranks: tuple[int, ...]
    proven: int


def least_lack(held: Sequence[int], ties: Sequence[Tie], limits: Sequence[int], seconds: float) -> Packing | None:
    """Pack layers into ranks, at least one in each, so that the largest lack is least.

    Parameters
    ----------
    held
        Bytes that each layer takes, shape (L,).
    ties
        What they share: it counts once where both are on one rank. So each set of ties that are together is tried, as
        one item for each group of layers.
    limits
        Bytes that each rank may hold, below 0 where even nothing is too much, shape (p,); no more ranks than layers.
    seconds
        For each set of ties.

    Returns
    -------
    Packing or None
        None where the time was too short for any packing.

    Examples
    --------
    >>> [least_lack([5, size, size, 5], (), [8, 8], 5.0).lack for size in (3, 4)]
    [0, 1]
    >>> least_lack([5, 4, 4, 5], (Tie((0, 3), 2),), [8, 8], 5.0)
    Packing(lack=0, ranks=(0, 1, 1, 0), proven=0)
    """
    found = []
    for groups, weights in _groupings(held, ties):
        if len(groups) < len(limits):
            continue
        one = _packed(weights, limits, seconds)
        if one is None:
            return None
        rank_of = {layer: rank for group, rank in zip(groups, one.ranks, strict=True) for layer in group}
        found.append(Packing(one.lack, tuple(rank_of[layer] for layer in range(len(held))), one.proven))
    best = min(found, key=lambda packing: packing.lack)
    return Packing(best.lack, best.ranks, min(packing.proven for packing in found))


def _groupings(held: Sequence[int], ties: Sequence[Tie]) -> Iterator[tuple[list[Group], list[int]]]:
    """Layers in groups, and what each takes, for every set of ties that are on one rank."""
    least = list(held)
    for tie in ties[MOST_TIES:]:
        least[tie.layers[1]] -= tie.static
    for count in range(len(ties[:MOST_TIES]) + 1):
        for together in combinations(ties[:MOST_TIES], count):
            name = list(range(len(held)))
            for tie in together:
                old, new = name[tie.layers[1]], name[tie.layers[0]]
                name = [new if each == old else each for each in name]
            members, weight = defaultdict(list), Counter[int]()
            for layer, group in enumerate(name):
                members[group].append(layer)
                weight[group] += least[layer]
            for tie in together:
                weight[name[tie.layers[0]]] -= tie.static
            yield [tuple(group) for group in members.values()], [max(0, weight[group]) for group in members]


def _packed(weights: Sequence[int], limits: Sequence[int], seconds: float) -> Packing | None:
    """Items on ranks, those of one weight being alike."""
    from ortools.sat.python import cp_model

    model, ranks = cp_model.CpModel(), range(len(limits))
    kinds = sorted(Counter(weights).items(), reverse=True)
    number = [[model.new_int_var(0, count, "") for _ in ranks] for _, count in kinds]
    lack = model.new_int_var(0, max(1, sum(weights)) - min(0, *limits), "")
    for (_, count), row in zip(kinds, number, strict=True):
        model.add(sum(row) == count)
    for rank in ranks:
        model.add(sum(row[rank] for row in number) >= 1)
        model.add(
            sum(weight * row[rank] for (weight, _), row in zip(kinds, number, strict=True)) - lack <= limits[rank]
        )
    for rank in ranks[1:]:
        if limits[rank] == limits[rank - 1]:  # ranks with one limit are alike
            model.add(number[0][rank - 1] >= number[0][rank])
    model.minimize(lack)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers, solver.parameters.random_seed = WORKERS, SEED
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    left = [[solver.value(each) for each in row] for row in number]
    place = {weight: row for (weight, _), row in zip(kinds, left, strict=True)}
    found = []
    for weight in weights:
        rank = next(rank for rank in ranks if place[weight][rank])
        place[weight][rank] -= 1
        found.append(rank)
    return Packing(solver.value(lack), tuple(found), round(solver.best_objective_bound))
