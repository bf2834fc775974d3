"""What memory costs at both ends of a schedule: warm-up, cool-down, and the memory-time that a rank has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..core.instance import UNLIMITED
from ..core.schedule import Array
from .knapsack import Pieces, most, most_of_two
from .paths import NEVER, PASS, F, Paths


@dataclass(frozen=True)
class Rank:
    """One rank's pieces of work and its paths through the other ranks.

    Parameters
    ----------
    paths
        Of the instance.
    rank
        Which rank.
    """

    paths: Paths
    rank: int

    @cached_property
    def room(self) -> int:
        """Bytes that the rank may hold beyond its static memory."""
        instance = self.paths.instance
        limit = int(instance.limit[self.rank])
        return UNLIMITED if limit >= UNLIMITED else limit - int(instance.static[self.rank])

    @cached_property
    def where(self) -> npt.NDArray[np.bool_]:
        """Which stages and micro-batches the rank runs, shape (S, m)."""
        where: npt.NDArray[np.bool_] = self.paths.instance.rank == self.rank
        return where

    @cached_property
    def groups(self) -> tuple[tuple[Array, Array], ...]:
        """For each direction: the stages that its micro-batches pass on this rank, ascending, and which those are."""
        placement, count = self.paths.instance.problem.placement, self.paths.instance.microbatches
        directions = np.array([placement.direction_of(j, count) for j in range(count)])
        found = []
        for direction in range(placement.directions):
            stages = [stage for way, stage in placement.held[self.rank] if way == direction]
            passing = np.flatnonzero(directions == direction)
            if stages and len(passing):
                found.append((np.array(stages, dtype=np.int64), passing))
        return tuple(found)

    @cached_property
    def forwards(self) -> Pieces:
        """Every F, and what it takes."""
        instance = self.paths.instance
        return Pieces(instance.forward[self.where], instance.activation[self.where])

    @cached_property
    def backwards(self) -> Pieces:
        """Every whole backward, and what its F holds until it starts."""
        return Pieces(self.paths.whole[self.where], self.paths.instance.activation[self.where])

    def weights(self, saving: bool = True) -> Pieces:
        """Every W, and what it holds after its I.

        With `saving`, the time is what a W adds to its I above the least work of a backward; otherwise its own time.
        """
        instance, where = self.paths.instance, self.where
        ticks = instance.backward_weight[where]
        if saving:
            ticks = np.maximum(self.paths.whole - instance.backward_input, 0)[where]
        if instance.unit_ticks.shape[2] == 2:
            return Pieces(ticks, instance.retained[where])
        # Ranges of units may be left over: each unit is a piece of its own, and a part of it counts.
        units = np.diff(instance.unit_ticks, axis=2)[where].reshape(-1)
        held = np.diff(instance.unit_bytes, axis=2)[where].reshape(-1)
        return Pieces(units, held, divisible=True)

    @cached_property
    def work(self) -> int:
        """Least total time of the rank's ops."""
        return int(self.forwards.ticks.sum() + self.backwards.ticks.sum())

    @cached_property
    def all_forwards_fit(self) -> bool:
        """Whether every F may come before the first backward."""
        return int(self.forwards.held.sum()) <= self.room

    @cached_property
    def early(self) -> int:
        """Most time of F's that fit before the first backward: until then nothing is freed."""
        return most(self.forwards, self.room)

    @cached_property
    def late(self) -> int:
        """Most least-work that can be left when the last F has ended.

        Then every piece left holds memory: what F took where the whole backward is left, what I retains where only W
        is. Together with the last F's own they fit the limit.
        """
        forced = min(len(stages) for stages, _ in self.groups)
        return most_of_two(self.backwards, self.weights(), self.room, forced)

    @cached_property
    def last(self) -> int:
        """Most least-work that can be left when the last backward starts: itself, and W's of others."""
        whole, held = self.backwards.ticks, self.backwards.held
        return int(whole.max()) + most(self.weights(), self.room - int(held.min()))

    def _least(self, value: Array, end: int) -> int:
        """Minimum over groups and their micro-batches of a table of shape (S, m), at each group's first (0) or last
        (-1) stage."""
        return min(int(value[stages[end], batches].min()) for stages, batches in self.groups)

    @cached_property
    def first_start(self) -> int:
        """Earliest start of any op of the rank."""
        return self._least(self.paths.head[F], 0)

    @cached_property
    def first_backward(self) -> int:
        """Earliest start of any backward of the rank: of its last stage, as the others wait for that one."""
        return self._least(self.paths.head[PASS], -1)

    def makespan(self) -> int:
        """Warm-up + work + cool-down.

        *Warm-up.* Before the rank's first backward it can only run F's, `early` at most, and the first backward comes
        no sooner than `first_backward`: the difference is idle. So is everything before `first_start`.

        *Cool-down.* Let the rank's last F in order be that of a stage s and micro-batch j; s is the last stage the rank
        has for j. From its end to the end of the schedule it takes the way to I(s, j), that I, and the tail. Of the
        rank's work, at most `late` is left then; the rest, at least work - late, is done. So the makespan is at least
        idle warm-up + (work - late) + that way, where it is longer than `late`. Counted by least work, this holds
        whatever is fused: a W that is left means that its I is done in full, before. The same holds from the start of
        the last backward in order, which is of a first stage, with `last` for `late`.

        *Both.* If the first backward comes before the last F, the two idle times are apart and add up. If not, all F's
        come first, which memory must allow: then the backwards follow the F's. The bound is the lesser of the cases.
        """
        warm = max(self.first_start, self.first_backward - self.early)
        return self._cases(warm, self.way_out, self.way_out_of_last, self.first_start, self.first_backward)

    @cached_property
    def way_out(self) -> int:
        """Least time from the end of the rank's last F to the end of the schedule."""
        paths, ways = self.paths, []
        for stages, batches in self.groups:
            s = stages[-1]
            back = paths.after(F, s)[PASS, s] - paths.ticks[F, s] + paths.ticks[PASS, s] + paths.tail[PASS, s]
            ways.append(int(back[batches].min()))
        return min(ways)

    @cached_property
    def way_out_of_last(self) -> int:
        """Least time from the start of the rank's last backward to the end of the schedule."""
        return self._least(self.paths.ticks[PASS] + self.paths.tail[PASS], 0)

    def _cases(self, warm: int, way: int, way_of_last: int, start: int, backward: int) -> int:
        cool_last = max(0, way_of_last - self.last)
        apart = warm + self.work + max(0, way - self.late, cool_last)
        if not self.all_forwards_fit:
            return apart
        filled = start + int(self.forwards.ticks.sum())
        forwards_first = max(max(filled, backward) + int(self.backwards.ticks.sum()) + cool_last, filled + way)
        return min(apart, forwards_first)

    def span(self) -> int:
        """The same between the rank's first start and its own last end.

        The clock starts with the rank's first op, an F of a first stage: the first backward comes after the way from
        there to I of the last stage. After the last F, the way ends with the backward of the rank's first stage.
        """
        paths = self.paths
        ways, backs = [], []
        for stages, batches in self.groups:
            first, last = stages[0], stages[-1]
            there = paths.after(F, first)[PASS, last]
            down = paths.after(F, last)[PASS, first] - paths.ticks[F, last] + paths.whole[first]
            assert (there > NEVER // 2).all()
            ways.append(int(there[batches].min()))
            backs.append(int(down[batches].min()))
        return self._cases(max(0, min(ways) - self.early), min(backs), 0, 0, min(ways))

    def area(self) -> int:
        """Memory-time: from the rank's first start on, it has `room` bytes at every moment, and every stage and
        micro-batch holds `activation` from the start of its F to its I or B, through it (or the larger `retained`),
        and `retained` while W runs. Time is at least the sum of bytes x time, over `room`."""
        if self.room >= UNLIMITED or self.room <= 0:
            return 0
        paths, instance, total = self.paths, self.paths.instance, 0
        for stages, batches in self.groups:
            for s in stages:
                wait = paths.after(F, s)[PASS, s, batches]
                held, kept = instance.activation[s, batches], instance.retained[s, batches]
                fused = held * instance.backward[s, batches]
                # W's ranges may free a part early; then only their own times count, and for no more than is left.
                weight = instance.backward_weight[s, batches] if instance.unit_ticks.shape[2] == 2 else 0
                split = np.maximum(held, kept) * instance.backward_input[s, batches] + kept * weight
                parts = held.astype(object) * wait + np.minimum(fused.astype(object), split.astype(object))
                total += int(parts.sum())
        return -(-total // self.room)
