"""A schedule as arrays for the annealer, and back."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..core.granularity import ALL, Granularity
from ..core.instance import Instance
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array, Schedule
from ..evaluate.simulate import simulate
from ..greedy.policy import fusing_helps
from . import kernel
from .arrays import Now, Ops, Work
from .clock import fill, value_of
from .pieces import SAVED
from .reorder import BLOCK

LARGEST_TIME = 2**60
"""No longest way in the kernel's ticks may pass this."""

REACH = 6
"""Places that an op moves at most, as a rule."""

GRAIN = 25
"""Moves of a hundred of backwards and weight gradients that change granularity, where there is any to choose. From 8 to
50 none was better than another (linear p8 m24, m64 and p16 m48, V p16 m48, 4 s each)."""

PIECES = 2
"""Pieces of weight gradient that there is room for, as a multiple of the backwards of a rank; more where the schedule
to start from has more."""


class State:
    """A schedule that moves can change, its heads and tails, and the best so far.

    Parameters
    ----------
    problem, schedule
        The schedule to start from; it is valid for the problem and keeps its limits.
    objective
        "makespan" or "span".
    seed
        Of the moves.
    granularity
        What moves may choose beside the order: `fused`, and `units` where stages have several.
    """

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        objective: Objective,
        seed: int,
        granularity: Granularity = ALL,
    ) -> None:
        instance, n = problem.instance(schedule.sizes), len(schedule.table.stage)
        self.schedule, self.span = schedule, objective == "span"
        self.pairs, self.width_of_code = instance.stages * instance.microbatches, instance.unit_ticks.shape[2]
        timeline = simulate(problem, schedule)
        first = schedule.table.offsets
        starts = np.zeros(problem.ranks, dtype=np.int64)
        busy = first[:-1] < first[1:]
        starts[busy] = timeline.start[first[:-1][busy]]
        # The span is a makespan of which each rank's end counts later by what it starts earlier.
        self.offset = int(starts.max()) if self.span else 0
        self.scale = _scale(instance)
        self.units = tuple(len(each) for each in problem.weight_units)
        self.fusing = granularity.fused and (fusing_helps(instance) or bool((schedule.table.kind == Kind.B).any()))
        self.cutting = granularity.units and max(self.units) > 1
        self.grain = GRAIN if self.fusing or self.cutting else 0
        self.ops = self._ops(instance, schedule, starts)
        size = len(self.ops.rank)
        self.now = _nothing(self.ops, instance.microbatches)
        self.counters = np.zeros(kernel.COUNTERS, dtype=np.int64)
        self.random = np.zeros(1, dtype=np.uint64)
        self.reseed(seed)
        self.values = np.zeros(3, dtype=np.int64)
        self.now.best[:] = self._codes(schedule)
        value = self._take(self.now.best)
        self.values[:2] = value
        self.started = self.best
        ticks = self.now.ticks[self.now.live[:n]]
        longest = 2 * (value + int(ticks.max())) + 1
        shortest = int(np.min(ticks[ticks >= self.scale], initial=longest))
        self.width = max(shortest, longest // (4 * n + 16), 1)
        minus = [np.full(length, -1, dtype=np.int64) for length in (longest // self.width + 2, size)]
        chain, mark, new_head, new_tail, log_op, log_head, logged = (np.zeros(size, dtype=np.int64) for _ in range(7))
        old, window = (np.zeros(8 * REACH + BLOCK, dtype=np.int64) for _ in range(2))
        saved = np.zeros((2, SAVED), dtype=np.int64)
        self.work = Work(
            minus[0], chain, minus[1], mark, new_head, new_tail, log_op, log_head, logged, old, window, saved
        )

    def _ops(self, instance: Instance, schedule: Schedule, starts: Array) -> Ops:
        pairs, ranks, scale = self.pairs, instance.ranks, self.scale
        stage, microbatch = (part.reshape(-1) for part in np.indices((instance.stages, instance.microbatches)))
        rank_of_pair = instance.rank.reshape(-1)
        kinds = instance.alike[microbatch]
        alike = np.unique(np.stack([stage, kinds]), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
        units = np.array(self.units, dtype=np.int64)[stage]

        # Slots of every rank, and its pieces: what the schedule has at least.
        pieces = schedule.table.kind == Kind.W
        backs = np.bincount(rank_of_pair, minlength=ranks)
        if self.grain:
            room = np.bincount(
                rank_of_pair, weights=np.minimum(units, PIECES if self.cutting else 1), minlength=ranks
            ).astype(np.int64)
        else:
            room = np.zeros(ranks, dtype=np.int64)
        of_rank = np.repeat(np.arange(ranks), np.diff(schedule.table.offsets))
        room = np.maximum(room, np.bincount(of_rank[pieces], minlength=ranks))
        first, pool_first = (
            np.concatenate([[0], np.cumsum(each)]).astype(np.int64) for each in (2 * backs + room, room)
        )
        n = int(first[-1])
        rank = np.concatenate([rank_of_pair, rank_of_pair, np.repeat(np.arange(ranks), room)]).astype(np.int64)

        source, source_lag, target, target_lag = (np.full(n, fill, dtype=np.int64) for fill in (-1, 0, -1, 0))
        nodes = np.arange(2 * pairs)
        for column in range(2):
            before, lag = instance.before[: 2 * pairs, column], instance.lag[: 2 * pairs, column] * scale
            # What an op of the same stage and micro-batch needs comes first on their rank: see `Now.own`.
            apart = (before >= 0) & (before % pairs != nodes % pairs)
            assert (source[nodes[apart]] < 0).all(), "an op waits for one op of another stage"
            source[nodes[apart]], source_lag[nodes[apart]] = before[apart], lag[apart]
            target[before[apart]], target_lag[before[apart]] = nodes[apart], lag[apart]

        activation, retained = instance.activation.reshape(-1), instance.retained.reshape(-1)
        forward, back, fused = (
            each.reshape(-1) for each in (instance.forward, instance.backward_input, instance.backward)
        )
        return Ops(
            first=first,
            pool_first=pool_first + 2 * pairs,
            rank=rank,
            source=source,
            source_lag=source_lag,
            target=target,
            target_lag=target_lag,
            rest=(self.offset - starts) * scale if self.span else np.zeros_like(starts),
            begin=starts * scale,
            static=instance.static,
            limit=instance.limit,
            alike=alike,
            forward_ticks=np.maximum(forward * scale, 1),
            activation=activation.copy(),
            split_ticks=np.maximum(back * scale, 1),
            split_peak=np.maximum(retained - activation, 0),
            split_net=retained - activation,
            fused_ticks=np.maximum(fused * scale, 1),
            unit_ticks=instance.unit_ticks.reshape(pairs, -1) * scale,
            unit_bytes=instance.unit_bytes.reshape(pairs, -1).copy(),
            overhead=instance.overhead[stage] * scale,
            units=units,
        )

    def _codes(self, schedule: Schedule) -> Array:
        """The schedule as one code for each slot; see `pieces.code`."""
        table, width = schedule.table, self.width_of_code
        q = table.stage * schedule.microbatches + table.microbatch
        weight, ranged = table.kind == Kind.W, table.start >= 0
        units = np.array(self.units, dtype=np.int64)[table.stage]
        low, high = np.where(ranged, table.start, 0), np.where(ranged, table.stop, np.where(weight, units, 0))
        codes = np.full(len(self.ops.rank), -1, dtype=np.int64)
        code = ((q * width + low) * width + high) * 4 + table.kind
        for r, (start, stop) in enumerate(pairwise(table.offsets.tolist())):
            codes[self.ops.first[r] : self.ops.first[r] + stop - start] = code[start:stop]
        return codes

    def _take(self, codes: Array) -> int:
        """Let the schedule be that of some codes; its value, in the kernel's ticks."""
        ops, now, pairs, width = self.ops, self.now, self.pairs, self.width_of_code
        slots = np.flatnonzero(codes >= 0)
        ranks = np.searchsorted(ops.first, slots, side="right") - 1
        rest, kind = np.divmod(codes[slots], 4)
        rest, high = np.divmod(rest, width)
        q, low = np.divmod(rest, width)
        weight, back = kind == Kind.W, (kind == Kind.I) | (kind == Kind.B)
        op = q + pairs * back
        pieces = np.bincount(ranks[weight], minlength=len(ops.static))
        # Pieces of each rank from its first on; the others lie in its pool.
        before = np.cumsum(pieces) - pieces
        op[weight] = (ops.pool_first[:-1] - before)[ranks[weight]] + np.arange(len(op[weight]))
        now.pooled[:] = np.diff(ops.pool_first) - pieces
        for r, (start, stop) in enumerate(pairwise(ops.pool_first.tolist())):
            pool = now.pool[start - 2 * pairs : stop - 2 * pairs]
            pool[: now.pooled[r]] = np.arange(stop - 1, start + pieces[r] - 1, -1)
        now.order[slots], now.slot[op] = op, slots
        now.used[:-1] = np.bincount(ranks, minlength=len(ops.static))
        now.used[-1] = len(op)
        now.live[: len(op)], now.place[op] = op, np.arange(len(op))
        now.parts[:] = np.bincount(q[weight], minlength=pairs)

        now.ticks[:pairs], now.peak[:pairs], now.net[:pairs] = ops.forward_ticks, ops.activation, ops.activation
        fused = now.parts == 0
        now.ticks[pairs : 2 * pairs] = np.where(fused, ops.fused_ticks, ops.split_ticks)
        now.peak[pairs : 2 * pairs] = np.where(fused, 0, ops.split_peak)
        now.net[pairs : 2 * pairs] = np.where(fused, -ops.activation, ops.split_net)
        piece, q, low, high = op[weight], q[weight], low[weight], high[weight]
        now.own[piece], now.low[piece], now.high[piece] = q + pairs, low, high
        ticks = ops.unit_ticks[q, high] - ops.unit_ticks[q, low] + np.where(low > 0, ops.overhead[q], 0)
        now.ticks[piece], now.peak[piece] = np.maximum(ticks, 1), 0
        now.net[piece] = ops.unit_bytes[q, low] - ops.unit_bytes[q, high]
        now.family[piece] = 2 * pairs + (ops.alike[q] * width + low) * width + high
        alive = fill(ops, now, np.empty(len(op), dtype=np.int64))
        assert alive, "a schedule that was simulated has no deadlock"
        return int(value_of(ops, now, self.span))

    def reseed(self, seed: int) -> None:
        """Begin another row of random moves."""
        self.random[0] = (seed * 2654435761 + 88172645463325252) % 2**64 or 1

    def restart(self, codes: Array) -> None:
        """Go on from another schedule of the same problem and sizes, in codes as those of `best`."""
        self.values[kernel.VALUE] = value = self._take(codes)
        if value <= self.values[kernel.BEST]:
            self.values[kernel.BEST] = value
            self.now.best[:] = codes

    def take_best(self, value: int, codes: Array) -> None:
        """Take over a schedule that another found, if it is better than the best; moves go on where they are."""
        if value < self.best:
            self.values[kernel.BEST] = (value + self.offset + 1) * self.scale - 1
            self.now.best[:] = codes

    def run(self, moves: int, hot: float, cold: float, target: int) -> None:
        """Propose moves, from temperature `hot` to `cold` in ticks; stop at a value of `target`."""
        goal = (target + self.offset + 1) * self.scale - 1
        kernel.anneal(
            self.ops, self.now, self.work, self.width, self.span, self.random, self.values, self.counters,
            moves, hot * self.scale, cold * self.scale, REACH, self.grain, self.fusing, self.cutting, goal,
        )  # fmt: skip

    @property
    def value(self) -> int:
        """Objective value of the schedule, in ticks."""
        return int(self.values[kernel.VALUE]) // self.scale - self.offset

    @property
    def best(self) -> int:
        """Objective value of the best schedule, in ticks."""
        return int(self.values[kernel.BEST]) // self.scale - self.offset

    @property
    def mean_ticks(self) -> float:
        """Mean duration of an op of the schedule, in ticks."""
        return float(self.now.ticks[self.now.live[: self.now.used[-1]]].mean()) / self.scale

    def best_schedule(self) -> Schedule:
        """The best schedule."""
        width, microbatches, kinds = self.width_of_code, self.schedule.microbatches, tuple(Kind)
        rows = []
        for start, stop in pairwise(self.ops.first.tolist()):
            row = []
            for code in self.now.best[start:stop].tolist():
                if code < 0:
                    break
                rest, kind = divmod(code, 4)
                rest, high = divmod(rest, width)
                q, low = divmod(rest, width)
                stage, microbatch = divmod(q, microbatches)
                ranged = kind == Kind.W and high - low < self.units[stage]
                row.append(Op(stage, kinds[kind], microbatch, (low, high) if ranged else None))
            rows.append(tuple(row))
        return replace(self.schedule, ops=tuple(rows))


def _scale(instance: Instance) -> int:
    """Factor of all times: an op of no duration takes 1 of the kernel's ticks, lest a circle of waits goes unseen."""
    unit, start = np.diff(instance.unit_ticks, axis=2), instance.overhead[:, None]
    # Beyond a stage's last unit there is none.
    real = np.arange(unit.shape[2]) < np.array([len(row) for row in instance.problem.weight_units])[:, None, None]
    cost = unit + np.where(np.arange(unit.shape[2]) > 0, start[:, :, None], 0)
    backward = np.minimum(instance.backward_input, instance.backward)
    none = int((instance.forward == 0).sum() + (backward == 0).sum() + ((cost == 0) & real).sum())
    longest = np.maximum(instance.backward, instance.backward_input + instance.backward_weight)
    horizon = int((instance.forward + longest).sum() + (cost * real).sum() + instance.lag.sum()) + 1
    return min(none + 1, max(1, LARGEST_TIME // horizon))


def _nothing(ops: Ops, microbatches: int) -> Now:
    """Arrays for a schedule; what they hold of an op whatever the schedule is set."""
    n, pairs, ranks = len(ops.rank), len(ops.alike), len(ops.static)
    arrays = {name: np.zeros(n, dtype=np.int64) for name in Now._fields}
    arrays["used"], arrays["pooled"] = np.zeros(ranks + 1, dtype=np.int64), np.zeros(ranks, dtype=np.int64)
    arrays["pool"], arrays["parts"] = np.zeros(n - 2 * pairs, dtype=np.int64), np.zeros(pairs, dtype=np.int64)
    now, stage = Now(**arrays), np.arange(pairs) // microbatches
    now.own[:pairs], now.own[pairs : 2 * pairs] = -1, np.arange(pairs)
    # F's of a stage keep their order, and so do its backwards.
    now.family[:pairs], now.family[pairs : 2 * pairs] = stage, pairs + stage
    return now
