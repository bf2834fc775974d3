"""A schedule on a clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..core.ops import Op
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Array, Schedule
from ..core.stream import weight_copies

if TYPE_CHECKING:
    from .steady import Steady


@dataclass(frozen=True)
class Timeline:
    """Start and end of every op, and the memory at every moment. Made by `simulate` only.

    Parameters
    ----------
    problem, schedule
        What was simulated.
    start, end
        Ticks, one for each op, rank after rank in the schedule's order, shape (n,).
    during, after
        Bytes that the op's rank holds while it runs and once it has ended, static included, shape (n,).
    static
        Bytes of each rank before its first op, shape (p,).
    """

    problem: Problem
    schedule: Schedule
    start: Array
    end: Array
    during: Array
    after: Array
    static: Array

    @cached_property
    def _bounds(self) -> tuple[tuple[int, int], ...]:
        offsets = self.schedule.table.offsets.tolist()
        return tuple(pairwise(offsets))

    @cached_property
    def makespan(self) -> int:
        """Ticks from the first start to the last end, over all ranks."""
        return int(self.end.max() - self.start.min()) if len(self.start) else 0

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """For each rank, ticks between its first start and its last end."""
        return tuple(int(self.end[b - 1] - self.start[a]) if b > a else 0 for a, b in self._bounds)

    @property
    def span(self) -> int:
        """The longest time any one rank is between its first start and its last end: what published tables count."""
        return max(self.spans)

    def value(self, objective: Objective) -> int:
        """Makespan or span, in ticks."""
        return self.makespan if objective == "makespan" else self.span

    @cached_property
    def work(self) -> tuple[int, ...]:
        """For each rank, ticks in which it computes."""
        ticks = self.end - self.start
        return tuple(int(ticks[a:b].sum()) for a, b in self._bounds)

    @property
    def bubble(self) -> float:
        """Share of the makespan in which the busiest rank is idle."""
        return 1 - max(self.work) / self.makespan if self.makespan else 0.0

    @property
    def span_bubble(self) -> float:
        """The same of the span: the published zero-bubble tables' rate."""
        return 1 - max(self.work) / self.span if self.span else 0.0

    @property
    def utilisation(self) -> float:
        """Mean over the ranks of work / makespan."""
        return float(np.mean(self.work)) / self.makespan if self.makespan else 1.0

    @cached_property
    def peak_memory(self) -> tuple[int, ...]:
        """For each rank, the most bytes it ever holds, static included."""
        return tuple(
            max(int(self.static[rank]), int(self.during[a:b].max()) if b > a else 0)
            for rank, (a, b) in enumerate(self._bounds)
        )

    @cached_property
    def messages(self) -> int:
        """Messages between different ranks: activations forward and gradients back."""
        placement, count = self.schedule.placement, self.schedule.microbatches
        per_direction = [sum(a != b for a, b in pairwise(row)) for row in placement.stages]
        return 2 * sum(per_direction[placement.direction_of(j, count)] for j in range(count))

    @cached_property
    def message_bytes(self) -> int | None:
        """Bytes of all these messages; None where the problem does not say how large they are."""
        if not self.problem.links.message:
            return None
        placement, count = self.schedule.placement, self.schedule.microbatches
        instance = self.problem.instance(self.schedule.sizes)
        leaving = [[s for s, (a, b) in enumerate(pairwise(row)) if a != b] for row in placement.stages]
        return 2 * sum(
            instance.message(stage, j) for j in range(count) for stage in leaving[placement.direction_of(j, count)]
        )

    @cached_property
    def steady(self) -> Steady | None:
        """What a batch takes where many follow each other; None where each ends with a flush.

        Raises
        ------
        NoAnswerError
            When ranks would wait for each other once a second batch begins.
        """
        from .steady import steady

        return None if self.schedule.updates == "step" else steady(self.problem, self.schedule)

    def of(self, rank: int) -> tuple[tuple[Op, int, int], ...]:
        """(op, start, end) of a rank, in order."""
        a, b = self._bounds[rank]
        return tuple(zip(self.schedule.ops[rank], self.start[a:b].tolist(), self.end[a:b].tolist(), strict=True))

    def row(self) -> dict[str, object]:
        """The figures as plain data, with the names of the command line's JSON."""
        return {
            "makespan": self.makespan,
            "span": self.span,
            "bubble": round(self.bubble, 6),
            "span_bubble": round(self.span_bubble, 6),
            "utilisation": round(self.utilisation, 6),
            "peak_memory": list(self.peak_memory),
            "messages": self.messages,
            "message_bytes": self.message_bytes,
            "microbatch_sizes": list(self.schedule.sizes),
            "fused": round(self.schedule.fused_share, 6),
            "cut": round(self.schedule.cut_share, 6),
            "updates": self.schedule.updates,
            "weight_copies": list(weight_copies(self.schedule)),
            "steady_microbatch": None if self.steady is None else float(self.steady.microbatch),
            "steady_bubble": None if self.steady is None else round(self.steady.bubble, 6),
            "unit": self.problem.unit,
        }

    def grid(self, width: int = 100) -> str:
        """Text chart, one row for each rank; see `grid.draw`."""
        from .grid import draw

        return draw(self, width)
