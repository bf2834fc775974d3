"""The best of today's schedules: published orders on published splits, each at its best micro-batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...core.placement import Placement, place
from ...core.problem import Problem
from ...core.schedule import Schedule
from ...evaluate.simulate import simulate
from ...evaluate.timeline import Timeline
from ...heuristics import costed_zb_v, gpipe, interleaved, one_f_one_b, zb_h1, zb_h2, zb_v
from ..plan import Plan
from ..workload import Split, Workload
from .rules import RULES, Anatomy, Rule

MOST_ROUNDS = 8
"""Interleaved 1F1B is tried with up to so many stages on a rank."""

Build = Callable[[Problem, tuple[int, ...] | None], Schedule]


@dataclass(frozen=True, slots=True)
class Overflow:
    """Where a schedule does not fit.

    Parameters
    ----------
    rank
        The rank that lacks most.
    needed, limit
        Bytes that it would hold, and that it may.
    """

    rank: int
    needed: int
    limit: int

    @property
    def missing(self) -> int:
        """Bytes that the rank lacks."""
        return self.needed - self.limit


@dataclass(frozen=True, slots=True)
class Today:
    """One of today's schedules for a workload.

    Parameters
    ----------
    method
        The order, with the number of stages on a rank where several are usual.
    rule
        How the layers were cut.
    split
        Layers of each stage.
    timeline
        Simulated, whether it fits or not.
    overflow
        Why it does not fit; None where it does.
    """

    method: str
    rule: str
    split: Split
    timeline: Timeline
    overflow: Overflow | None = None

    @property
    def fits(self) -> bool:
        """Whether no rank ever holds more than its limit."""
        return self.overflow is None

    @property
    def makespan(self) -> int:
        """Ticks of one step."""
        return self.timeline.makespan

    @property
    def division(self) -> tuple[int, ...]:
        """Samples of each micro-batch."""
        return self.timeline.schedule.sizes

    @property
    def name(self) -> str:
        """Method and rule."""
        return f"{self.method}, {self.rule}"

    def plan(self, workload: Workload, bound: int = 0) -> Plan:
        """As a plan of its workload."""
        return Plan(workload, self.split, self.timeline, bound, self.name, 0.0)


@dataclass(frozen=True, slots=True)
class _Way:
    """A method and the placement that it needs."""

    method: str
    family: str
    rounds: int
    build: Build


WAYS: tuple[_Way, ...] = (
    _Way("GPipe", "linear", 1, gpipe),
    _Way("1F1B", "linear", 1, one_f_one_b),
    _Way("ZB-H1", "linear", 1, zb_h1),
    _Way("ZB-H2", "linear", 1, zb_h2),
    _Way("ZB-V", "v", 2, zb_v),
    _Way("ZB-V at mean costs", "v", 2, costed_zb_v),
    *(_Way(f"Interleaved1F1B v={v}", "loop", v, interleaved) for v in range(2, MOST_ROUNDS + 1)),
)


def todays(workload: Workload, rules: Sequence[Rule] = RULES) -> tuple[Today, ...]:
    """Every schedule that today's frameworks would run, best first; those that do not fit come last.

    Orders: GPipe, 1F1B and interleaved 1F1B with fused backwards, ZB-H1, ZB-H2, and ZB-V both in
    PyTorch's fixed order and as its authors' code orders it for mean costs. Each on the splits of all
    rules and in every division of the batch that the workload allows. Of two rules with the same split the first is
    named.

    Parameters
    ----------
    workload
        Layers, ranks and batch.
    rules
        How layers may be cut.

    Returns
    -------
    tuple of Today
        Sorted by whether they fit, then by makespan, or by the bytes that they lack.
    """
    found = list(_todays(workload, rules))
    return tuple(sorted(found, key=lambda t: (not t.fits, t.overflow.missing if t.overflow else t.makespan)))


def rivals(found: Sequence[Today], count: int = 3) -> tuple[Today, ...]:
    """Of today's schedules, best first, the best of each method that fits, and of those the first so many.

    Where costs turn out otherwise, the second best as planned may be the best.
    """
    best: dict[str, Today] = {}
    for each in found:
        if each.fits:
            best.setdefault(each.method, each)
    return tuple(best.values())[:count]


def capped(workload: Workload, base: Today | Plan) -> Workload:
    """The workload with every rank limited to the most that any rank of the base holds, for plans at equal memory.

    A rank whose limit is lower keeps it.
    """
    most = max(base.timeline.peak_memory)
    memory = tuple(most if limit is None else min(limit, most) for limit in workload.cluster.memory)
    return replace(workload, cluster=replace(workload.cluster, memory=memory))


def _todays(workload: Workload, rules: Sequence[Rule]) -> Iterator[Today]:
    anatomy = Anatomy.of(workload.profile)
    shapes: dict[Placement, list[_Way]] = {}
    for way in WAYS:
        shapes.setdefault(place(way.family, workload.ranks, way.rounds), []).append(way)
    for placement, ways in shapes.items():
        splits: dict[Split, str] = {}
        for rule in rules:
            split = rule.split(anatomy, placement)
            if split is not None:
                splits.setdefault(split, rule.name)
        orders: dict[tuple[str, tuple[int, ...]], Schedule] = {}
        for split, name in splits.items():
            for division in workload.divisions:
                problem = workload.problem(split, placement, division)
                for way in ways:
                    key = way.method, division
                    if key not in orders:
                        orders[key] = way.build(problem, division)
                    timeline = simulate(problem, orders[key])
                    yield Today(way.method, name, split, timeline, _overflow(timeline))


def _overflow(timeline: Timeline) -> Overflow | None:
    """The rank that lacks most; None where none lacks anything."""
    worst: Overflow | None = None
    for rank, (held, limit) in enumerate(zip(timeline.peak_memory, timeline.problem.memory.limit, strict=True)):
        if limit is not None and held > limit and (worst is None or held - limit > worst.missing):
            worst = Overflow(rank, held, limit)
    return worst
