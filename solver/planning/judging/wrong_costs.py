"""Costs that turn out otherwise than planned: by layer, by rank, by kind of op, by micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from ...core.ops import Kind
from ...core.problem import Problem
from ...core.schedule import Array, Schedule
from ...evaluate.scenario import Scenario, fine_parts
from ..workload import Prices, Split, Workload

Source = Literal["layer", "rank", "kind", "micro-batch", "all"]
"""What an error belongs to: all ops of a layer, of a rank, of a kind (F, I or W), of a micro-batch; or all four, each
with half of the relative error, so that an op's time in all has it once."""

SOURCES: Final[tuple[Source, ...]] = get_args(Source)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Draw:
    """Standard normal numbers of one draw. They belong to the workload: all its plans meet the same errors.

    Attributes
    ----------
    layer, rank, kind, sample
        One for each layer, rank, kind (F, I, W), and sample of the batch.
    uneven
        One for each sample in each layer whose times depend on what is in a micro-batch, shape (layers of these, N).
    """

    layer: Floats
    rank: Floats
    kind: Floats
    sample: Floats
    uneven: Floats

    @classmethod
    def of(cls, workload: Workload, seed: int, number: int) -> Draw:
        """One of a sequence: fixed by seed, number and the shape of the workload."""
        random = np.random.default_rng([seed, number])
        layer, rank, kind, sample = (
            random.standard_normal(n) for n in (workload.layers, workload.ranks, 3, workload.samples)
        )
        uneven = sum(part.uneven > 0 for part in workload.profile.parts)
        return cls(layer, rank, kind, sample, random.standard_normal((uneven, workload.samples)))


class WrongCosts:
    """What the ops of one schedule really take, draw by draw.

    Every factor is lognormal with mean 1, so that a run costs the planned work in the mean. A layer's factor scales its
    share of its stage's ops; what an op takes beside its layers has no error of its own. A micro-batch's factor comes
    from its samples' numbers, in sum and scaled to have the same relative error whatever its size: two divisions of the
    batch meet errors as alike as they can be. A layer that is uneven in itself (`Part.uneven`) is so beside any error,
    with numbers of its own for every micro-batch.

    Parameters
    ----------
    workload
        Prices of the layers.
    split, problem, schedule
        A plan of it.
    """

    def __init__(self, workload: Workload, split: Split, problem: Problem, schedule: Schedule) -> None:
        self._instance = problem.instance(schedule.sizes)
        self._parts = fine_parts(self._instance)
        self._starts = np.array([part.start for part in split])
        self._rank = self._instance.rank[:, 0]
        self._ends = np.cumsum(schedule.sizes)
        sizes = sorted(set(schedule.sizes))
        self._sizes = np.array(schedule.sizes)
        self._which = np.searchsorted(sizes, self._sizes)
        self._prices = [workload.prices(size) for size in sizes]
        self._uneven = np.array([part.uneven for part in workload.profile.parts])
        self._shares = [self._shares_of(prices, np.flatnonzero(self._uneven)) for prices in self._prices]
        self._delay = np.zeros((len(self._instance.before), 2))
        table = schedule.table
        self._fused = np.zeros((len(split), schedule.microbatches), dtype=np.bool_)
        backward = table.kind == Kind.B
        self._fused[table.stage[backward], table.microbatch[backward]] = True

    def scenario(self, draw: Draw, source: Source, error: float) -> Scenario:
        """The run of a draw, where times have a relative error of a source; in the plan's own parts of a tick."""
        share = error / 2 if source == "all" else error

        def factors(name: Source, normal: Floats) -> Floats:
            sigma = share if source in (name, "all") else 0.0
            return np.exp(sigma * normal - sigma**2 / 2)

        layer, rank, kind = factors("layer", draw.layer), factors("rank", draw.rank), factors("kind", draw.kind)
        microbatch = factors("micro-batch", self._of_microbatches(draw.sample))
        by_size = np.stack([self._stages(prices, layer, kind) for prices in self._prices])
        rows = by_size[self._which].transpose(1, 2, 0) * rank[self._rank][:, None] * microbatch
        if error and len(draw.uneven):
            rows *= self._unevenness(draw)
        rows[1] = np.where(self._fused, rows[3], rows[1])
        return Scenario(self._instance, np.ascontiguousarray(rows[:3]), self._delay, self._parts)

    def _of_microbatches(self, samples: Floats) -> Floats:
        """Standard normal numbers of micro-batches from those of their samples, the last dimension."""
        sums = np.cumsum(samples, axis=-1)[..., self._ends - 1]
        found: Floats = np.diff(sums, axis=-1, prepend=0.0) / np.sqrt(self._sizes)
        return found

    def _unevenness(self, draw: Draw) -> Floats:
        """Actual over planned time of every stage and micro-batch by what is in it, shape (S, m)."""
        sigma = self._uneven[self._uneven > 0][:, None]
        off = np.exp(sigma * self._of_microbatches(draw.uneven) - sigma**2 / 2) - 1
        by_size = np.stack([shares @ off for shares in self._shares])
        found: Floats = 1 + np.take_along_axis(by_size, self._which[None, None, :], axis=0)[0]
        return found

    def _shares_of(self, prices: Prices, layers: Array) -> Floats:
        """Shares that layers have in the time of each stage, shape (S, layers)."""
        took = (prices.forward + prices.backward_input + prices.backward_weight).astype(np.float64)
        stage = np.searchsorted(self._starts, layers, side="right") - 1
        whole = np.add.reduceat(took, self._starts) + 3 * prices.op
        shares = np.zeros((len(self._starts), len(layers)))
        shares[stage, np.arange(len(layers))] = took[layers] / whole[stage]
        return shares

    def _stages(self, prices: Prices, layer: Floats, kind: Floats) -> Floats:
        """Actual over planned time of F, I, W and B of each stage at one size, shape (4, S)."""
        forward, split, weight = prices.forward, prices.backward_input, prices.backward_weight
        halves = split * kind[1] + weight * kind[2]
        mean = np.divide(halves, split + weight, out=np.ones(len(layer)), where=split + weight > 0)
        planned = np.stack([forward, split, weight, prices.backward]).astype(np.float64)
        actual = planned * np.stack([np.full(len(layer), each) for each in kind] + [mean]) * layer
        sums = [np.add.reduceat(each, self._starts, axis=1) + prices.op for each in (actual, planned)]
        ratio: Floats = np.divide(sums[0], sums[1], out=np.ones_like(sums[0]), where=sums[1] > 0)
        return ratio
