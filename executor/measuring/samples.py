"""Ops that were seen while stages are measured, put into figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median, quantiles

from adaptpipe.solver import Kind, Measurement, Part

from ..report import OpRecord

Key = tuple[int, int, Kind, int | None]
"""Micro-batch size, stage, kind, and the unit of a W that is cut."""


class Samples:
    """Ops of all ranks, from which medians are taken.

    Parameters
    ----------
    on_cpu
        Whether the ops ran on the processor. Then times are those for which each op had the processor, all scaled by
        one factor to what passed on the clock meanwhile: what else runs on the machine stretches ops by chance, and
        would drown what a B saves or a range costs.
    """

    def __init__(self, on_cpu: bool) -> None:
        self._on_cpu = on_cpu
        self._seen: dict[Key, list[OpRecord]] = defaultdict(list)

    def add(self, size: int, everyone: Iterable[Sequence[OpRecord]]) -> None:
        """Add a step's ops, of micro-batches of this size, from each rank."""
        for records in everyone:
            for record in records:
                op = record.op
                self._seen[size, op.stage, op.kind, None if op.units is None else op.units[0]].append(record)

    def scale(self) -> float:
        """Seconds on the clock for each second that an op had the processor, over all ops; 1 on accelerators."""
        if not self._on_cpu:
            return 1.0
        clock, busy = (sum(self._median(key, time) for key in self._seen) for time in (_clock_s, _busy_s))
        return clock / busy if busy else 1.0

    def measurement(self, stage: int, size: int, work: Sequence[int]) -> Measurement:
        """The figures of one stage at one size.

        Parameters
        ----------
        stage, size
            Which.
        work
            Of the units of its weight gradient; empty where W has nothing to do.
        """
        scale, time = self.scale(), _busy_s if self._on_cpu else _clock_s

        def seconds(kind: Kind, unit: int | None = None) -> float:
            return scale * self._median((size, stage, kind, unit), time)

        def held(kind: Kind, unit: int | None = None) -> int:
            return int(self._median((size, stage, kind, unit), lambda record: record.held_bytes))

        units = range(len(work)) if len(work) > 1 else range(0)
        left = [held(Kind.I), *(held(Kind.W, unit) for unit in units)]
        return Measurement(
            size=size,
            forward_s=seconds(Kind.F),
            backward_input_s=seconds(Kind.I),
            backward_weight_s=seconds(Kind.W) if work else 0.0,
            backward_s=seconds(Kind.B),
            activation=held(Kind.F),
            retained=held(Kind.I),
            message=int(self._median((size, stage, Kind.F, None), lambda record: record.message_bytes)),
            unit_s=tuple(seconds(Kind.W, unit) for unit in units),
            unit_bytes=tuple(before - after for before, after in pairwise(left)) if units else (),
            spread=tuple(
                0.0 if kind is Kind.W and not work else _spread([time(r) for r in self._seen[size, stage, kind, None]])
                for kind in Kind
            ),
        )

    def _median(self, key: Key, value: Callable[[OpRecord], float]) -> float:
        return median(value(record) for record in self._seen[key])


def link(parts: Sequence[Part], delays: Mapping[int, Sequence[float]]) -> tuple[float, float | None]:
    """Latency in seconds, and bandwidth in bytes per second where sizes tell them apart; `delays` are by size."""
    points = [
        (max(part.measurements[index].message for part in parts), median(seen))
        for index, (_, seen) in enumerate(sorted(delays.items()))
        if seen
    ]
    if not points:
        return 0.0, None
    (small, fast), (large, slow) = points[0], points[-1]
    if large > small and slow > fast:
        slope = (slow - fast) / (large - small)
        return max(0.0, fast - slope * small), 1 / slope
    return median(seconds for _, seconds in points), None


def _spread(values: Sequence[float]) -> float:
    """From the first quartile to the third, relative to the median."""
    if len(values) < 2:
        return 0.0
    first, middle, third = quantiles(values, n=4, method="inclusive")
    return (third - first) / middle if middle else 0.0


def _clock_s(record: OpRecord) -> float:
    return record.end_s - record.start_s


def _busy_s(record: OpRecord) -> float:
    return record.busy_s
