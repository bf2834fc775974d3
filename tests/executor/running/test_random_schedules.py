"""Random schedules with fused, split and cut backwards and micro-batches of unequal sizes, on real ranks."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from adaptpipe.executor.launching.launcher import launch
from adaptpipe.solver import Kind, Placement, Problem, place

from ...strategies import drawn, schedules_of
from . import pipeline_jobs as jobs

pytestmark = pytest.mark.timeout(120)

COUNT = 50
FAMILIES = (("linear", 1), ("v", 2), ("loop", 2), ("bidirectional", 1))


@st.composite
def cases_of(draw: st.DrawFn, placement: Placement, model: str) -> jobs.Case:
    """A random schedule of six samples in micro-batches of one to three, and units of any times, zero included."""
    times = st.fixed_dictionaries({"fixed": st.integers(0, 4), "per_sample": st.integers(0, 4)})
    rows = st.lists(times, min_size=1, max_size=6)
    stages = placement.stage_count
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": placement.ranks, "placement": [list(row) for row in placement.stages]},
            "batch": {"samples": 6, "microbatch_sizes": [1, 2, 3]},
            "costs": {
                "forward": {"fixed": 1, "per_sample": 1},
                "backward_input": {"fixed": 1, "per_sample": 1},
                "weight_units": draw(st.lists(rows, min_size=stages, max_size=stages)),
            },
        }
    )
    schedule = draw(schedules_of(problem))
    ops = "; ".join(" ".join(str(op) for op in row) for row in schedule.ops)
    return jobs.Case(f"{model} {placement.stages} sizes={schedule.sizes}: {ops}", model, problem, schedule)


def all_cases(ranks: int) -> list[jobs.Case]:
    """Of all placements and models."""
    kinds = [(place(family, ranks, per), model) for family, per in FAMILIES for model in ("gpt", "mixed")]
    return [
        case
        for number, (placement, model) in enumerate(kinds)
        for case in drawn(cases_of(placement, model), (COUNT + number) // len(kinds), number)
    ]


@pytest.mark.parametrize("ranks", [2, 4])
def test_gradients_equal_the_unsplit_models(ranks: int) -> None:
    cases = all_cases(ranks)
    assert len(cases) == COUNT
    for rank in launch(jobs.compare_all, ranks, cases, threads=1):
        for name, gradient, loss in rank:
            assert gradient <= 1e-5, name
            assert loss <= 1e-5, name


def test_the_schedules_are_of_all_kinds() -> None:
    ops = [op for ranks in (2, 4) for case in all_cases(ranks) for row in case.schedule.ops for op in row]
    assert {op.kind for op in ops} == set(Kind)
    ranges = {op.units for op in ops if op.kind is Kind.W}
    assert len(ranges) >= 12
    assert None in ranges
    assert len({case.schedule.sizes for case in all_cases(2)}) >= 12
