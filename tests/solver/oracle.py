"""The true optimum of tiny problems, by trying every order: no model, no bound, no symmetry of stages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from adaptpipe.solver.core.granularity import ALL, Granularity
from adaptpipe.solver.core.instance import Instance
from adaptpipe.solver.core.problem import Problem
from adaptpipe.solver.core.result import Objective

Row = tuple[tuple[int, ...], tuple[int, ...]]
"""One micro-batch: for each stage what is done (`NOTHING`, `FORWARD`, or `PASSED` + bits of the weight units that are),
and the moment at which the message for its next F or backward is there (`ABSENT`: not sent; 0: none is awaited)."""

State = tuple[tuple[Row, ...], tuple[int, ...], tuple[int, ...]]
"""Micro-batches; for each rank, when it is free and when it began (-1: not yet)."""

NOTHING, FORWARD, PASSED = 0, 1, 2
ABSENT = -1


def optimum(instance: Instance, objective: Objective = "makespan", granularity: Granularity = ALL) -> int | None:
    """Least objective value of any schedule: fused backwards, and weight gradients in any ranges in any order, included
    where `granularity` allows; None where none keeps the limits.

    Every rank's order is built up op by op, each started as early as it can. States with the same work done are
    compared in all that the future depends on: when each rank is free, when it began, and when the inputs of ops to
    come arrive. A state that is no better in anything than another is dropped, and micro-batches of one size and
    direction may change places; nothing else is left out.
    """
    return _Orders(instance, objective, granularity).best()


def optimum_of_any_division(
    problem: Problem, objective: Objective = "makespan", granularity: Granularity = ALL
) -> int | None:
    """Least value over all sequences of allowed sizes that add up to the batch; None where none keeps the limits."""
    found = [optimum(problem.instance(sizes), objective, granularity) for sizes in sequences(problem)]
    return min((value for value in found if value is not None), default=None)


def small(problem: Problem, sizes: tuple[int, ...]) -> bool:
    """Whether every order can be tried in about a second."""
    pieces = sum(2 + len(units) for units in problem.weight_units) * len(sizes)
    alike = (
        not problem.slices
        and len(set(sizes)) == 1
        and problem.placement.directions == 1
        and problem.ranks == problem.stages
    )
    return problem.stages <= 3 and pieces <= (24 if alike else 18)


def sequences(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Sequences of allowed sizes that add up to the batch: all where a micro-batch's number says its direction, else
    one of each multiset, as numbers are names only.

    Examples
    --------
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 1}, "batch": {"samples": 4, "microbatch_sizes": [1, 3]},
    ...     "costs": {"forward": 0, "backward_input": 0, "backward_weight": 0}})
    >>> list(sequences(problem))
    [(1, 1, 1, 1), (1, 3)]
    """
    ordered = problem.placement.directions > 1

    def parts(rest: int, least: int) -> Iterator[tuple[int, ...]]:
        if rest == 0:
            yield ()
        for size in problem.sizes:
            if least <= size <= rest:
                for others in parts(rest - size, 1 if ordered else size):
                    yield (size, *others)

    return parts(problem.samples, 1)


