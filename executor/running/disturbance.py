"""Noise in a run: ops that take longer and messages that come later, by the scenarios that the simulator draws."""

from __future__ import annotations

from adaptpipe.solver import Kind, Noise, Op
from adaptpipe.solver.core.instance import Instance
from adaptpipe.solver.evaluate.scenario import Scenario

from ..programs.program import Program
from ..programs.route import Route
from .prices import Prices


class Disturbance:
    """The noise of a run; step n meets scenario n of the noise.

    Parameters
    ----------
    noise
        What to draw from; None is silence.
    instance
        The problem with its sizes.
    tick_s
        Seconds of one of its ticks.
    """

    def __init__(self, noise: Noise | None, instance: Instance, tick_s: float) -> None:
        self._noise = None if noise is None or noise.silent else noise
        self._instance, self._tick_s = instance, tick_s
        self._prices = Prices(instance)
        self._scenario: Scenario | None = None

    @property
    def silent(self) -> bool:
        """Whether nothing is disturbed."""
        return self._noise is None

    def begin(self, step: int) -> None:
        """Draw the noise of a step."""
        if self._noise is not None:
            self._scenario = self._noise.scenario(self._instance, step)

    def seconds(self, op: Op, after: Op | None = None) -> float:
        """What an op takes in this step; `after` as in `Prices.ticks`."""
        ticks: float = self._prices.ticks(op, after)
        if self._scenario is not None:
            ticks = ticks * self._scenario.factor_of(op) + self._scenario.pause_of(op)
        return ticks * self._tick_s

    def added_s(self, op: Op) -> float:
        """By how much this exceeds the planned time, at least 0: a real op cannot be made shorter."""
        return max(0.0, self.seconds(op) - self._prices.ticks(op) * self._tick_s)

    def late_s(self, program: Program, rank: int) -> dict[Route, dict[int, float]]:
        """By how much messages to a rank are late in this step, by route and micro-batch."""
        if self._scenario is None:
            return {}
        scenario = self._scenario
        return {
            route: {
                j: scenario.delay_of(Op(route.receiver, Kind.F if route.kind == "F" else Kind.I, j)) * self._tick_s
                for j in order
            }
            for route, order in program.orders.items()
            if route.target == rank
        }
