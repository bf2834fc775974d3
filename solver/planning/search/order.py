"""Annealing of the order of ops of one split."""

from __future__ import annotations

from ...anneal.annealing import HEAT
from ...anneal.state import State
from ...core.schedule import Schedule
from ...evaluate.timeline import Timeline
from ..workload import Split


class Ordering:
    """The order of a schedule, as it is annealed; see `anneal`.

    Parameters
    ----------
    name
        For people.
    split, timeline
        A valid schedule to start from.
    seed
        Of the moves.
    """

    def __init__(self, name: str, split: Split, timeline: Timeline, seed: int) -> None:
        self.name, self.split = name, split
        self._state = State(timeline.problem, timeline.schedule, "makespan", seed)
        self._heat = HEAT * self._state.mean_ticks

    @property
    def best(self) -> int:
        """Ticks of the best order."""
        return self._state.best

    def run(self, moves: int, hot: float, cold: float, goal: int) -> None:
        """Try moves, from one temperature to another, both as shares of `anneal`'s highest."""
        self._state.run(100 * moves, hot * self._heat, cold * self._heat, goal)

    def restart(self) -> None:
        """Go on from the best order."""
        self._state.restart(self._state.now.best.copy())

    def schedule(self) -> Schedule:
        """The best order."""
        return self._state.best_schedule()
