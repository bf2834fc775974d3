"""One random run: what ops and messages really take, whatever the order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..core.instance import Instance
from ..core.ops import Op
from ..core.precedence import ROW, node, op_nodes
from ..core.schedule import Array, Schedule
from .simulate import op_inputs, op_ticks

_FINE: Final = 256
"""Least mean duration of an op, in parts of a tick, at which rounding is negligible beside the noise."""


def fine_parts(instance: Instance) -> int:
    """Parts of a tick, a power of two, in which the mean op takes at least 256; 1 where its ticks are that fine."""
    mean = float(np.mean([instance.forward, instance.backward_input, instance.backward_weight]))
    return 1 if mean == 0 or mean >= _FINE else int(2 ** math.ceil(math.log2(_FINE / mean)))


@dataclass(frozen=True, slots=True)
class Planned:
    """What the ops of a schedule take without noise: worked out once for all its runs.

    Parameters
    ----------
    nodes
        Node of each op, shape (n,).
    before
        Ops that each op waits for (-1: none), shape (n, 2).
    ticks, lags
        Duration of each op, shape (n,), and message times to it, shape (n, 2), in ticks.
    """

    nodes: Array
    before: Array
    ticks: Array
    lags: Array

    @classmethod
    def of(cls, instance: Instance, schedule: Schedule) -> Planned:
        """Those of a well-formed schedule."""
        before, lags = op_inputs(instance, schedule)
        return cls(op_nodes(schedule), before, op_ticks(instance, schedule), lags)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One random run: made by `Noise.scenario`.

    Parameters
    ----------
    instance
        The problem with its sizes.
    factor
        Actual over planned time of F, of I or B, and of W, shape (3, S, m).
    delay
        Ticks by which the message to each node from each of its predecessors is late, shape (3 * S * m, 2).
    parts
        Times are integers in this part of a tick.
    pause
        Ticks by which F, I or B, and W, take longer, shape (3, S, m); None: nothing.
    """

    instance: Instance
    factor: npt.NDArray[np.float64]
    delay: npt.NDArray[np.float64]
    parts: int
    pause: npt.NDArray[np.float64] | None = None

    @property
    def horizon(self) -> float:
        """Sum of all durations and message times, in parts of a tick: above any makespan."""
        x = self.instance
        backward = np.maximum(x.backward_input, x.backward)
        planned = np.array([x.forward, backward, x.backward_weight], dtype=np.float64)
        planned[2] += x.overhead[:, None] * float(x.unit_ticks.shape[2])
        total = float((planned * self.factor).sum() + self.delay.sum() + x.lag.sum(dtype=np.float64))
        return (total + (0.0 if self.pause is None else float(self.pause.sum()))) * self.parts

    def times(self, planned: Planned) -> tuple[Array, Array]:
        """Duration of every op, shape (n,), and message times to it, shape (n, 2), in parts of a tick."""
        ticks = planned.ticks * self.factor.reshape(-1)[planned.nodes]
        if self.pause is not None:
            ticks += self.pause.reshape(-1)[planned.nodes]
        return _whole(ticks * self.parts), planned.lags * self.parts + _whole(self.delay[planned.nodes] * self.parts)

    def ticks(self, schedule: Schedule) -> Array:
        """Duration of every op of a schedule in parts of a tick, shape (n,)."""
        return self.times(Planned.of(self.instance, schedule))[0]

    def lags(self, schedule: Schedule) -> Array:
        """Message times to every op of a schedule in parts of a tick, shape (n, 2); see `op_inputs`."""
        return self.times(Planned.of(self.instance, schedule))[1]

    def factor_of(self, op: Op) -> float:
        """Actual over planned time of an op, without its pause."""
        return float(self.factor[ROW[op.kind], op.stage, op.microbatch])

    def pause_of(self, op: Op) -> float:
        """Ticks by which an op takes longer, beside its factor, before its message leaves."""
        return 0.0 if self.pause is None else float(self.pause[ROW[op.kind], op.stage, op.microbatch])

    def delay_of(self, op: Op) -> float:
        """Ticks by which the message that an op waits for is late; 0 where none comes from another rank."""
        instance = self.instance
        return float(self.delay[node(op.kind, op.stage, op.microbatch, instance.stages, instance.microbatches)].max())


def _whole(times: npt.NDArray[np.float64]) -> Array:
    return np.ascontiguousarray(np.rint(times).astype(np.int64))
