"""Compile what the search runs, before its clock does."""

from __future__ import annotations

from functools import cache

from ...core.cluster import uniform_cluster
from ...core.placement import place
from ...core.profile import Measurement, Part, Profile
from ...evaluate.simulate import simulate
from ..bounds.bound import lower_bound
from ..splits.partition import balanced
from ..splits.stage_table import StageTable
from ..workload import Workload
from .climber import Climber
from .floated import floated
from .order import Ordering
from .starts import starts
from .table import table_of


@cache
def warm_up() -> None:
    """Make every move once, on a workload of four layers; where all is compiled, that takes the time to load it."""
    part = Part("layer", 0, (Measurement(1, 1e-3, 1e-3, 1e-3, 2e-3, 1, 1, 1),))
    cluster = uniform_cluster("two", 2, 100, 1e-5, 1e9)
    workload = Workload("warm", Profile("warm", (part,) * 4, 0.0), cluster, 2, (1,))
    stages = StageTable(workload, (1, 1))
    lower_bound(workload, seconds=0.0)
    next(floated(workload))
    for family in ("v", "loop"):
        balanced(workload, place(family, 2, 2), (1, 1), table=stages)
    start = next(starts(workload, stages, [("linear", 1)]))
    climber = Climber(workload, table_of(stages), start, False, 0, 0)
    climber.level(1, 0.0)
    climber.choose(climber.policies()[:1])
    climber.run(10, 1.0, 0.0)
    schedule = climber.schedule()
    problem = workload.problem(climber.split(), schedule.placement, start.division)
    Ordering("", climber.split(), simulate(problem, schedule), 0).run(1, 1.0, 0.0, -1)
