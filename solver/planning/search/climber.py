"""A search that goes on from one start: a point, its value, and the moves that it tries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ...core.granularity import ALL
from ...core.placement import explicit
from ...core.schedule import Schedule
from ...greedy import Search
from ...greedy.kernel import FAR
from ...greedy.policy import Policy
from ..workload import Split, Workload, split_of
from . import kernel
from .point import Point, Room, room_for
from .policies import policies
from .table import Table
from .variants import variants

HEAT = 0.006
"""Highest temperature, as a share of the value: splits over unequal ranks must get some thousandths worse at first."""

SPLITS = 0.4
"""Share of moves that change the split."""

TRADES, TRADES_OF_LINKS = 0.16, 0.02
"""Of those, the share that let two ranks change places; where nothing but their links differs. Then they stand well as
they are, mostly: neighbours in one node."""

COLD = 0.005
"""Temperature at which a split is balanced that nearly is."""

FEW_MOVES = 200
"""Moves that balance a split which was, before its placement was changed."""


@dataclass(frozen=True)
class Start:
    """Where a search begins.

    Parameters
    ----------
    name
        For people: the family, and what the split is like.
    division
        Samples of each micro-batch.
    point
        Split, placement, policy.
    heat
        Temperature at which the split is balanced first, as a share of the load; 0: it stays as it is.
    """

    name: str
    division: tuple[int, ...]
    point: Point
    heat: float


class Climber:
    """Changes of one point that get it a shorter schedule, by the greedy scheduler.

    Parameters
    ----------
    workload, table
        What is planned, and its prices for the start's division.
    start
        Where to begin.
    fusing
        Whether a fused backward may help anywhere.
    bound
        Ticks that no plan of the start's division gets below.
    seed
        Of the moves.
    """

    def __init__(self, workload: Workload, table: Table, start: Start, fusing: bool, bound: int, seed: int) -> None:
        self.workload, self.table, self.start, self.fusing = workload, table, start, fusing
        self.bound, self._seed = bound, seed
        cluster = workload.cluster
        alike = len(set(cluster.speed)) == len(set(cluster.memory)) == 1
        self.trading = 0.0 if cluster.uniform else TRADES_OF_LINKS if alike else TRADES
        self._now, self._trial, self._best = (start.point.copy() for _ in range(3))
        self._room: Room = room_for(len(start.point.row), len(start.division), workload.ranks)
        self._values = np.array([FAR, FAR, 0], dtype=np.int64)
        self._random = np.array([(seed * 2654435761 + 88172645463325252) % 2**64 or 1], dtype=np.uint64)

    @property
    def best(self) -> int:
        """Ticks of the best point; `FAR` where none fits yet."""
        return int(self._values[kernel.BEST])

    @property
    def tried(self) -> int:
        """Moves judged so far."""
        return int(self._values[kernel.TRIED])

    def level(self, moves: int, heat: float) -> None:
        """Move layers, and ranks where they differ, until each could be done early, by its load and when it can start,
        and has room.

        `heat` is the temperature to begin with, as a share of the load.
        """
        kernel.level(
            self.table, self._now, self._trial, self._best, self._room, self._random, moves, heat, self.trading
        )

    def policies(self) -> list[Point]:
        """Policies to begin with, likely winners first."""
        placement = explicit(self.workload.ranks, self.start.point.row.tolist())
        return policies(placement, len(self.start.division))

    def choose(self, policies: Iterable[Point]) -> None:
        """Take the best of some policies for the split at hand, if it is better than the best so far."""
        for policy in policies:
            policy.row[:], policy.bounds[:] = self._now.row, self._now.bounds
            value = kernel.value_of(self.table, policy, self._room, self.best)
            if value < self.best:
                self._values[: kernel.BEST + 1] = value
                kernel.take(self._best, policy)
        if self.best < FAR:
            kernel.take(self._now, self._best)

    def run(self, moves: int, hot: float, cold: float, goal: int = -1, splits: float = SPLITS) -> None:
        """Try moves, from one temperature to another, both as shares of `HEAT`."""
        scale = HEAT * self.best if self.best < FAR else 0.0
        kernel.climb(
            self.table, self._now, self._trial, self._best, self._room, self._values, self._random,
            moves, hot * scale, cold * scale, splits, self.trading, self.fusing, goal,
        )  # fmt: skip

    def restart(self) -> None:
        """Go on from the best point."""
        kernel.take(self._now, self._best)
        self._values[kernel.VALUE] = self.best

    @property
    def key(self) -> tuple[bytes, bytes, tuple[int, ...]]:
        """Split and placement of the best point."""
        return self._best.bounds.tobytes(), self._best.row.tobytes(), self.start.division

    def variants(self) -> Iterator[Climber]:
        """Searches from points with another placement, next to the best point's, their splits balanced."""
        for index, point in enumerate(variants(self._best)):
            start = Start("irregular", self.start.division, point, COLD)
            other = Climber(self.workload, self.table, start, self.fusing, self.bound, self._seed + index)
            other.level(FEW_MOVES, COLD)
            other.choose([point])
            yield other

    def split(self) -> Split:
        """Layers of each stage, in the best point."""
        return split_of(self._best.bounds.tolist())

    def schedule(self) -> Schedule:
        """The schedule of the best point."""
        best, division = self._best, self.start.division
        problem = self.workload.problem(self.split(), explicit(self.workload.ranks, best.row.tolist()), division)
        search = Search(problem.instance(division), "makespan", ALL)
        chunks = [stage for row in problem.placement.held for _, stage in row]
        pace, burst = best.pace.tolist()
        value = search.attempt(Policy(best.ahead[chunks], best.rules, pace, burst), FAR)
        assert value == self.best, "the table has the problem's prices"
        return search.schedule()
