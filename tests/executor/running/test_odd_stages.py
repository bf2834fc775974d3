"""No module makes a wrong gradient: odd ones, in any order, cut into stages anywhere, under random schedules."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from adaptpipe.executor.launching.launcher import launch
from adaptpipe.solver import place

from ...strategies import drawn
from ..odd_stages import ODD
from . import odd_jobs as jobs
from .pipeline_jobs import Case
from .test_random_schedules import cases_of

pytestmark = pytest.mark.timeout(120)

COUNT = 14
PLACEMENTS = (place("linear", 2), place("v", 2, 2), place("loop", 2, 3))


@st.composite
def odd_cases(draw: st.DrawFn) -> Case:
    """One to three modules for each stage, and a random schedule."""
    placement = draw(st.sampled_from(PLACEMENTS))
    pieces = st.lists(st.sampled_from(sorted(ODD)), min_size=1, max_size=3).map("+".join)
    names = "|".join(draw(st.lists(pieces, min_size=placement.stage_count, max_size=placement.stage_count)))
    return draw(cases_of(placement, names))


def test_gradients_equal_those_of_autograd_alone() -> None:
    cases = drawn(odd_cases(), COUNT, 3)
    assert {name for case in cases for stage in case.model.split("|") for name in stage.split("+")} == set(ODD)
    for rank in launch(jobs.compare_odd, 2, cases, threads=1):
        for name, gradient in rank:
            assert gradient <= 1e-4, name
