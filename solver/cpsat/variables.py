"""The model's variables: starts, ends, the choice to fuse, and literals that say "this starts after that ends"."""

from __future__ import annotations

import time

import numpy as np
from ortools.sat.python import cp_model, cp_model_helper

from .hint import HintTimes
from .prices import Prices
from .units import Ranges, add_ranges

End = cp_model.LinearExpr
Literal = cp_model_helper.Literal
Point = tuple[End, int]
"""A moment in the model, and its value in the hint (-1: no hint)."""


class OutOfTime(Exception):
    """The deadline came while the model was built."""


class Variables:
    """Decision variables.

    Parameters
    ----------
    model, prices
        Where they go and what they cost.
    horizon
        Latest end, in steps.
    hint
        A known solution: every variable made here is given its value.
    fifo
        Whether micro-batches of a class pass each stage in order.
    deadline
        Moment (`time.monotonic`) after which building stops.

    Attributes
    ----------
    forward, backward, weight
        Start of F, of I or B, and of W, [s][j].
    present
        Literal, [j]: the micro-batch is there; None where all are.
    fused
        Literal, [s][j]: the backward is fused; None where it never is.
    ranges
        The ranges of W, [s][j]; None where it is never cut.
    backward_end, done
        End of I or B; moment at which the whole backward is done, [s][j].
    intervals
        For each rank, its intervals.
    objective
        The value that is minimised.
    """

    def __init__(
        self, model: cp_model.CpModel, prices: Prices, horizon: int, hint: HintTimes | None, fifo: bool, deadline: float
    ) -> None:
        self.model, self.prices, self.horizon, self.hint, self.fifo = model, prices, horizon, hint, fifo
        self.deadline, self._made = deadline, 0
        self._classes = [
            sorted(np.flatnonzero(prices.group == g).tolist(), key=lambda j: int(prices.place[j]))
            for g in range(int(prices.group.max()) + 1)
        ]
        instance = prices.instance
        stages, count = range(instance.stages), range(instance.microbatches)
        self.present = [self._presence(j) for j in count]
        self.forward = [[self.moment(f"{s}F{j}", self._value("forward", s, j)) for j in count] for s in stages]
        self.backward = [[self.moment(f"{s}I{j}", self._value("backward", s, j)) for j in count] for s in stages]
        self.weight = [[self.moment(f"{s}W{j}", self._value("weight", s, j)) for j in count] for s in stages]
        self.fused: list[list[cp_model.IntVar | None]] = [[None] * len(count) for _ in stages]
        self._whole: list[list[Literal | bool]] = [[True] * len(count) for _ in stages]
        self.ranges: list[list[Ranges | None]] = [[None] * len(count) for _ in stages]
        self.backward_end: list[list[End]] = [list(row) for row in self.backward]
        self.done: list[list[End]] = [list(row) for row in self.weight]
        self.intervals: list[list[cp_model.IntervalVar]] = [[] for _ in range(instance.ranks)]
        for s in stages:
            for j in count:
                self._ops(s, j)
        self.objective = model.new_int_var(0, horizon, "objective")

    def _ops(self, s: int, j: int) -> None:
        prices, model, name = self.prices, self.model, f"{s}.{j}"
        rank = int(prices.instance.rank[s, j])
        forward, short, weight, whole = (
            int(row[s, j]) for row in (prices.forward, prices.backward_input, prices.backward_weight, prices.backward)
        )
        here = self.here(j)
        runs = here[0] if here else True
        self.run(rank, self.forward[s][j], forward, runs, f"F{name}")
        if prices.fusible[s, j]:
            fused = self.literal(None if self.hint is None else bool(self.hint.fused[s, j]))
            end = self.moment(f"endI{name}", self.backward_finish(s, j)[1])
            size = short + (whole - short) * fused
            self.run(rank, self.backward[s][j], size, runs, f"I{name}", end)
            self.fused[s][j], self.backward_end[s][j] = fused, end
        else:
            self.run(rank, self.backward[s][j], short, runs, f"I{name}")
            self.backward_end[s][j] = self.backward[s][j] + short
        if prices.units[s] > 1:
            self.ranges[s][j] = ranges = add_ranges(self, s, j)
            self._whole[s][j] = ranges.whole
            return
        choice = self.fused[s][j]
        self._whole[s][j] = split = self._split(s, j)
        self.run(rank, self.weight[s][j], weight, split, f"W{name}")
        if choice is None:
            self.done[s][j] = self.weight[s][j] + weight
            return
        done = self.moment(f"done{name}", self.done_finish(s, j)[1])
        model.add(done >= self.backward_end[s][j])
        model.add(done >= self.weight[s][j] + weight).only_enforce_if(split)
        self.done[s][j] = done

    def run(
        self,
        rank: int,
        start: cp_model.IntVar,
        size: End | int,
        runs: Literal | bool,
        name: str,
        end: End | None = None,
    ) -> None:
        """A rank runs an op, where a literal says so; an op of variable size has an end of its own."""
        ends = start + size if end is None else end
        if isinstance(runs, bool):
            interval = self.model.new_interval_var(start, size, ends, name)
        else:
            interval = self.model.new_optional_interval_var(start, size, ends, runs, name)
        self.intervals[rank].append(interval)

    def _split(self, s: int, j: int) -> Literal | bool:
        """Whether there is a W(s, j), which is never cut."""
        fused, here = self.fused[s][j], self.here(j)
        if fused is None:
            return here[0] if here else True
        if not here:
            return ~fused
        split = self.literal(None if self.hint is None else bool(self.hint.present[j] and not self.hint.fused[s, j]))
        self.model.add_exactly_one(split, fused, ~here[0])
        return split

    def _presence(self, j: int) -> cp_model.IntVar | None:
        """A literal where it is to be chosen which micro-batches there are."""
        if not self.prices.samples:
            return None
        return self.literal(None if self.hint is None else bool(self.hint.present[j]))

    def here(self, *microbatches: int) -> list[cp_model.IntVar]:
        """Literals that are true where all of these micro-batches are there: none where all always are."""
        return [literal for literal in (self.present[j] for j in dict.fromkeys(microbatches)) if literal is not None]

    @property
    def decisions(self) -> list[cp_model.IntVar]:
        """The variables that say what the schedule is."""
        found = [variable for row in (*self.forward, *self.backward, *self.weight) for variable in row]
        found += [literal for row in (self.present, *self.fused) for literal in row if literal is not None]
        for ranges in (each for row in self.ranges for each in row if each is not None):
            found += [*ranges.start, *ranges.chosen.values()]
        return found

    def whole(self, s: int, j: int) -> Literal | bool:
        """Whether W(s, j) is one op, neither fused nor cut."""
        return self._whole[s][j]

    def all_whole(self, s: int) -> bool:
        """Whether every W of a stage is one op, so that W's, too, pass in order."""
        return self.prices.units[s] == 1 and not bool(self.prices.fusible[s].any())

    def _value(self, row: str, s: int, j: int) -> int:
        return -1 if self.hint is None else int(getattr(self.hint, row)[s, j])

    def moment(self, name: str, value: int = -1) -> cp_model.IntVar:
        """A moment within the horizon, with its value in the hint (-1: none)."""
        self._count()
        variable = self.model.new_int_var(0, self.horizon, name)
        if value >= 0:
            self.model.add_hint(variable, value)
        return variable

    def literal(self, value: bool | None) -> cp_model.IntVar:
        """A literal, with its value in the hint (None: none)."""
        self._count()
        literal = self.model.new_bool_var("")
        if value is not None:
            self.model.add_hint(literal, value)
        return literal

    def after(self, start: Point, end: Point, *microbatches: int) -> cp_model.IntVar:
        """A literal that, when true, makes `start` come no sooner than `end`; false unless the micro-batches, whose
        ops these are, are there."""
        value = None
        if self.hint is not None:
            value = start[1] >= end[1] and bool(self.hint.present[list(microbatches)].all())
        literal = self.literal(value)
        self.model.add(start[0] >= end[0]).only_enforce_if(literal)
        for there in self.here(*microbatches):
            self.model.add_implication(literal, there)
        return literal

    def _count(self) -> None:
        self._made += 1
        if self._made % 512 == 0 and time.monotonic() > self.deadline:
            raise OutOfTime

    def forward_start(self, s: int, j: int) -> Point:
        """Start of F(s, j)."""
        return self.forward[s][j], self._value("forward", s, j)

    def forward_finish(self, s: int, j: int) -> Point:
        """End of F(s, j)."""
        ticks = int(self.prices.forward[s, j])
        return self.forward[s][j] + ticks, self._shift(self._value("forward", s, j), ticks)

    def backward_start(self, s: int, j: int) -> Point:
        """Start of I or B(s, j)."""
        return self.backward[s][j], self._value("backward", s, j)

    def backward_finish(self, s: int, j: int) -> Point:
        """End of I or B(s, j)."""
        return self.backward_end[s][j], self._shift(self._value("backward", s, j), self._backward_ticks(s, j))

    def done_finish(self, s: int, j: int) -> Point:
        """Moment at which the whole backward of (s, j) is done."""
        if self.hint is None:
            return self.done[s][j], -1
        return self.done[s][j], int(self.hint.done[s, j])

    def _backward_ticks(self, s: int, j: int) -> int:
        fused = self.hint is not None and bool(self.hint.fused[s, j])
        return int((self.prices.backward if fused else self.prices.backward_input)[s, j])

    @staticmethod
    def _shift(value: int, ticks: int) -> int:
        return -1 if value < 0 else value + ticks

    def classes(self) -> list[list[int]]:
        """The micro-batches of each class, in order."""
        return self._classes