class _Orders:
    def __init__(self, instance: Instance, objective: Objective, granularity: Granularity) -> None:
        self.instance, self.objective, self.granularity = instance, objective, granularity
        problem, count = instance.problem, instance.microbatches
        self.units = [len(units) for units in problem.weight_units]
        names = [
            # No two slices may change places.
            (0, j) if problem.slices else (problem.placement.direction_of(j, count), size)
            for j, size in enumerate(instance.sizes)
        ]
        self.batches = sorted(range(count), key=lambda j: names[j])
        self.classes = [len(list(group)) for _, group in groupby(sorted(names))]
        stages = range(instance.stages)
        self.rank = [[int(instance.rank[s, j]) for s in stages] for j in self.batches]
        lag = instance.lag.reshape(3, instance.stages, count, 2)
        # Message times of F from the stage before, and of the backward from the stage after.
        self.lag = [[(int(lag[0, s, j, 0]), int(lag[1, s, j, 1])) for s in stages] for j in self.batches]

    def best(self) -> int | None:
        stages, ranks = self.instance.stages, self.instance.ranks
        row: Row = ((NOTHING,) * stages, (0,) + (ABSENT,) * (stages - 1))
        first: State = ((row,) * len(self.batches), (0,) * ranks, (-1,) * ranks)
        layers: list[dict[tuple[tuple[int, ...], ...], list[tuple[tuple[int, ...], State]]]]
        amount = sum(2 + units for units in self.units) * len(self.batches)
        layers = [{} for _ in range(amount + 1)]
        layers[0][tuple(codes for codes, _ in first[0])] = [(self._key(first), first)]
        for done in range(amount):
            for group in layers[done].values():
                for _, state in group:
                    for more, later in self._steps(state):
                        front = layers[done + more].setdefault(tuple(codes for codes, _ in later[0]), [])
                        key = self._key(later)
                        if any(all(a <= b for a, b in zip(other[0], key, strict=True)) for other in front):
                            continue
                        front[:] = [o for o in front if not all(a <= b for a, b in zip(key, o[0], strict=True))]
                        front.append((key, later))
            layers[done] = {}
        ends = [state for group in layers[amount].values() for _, state in group]
        if self.objective == "makespan":
            return min((max(free) for _, free, _ in ends), default=None)
        spans = (max(f - b for f, b in zip(free, began, strict=True) if b >= 0) for _, free, began in ends)
        return min(spans, default=None)

    def _key(self, state: State) -> tuple[int, ...]:
        rows, free, began = state
        key = list(free)
        if self.objective == "span":
            key += [-b for b in began]
        for j, (_, arrivals) in enumerate(rows):
            key += [max(free[r], at) for r, at in zip(self.rank[j], arrivals, strict=True)]
        return tuple(key)

    def _steps(self, state: State) -> Iterator[tuple[int, State]]:
        """Each op that may run next: how much of the work it is, and the state after it."""
        rows, instance = state[0], self.instance
        held = self._held(rows)
        for place, (codes, arrivals) in enumerate(rows):
            if place and rows[place - 1] == rows[place] and not self._first_of_class(place):
                continue
            j = self.batches[place]
            for s, code in enumerate(codes):
                units, rank = self.units[s], self.rank[place][s]
                activation, retained = int(instance.activation[s, j]), int(instance.retained[s, j])
                room = int(instance.limit[rank]) - held[rank]
                if (code < PASSED and arrivals[s] == ABSENT) or self._out_of_turn(rows, place, s, code):
                    continue
                if code == NOTHING:
                    if activation <= room:
                        yield 1, self._after(state, place, s, FORWARD, int(instance.forward[s, j]))
                elif code == FORWARD:
                    if retained - activation <= room:
                        yield 1, self._after(state, place, s, PASSED, int(instance.backward_input[s, j]))
                    if self.granularity.fused:
                        full = PASSED + (1 << units) - 1
                        yield 1 + units, self._after(state, place, s, full, int(instance.backward[s, j]))
                else:
                    for a in range(units):
                        for b in range(a + 1, units + 1):
                            bits = (1 << b) - (1 << a)
                            if (code - PASSED) & bits or (not self.granularity.units and b - a < units):
                                continue
                            ticks = int(instance.unit_ticks[s, j, b] - instance.unit_ticks[s, j, a])
                            ticks += int(instance.overhead[s]) * (a > 0)
                            yield b - a, self._after(state, place, s, code + bits, ticks)

    def _out_of_turn(self, rows: tuple[Row, ...], place: int, s: int, code: int) -> bool:
        """Whether another slice of the micro-batch has to go first: in the forward that before, in the backward that
        after."""
        slices = self.instance.problem.slice_count
        if code == NOTHING:
            return place % slices > 0 and rows[place - 1][0][s] < FORWARD
        return code == FORWARD and (place + 1) % slices > 0 and rows[place + 1][0][s] < PASSED

    def _first_of_class(self, place: int) -> bool:
        start = 0
        for count in self.classes:
            if place == start:
                return True
            start += count
        return False

    def _held(self, rows: tuple[Row, ...]) -> list[int]:
        held, instance = [int(value) for value in self.instance.static], self.instance
        for place, (codes, _) in enumerate(rows):
            j = self.batches[place]
            for s, code in enumerate(codes):
                if code == FORWARD:
                    held[self.rank[place][s]] += int(instance.activation[s, j])
                elif code >= PASSED:
                    for k in range(self.units[s]):
                        if not (code - PASSED) >> k & 1:
                            share = int(instance.unit_bytes[s, j, k + 1] - instance.unit_bytes[s, j, k])
                            held[self.rank[place][s]] += share
        return held

    def _after(self, state: State, place: int, s: int, code: int, ticks: int) -> State:
        """The state after an op of stage s that brings a micro-batch to `code`."""
        rows, free, began = state
        codes, arrivals = list(rows[place][0]), list(rows[place][1])
        rank = self.rank[place][s]
        start = max(free[rank], arrivals[s])
        end = start + ticks
        if code == FORWARD:
            arrivals[s] = ABSENT if s + 1 < len(codes) else 0
            if s + 1 < len(codes):
                arrivals[s + 1] = end + self.lag[place][s + 1][0]
        elif codes[s] == FORWARD:
            arrivals[s] = 0
            if s > 0:
                arrivals[s - 1] = end + self.lag[place][s - 1][1]
        codes[s] = code
        moved = [*rows[:place], (tuple(codes), tuple(arrivals)), *rows[place + 1 :]]
        first = 0
        for count in self.classes:
            moved[first : first + count] = sorted(moved[first : first + count])
            first += count
        return (
            tuple(moved),
            tuple(end if r == rank else f for r, f in enumerate(free)),
            tuple(start if r == rank and b < 0 else b for r, b in enumerate(began)),
        )
