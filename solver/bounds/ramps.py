"""What memory costs at both ends of a schedule, warm-up and cool-down, and the whole time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..core.instance import UNLIMITED
from ..core.schedule import Array
from .cool_down import Filling
from .knapsack import Pieces, most, most_of_two, table
from .memory_time import emptying, filling_up, held, least_time
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
    def split(self) -> Array:
        """Which of `where` may be split, as indices."""
        return np.flatnonzero(~self.paths.fused_only[self.where])

    @cached_property
    def weights(self) -> Pieces:
        """Every W, by what it adds to its I above the least work of a backward, and what it holds after its I."""
        instance = self.paths.instance
        return self._weights(np.maximum(self.paths.whole - instance.backward_input, 0)[self.where][self.split])

    def _weights(self, ticks: Array) -> Pieces:
        """Weight gradients that take so many ticks each, and hold what they hold.

        Where units may be left over, each is a piece of its own. The ticks are shared among a backward's units as
        their times are; no set of them that is left over is then worth less than their times, less the whole
        difference between W's time and `ticks`.
        """
        instance = self.paths.instance
        if instance.unit_ticks.shape[2] == 2:
            return Pieces(ticks, self.paths.retained[self.where][self.split])
        times, held = (
            np.diff(table, axis=2)[self.where][self.split] for table in (instance.unit_ticks, instance.unit_bytes)
        )
        total = np.maximum(times.sum(axis=1), 1)
        shared = np.ceil(times * (ticks / total)[:, None] - 1e-6).astype(np.int64)
        return Pieces(np.minimum(shared, times).reshape(-1), held.reshape(-1))

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
    def _filling(self) -> tuple[Filling | None, Filling]:
        """What may be left beside the last F's own backward (None: too many kinds to tell apart), and beside the last
        backward."""
        instance, chosen = self.paths.instance, tuple(index[self.split] for index in self.where)
        ticks = instance.backward_weight[chosen]
        saves = instance.backward_input[chosen] + ticks - self.paths.whole[chosen]
        longest = np.concatenate([[0], np.cumsum(np.sort(ticks)[::-1])])
        cheapest = np.concatenate([[0], np.cumsum(np.sort(saves))])
        full, net = self._weights(ticks), self.weights

        def filling(wholes: Array, rooms: Array) -> Filling:
            return Filling(wholes, table(full, rooms), table(net, rooms), longest, cheapest)

        least = int(self.backwards.held.min())
        alone = filling(np.zeros(1, dtype=np.int64), np.array([self.room - least]))
        if not self.backwards.equal:
            return None, alone
        forced = min(len(stages) for _, stages, _ in self.groups)
        most_left = len(self.backwards.ticks)
        if least > 0:
            most_left = max(forced, min(most_left, self.room // least))
        # The last F's own backward is one of them.
        counts = np.arange(forced, most_left + 1)
        sums = np.concatenate([[0], np.cumsum(np.sort(self.backwards.ticks)[::-1])])
        return filling(sums[counts - 1], self.room - counts * least), alone

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
        """Time beyond all work that is left: while an F is, and while none is but a backward.

        Work is counted as the cheaper of fused and split. Where the rank's own end counts, the way out may be filled
        with weight gradients, which means splits and their cost: see `Filling`.
        """
        here = all((tail[REST][cells] >= 0).all() for cells in self.cells)
        forward, backward = self.cool_alike(tail)
        if not here:
            return forward, backward
        first, last = self._filling
        backward = max(backward, self._filled(tail, last, False))
        if first is not None:
            forward = max(forward, self._filled(tail, first, True))
        return max(forward, backward), backward

    def cool_alike(self, tail: Array) -> tuple[int, int]:
        """The same if splitting cost nothing."""
        cool = self.way_out_of_last(tail) - self.last
        if all((tail[REST][cells] >= 0).all() for cells in self.cells):
            cool = max(0, cool)
        return max(self.way_out(tail) - self.late, cool), cool

    def _filled(self, tail: Array, filling: Filling, forward: bool) -> int:
        """Least time beyond work that is left from the end of the last F, or from the start of the last backward.

        Its own backward is split, and its weight gradient may wait while the gradient is on its way; or it is fused,
        and the gradient leaves after it. What it takes more than the least work is extra, too.
        """
        instance, paths, least = self.paths.instance, self.paths, UNLIMITED
        for _, stages, kinds in self.groups:
            s, one = stages[-1 if forward else 0], paths.one_of[kinds]
            before = self.after(s)[PASS, s, kinds] - paths.ticks_of_kind[F, s, kinds] if forward else 0
            beyond = np.zeros(len(kinds), dtype=np.int64)
            if s > 0:
                hop = paths.lag[PASS, s - 1, one, 1] + paths.ticks_of_kind[PASS, s - 1, kinds]
                beyond = np.maximum(beyond, hop + tail[PASS, s - 1, kinds])
            weight = instance.backward_weight[s, one]
            halves, fused = instance.backward_input[s, one] + weight, instance.backward[s, one]
            split = ~paths.fused_only[s, one]
            ways = [(before + beyond, fused - paths.whole[s, one])]
            if split.any():
                apart = before + np.maximum(beyond - weight, 0)
                ways.append((np.where(split, apart, UNLIMITED), halves - np.minimum(fused, halves)))
            for way, more in ways:
                least = min(least, int(more.min()) + filling.extra(int(way.min())))
        return least

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

    @cached_property
    def memory_time(self) -> int:
        """Least bytes x ticks that all that the rank runs holds, see `memory_time.held`."""
        total = 0
        for _, stages, kinds in self.groups:
            for s in stages:
                parts = held(self.paths, s, self.paths.one_of[kinds], self.after(s)[PASS, s, kinds])
                total += int((parts * self.paths.count[kinds]).sum())
        return total

    def area(self) -> int:
        """Least time, from the rank's first start on, within which all has its place in the rank's memory."""
        if self.room >= UNLIMITED or self.room <= 0:
            return 0
        pairs = [(np.repeat(stages, len(kinds)), np.tile(kinds, len(stages))) for _, stages, kinds in self.groups]
        stages, kinds = (np.concatenate(column) for column in zip(*pairs, strict=True))
        sorts = stages, self.paths.one_of[kinds]
        return least_time(self.memory_time, self.room, filling_up(self.paths, *sorts), emptying(self.paths, *sorts))
