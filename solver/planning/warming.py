"""Compile what planning runs, before its clock does."""

from __future__ import annotations

from ..core.cluster import uniform_cluster
from ..core.profile import Measurement, Part, Profile
from .answer import answer
from .workload import Workload


def warm_up() -> None:
    """Answer a workload of three layers; where all is compiled, that takes the time to load it."""
    part = Part("layer", 2, (Measurement(1, 1e-3, 1e-3, 1e-3, 2e-3, 1, 1, 1),))
    cluster = uniform_cluster("two", 2, 20, 1e-5, 1e9)
    answer(Workload("warm", Profile("warm", (part,) * 3, 0.0), cluster, 2, (1,)), time_limit=0.1)
