"""What memory costs at both ends of a schedule: warm-up, cool-down, and the memory-time that a rank has."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..core.instance import UNLIMITED
from ..core.schedule import Array
from .knapsack import Pieces, most, most_of_two
from .one_machine import one_machine
from .paths import PASS, REST, F, Paths


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
    _after: dict[int, Array] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def room(self) -> int:
        """Bytes that the rank may hold beyond its static memory."""
        instance = self.paths.instance
        limit = int(instance.limit[self.rank])
        return UNLIMITED if limit >= UNLIMITED else limit - int(instance.static[self.rank])

    @cached_property
    def groups(self) -> tuple[tuple[int, Array, Array], ...]:
        """For each direction: its number, the stages that its micro-batches pass on this rank, ascending, and which
        kinds those are."""
        found = []
        for direction in range(self.paths.instance.problem.placement.directions):
            held = self.paths.instance.problem.placement.held[self.rank]
            stages = np.array([stage for way, stage in held if way == direction], dtype=np.int64)
            passing = np.flatnonzero(self.paths.direction == direction)
            if len(stages) and len(passing):
                found.append((direction, stages, passing))
        return tuple(found)

    @cached_property
    def cells(self) -> tuple[tuple[Array, ...], ...]:
        """Indices of the rank's stages and kinds, for each direction."""
        return tuple(np.ix_(stages, kinds) for _, stages, kinds in self.groups)

    @cached_property
    def where(self) -> tuple[Array, Array]:
        """The stages and micro-batches that the rank runs, as a pair of index arrays."""
        rows, columns = [], []
        for _, stages, kinds in self.groups:
            batches = np.flatnonzero(np.isin(self.paths.kind, kinds))
            rows.append(np.repeat(stages, len(batches)))
            columns.append(np.tile(batches, len(stages)))
        empty = np.zeros(0, dtype=np.int64)
        return np.concatenate([empty, *rows]), np.concatenate([empty, *columns])

    @cached_property
    def forwards(self) -> Pieces:
        """Every F, and what it takes."""
        instance = self.paths.instance
        return Pieces(instance.forward[self.where], instance.activation[self.where])

    @cached_property
    def backwards(self) -> Pieces:
        """Every whole backward, and what its F holds until it starts."""
        return Pieces(self.paths.whole[self.where], self.paths.instance.activation[self.where])

    @cached_property
    def weights(self) -> Pieces:
        """Every W, by what it adds to its I above the least work of a backward, and what it holds after its I."""
        instance, where = self.paths.instance, self.where
        split = ~self.paths.fused_only[where]
        if instance.unit_ticks.shape[2] == 2:
            ticks = np.maximum(self.paths.whole - instance.backward_input, 0)[where]
            return Pieces(ticks * split, self.paths.retained[where])
        # Ranges of units may be left over: each unit is a piece of its own, and a part of it counts.
        units = np.diff(instance.unit_ticks, axis=2)[where] * split[:, None]
        held = np.diff(instance.unit_bytes, axis=2)[where] * split[:, None]
        return Pieces(units.reshape(-1), held.reshape(-1), divisible=True)

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
        forced = min(len(stages) for _, stages, _ in self.groups)
        return most_of_two(self.backwards, self.weights, self.room, forced)

    @cached_property
    def last(self) -> int:
        """Most least-work that can be left when the last backward starts: itself, and W's of others."""
        whole, held = self.backwards.ticks, self.backwards.held
        return int(whole.max()) + most(self.weights, self.room - int(held.min()))

    @cached_property
    def first_start(self) -> int:
        """Earliest start of any op of the rank."""
        head = self.paths.head_of_kind[F]
        return min(int(head[stages[0], kinds].min()) for _, stages, kinds in self.groups)

    @cached_property
    def first_backward(self) -> int:
        """Earliest start of any backward of the rank: of its last stage, as the others wait for that one."""
        head = self.paths.head_of_kind[PASS]
        return min(int(head[stages[-1], kinds].min()) for _, stages, kinds in self.groups)

    def makespan(self) -> int:
        """Warm-up + work + cool-down, and head + work + tail.

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
        tail = self.paths.tail_of_kind(np.zeros_like(self.paths.ticks_of_kind))
        return self.until(self.paths.head_of_kind, tail, self.first_start, self.first_backward)

    def until(self, head: Array, tail: Array, start: int, backward: int) -> int:
        """The same for any clock: the least time at which all is done that tails lead to.

        Parameters
        ----------
        head, tail
            Of every node, on that clock, shape (3, S, K). A tail of 0 or more of the rank's weight gradients says that
            the rank's own end counts.
        start, backward
            Earliest start of the rank's first op, and of its first backward.
        """
        where = self.cells
        ticks, count = self.paths.ticks_of_kind, np.broadcast_to(self.paths.count, self.paths.ticks_of_kind.shape[1:])
        columns = (
            np.concatenate([part[row][cells].reshape(-1) for row in (F, PASS, REST) for cells in where])
            for part in (head, ticks, tail, np.broadcast_to(count, ticks.shape))
        )
        forwards_left, cool = self.cool(tail)
        way = self.way_out(tail)
        apart = max(start, backward - self.early) + self.work + forwards_left
        if self.all_forwards_fit:
            filled = start + int(self.forwards.ticks.sum())
            forwards_first = max(max(filled, backward) + int(self.backwards.ticks.sum()) + cool, filled + way)
            apart = min(apart, forwards_first)
        return max(apart, one_machine(*columns))

    def cool(self, tail: Array) -> tuple[int, int]:
        """Time beyond all work that is left: while an F is, and while none is but a backward."""
        cool = self.way_out_of_last(tail) - self.last
        if all((tail[REST][cells] >= 0).all() for cells in self.cells):
            cool = max(0, cool)
        return max(self.way_out(tail) - self.late, cool), cool

    def way_out(self, tail: Array) -> int:
        """Least time from the end of the rank's last F to the end of what tails lead to."""
        ways = []
        for _, stages, kinds in self.groups:
            s = stages[-1]
            back = self.after(s)[PASS, s] - self.paths.ticks_of_kind[F, s]
            ways.append(int((back + self.paths.ticks_of_kind[PASS, s] + tail[PASS, s])[kinds].min()))
        return min(ways)

    def way_out_of_last(self, tail: Array) -> int:
        """Least time from the start of the rank's last backward to the end of what tails lead to."""
        ticks = self.paths.ticks_of_kind
        return min(int((ticks[PASS] + tail[PASS])[s[0], kinds].min()) for _, s, kinds in self.groups)

    def after(self, stage: int) -> Array:
        """Paths from an F of one of the rank's stages to every node, shape (3, S, K)."""
        if stage not in self._after:
            self._after[stage] = self.paths.after_of_kind(F, stage)
        return self._after[stage]

    def area(self) -> int:
        """Memory-time: from the rank's first start on, it has `room` bytes at every moment, and every stage and
        micro-batch holds `activation` from the start of its F to its I or B, through it (or the larger `retained`),
        and `retained` while W runs. Time is at least the sum of bytes x time, over `room`."""
        if self.room >= UNLIMITED or self.room <= 0:
            return 0
        paths, instance, total = self.paths, self.paths.instance, 0
        for _, stages, kinds in self.groups:
            one = paths.one_of[kinds]
            for s in stages:
                wait = self.after(s)[PASS, s, kinds]
                held, kept = instance.activation[s, one], instance.retained[s, one]
                fused = held.astype(object) * instance.backward[s, one]
                # W's ranges may free a part early; then only their own times count, and for no more than is left.
                weight = instance.backward_weight[s, one] if instance.unit_ticks.shape[2] == 2 else 0
                split = np.maximum(held, kept).astype(object) * instance.backward_input[s, one] + kept * weight
                least = np.where(paths.fused_only[s, one], fused, np.minimum(fused, split))
                parts = held.astype(object) * wait + least
                total += int((parts * paths.count[kinds]).sum())
        return -(-total // self.room)
