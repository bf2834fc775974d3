"""The parts of the bounds, each against a plainer way to the same number."""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from time import monotonic
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Problem, simulate
from adaptpipe.solver.bounds import instance_bound, lower_bound, needed
from adaptpipe.solver.bounds.cool_down import Filling
from adaptpipe.solver.bounds.counts import Counts
from adaptpipe.solver.bounds.one_machine import one_machine
from adaptpipe.solver.bounds.paths import NEVER, paths
from adaptpipe.solver.core.result import Objective
from adaptpipe.solver.cpsat import constraints, model, solve_cpsat
from tests.solver.bounds.test_bounds import OBJECTIVES, published
from tests.strategies import problem_data

Data = dict[str, Any]
Job = tuple[int, int, int, int]
ONE_OF_TWO = {"ranks": 2, "placement": "v", "stages_per_rank": 2}


def preemptive(jobs: list[Job]) -> int:
    """Jackson's rule: always the ready op with the longest tail; (head, ticks, tail, how many)."""
    waiting = sorted((head, ticks, tail) for head, ticks, tail, count in jobs for _ in range(count))
    ready: list[tuple[int, int]] = []
    time = best = index = 0
    while index < len(waiting) or ready:
        if not ready:
            time = max(time, waiting[index][0])
        while index < len(waiting) and waiting[index][0] <= time:
            heappush(ready, (-waiting[index][2], waiting[index][1]))
            index += 1
        minus_tail, left = heappop(ready)
        until = time + left
        if index < len(waiting) and waiting[index][0] < until:
            heappush(ready, (minus_tail, until - waiting[index][0]))
            time = waiting[index][0]
        else:
            time = until
            best = max(best, time - minus_tail)
    return best


some = st.integers(0, 9)
jobs = st.lists(st.tuples(some, some, some, st.integers(1, 3)), min_size=1, max_size=6)


@given(jobs)
def test_head_work_tail_is_the_best_with_interruptions(rows: list[Job]) -> None:
    head, ticks, tail, count = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    assert one_machine(head, ticks, tail, count) == preemptive(rows)


def test_ops_that_lead_nowhere_are_left_out() -> None:
    column = np.array([3, 4])
    assert one_machine(column, column, np.array([NEVER, 2]), np.array([1, 1])) == 4 + 4 + 2
    assert one_machine(column, column, np.array([NEVER, NEVER]), np.array([1, 1])) == 0


def limited(data: Data, share: float) -> Problem:
    """A problem whose ranks have a multiple of what one micro-batch needs."""
    problem = Problem.from_dict(data | {"memory": data["memory"] | {"unit": "B"}})
    need = [needed(problem, rank, 0, 1) for rank in range(problem.ranks)]
    return Problem.from_dict(data | {"memory": data["memory"] | {"unit": "B", "limit": [int(share * n) for n in need]}})


@settings(max_examples=25)
@given(
    problem_data(max_ranks=3, max_samples=5, families=("linear", "loop", "v", "explicit"), sizes=False, units=False),
    st.floats(1, 2.5),
    st.sampled_from(OBJECTIVES),
)
def test_no_bound_is_above_what_is_solved_without_it(data: Data, share: float, objective: Objective) -> None:
    """Larger than the oracle can: CP-SAT, told none of our bounds."""
    problem = limited(data, share)
    assume(problem.stages * problem.samples <= 15)
    with pytest.MonkeyPatch.context() as patch:
        bare = tuple(rule for rule in model.CONSTRAINTS if rule is not constraints.earliest_starts)
        patch.setattr(model, "CONSTRAINTS", bare)
        patch.setattr(constraints, "work_left", lambda _: None)
        schedule, _, _ = solve_cpsat(problem, objective, deadline=monotonic() + 2, workers=1)
    if schedule is not None:
        assert lower_bound(problem, objective) <= simulate(problem, schedule).value(objective)


def chunked(limit: int, **changes: Data) -> Problem:
    data: Data = {
        "pipeline": ONE_OF_TWO,
        "batch": {"samples": 6},
        "costs": {"forward": 3, "backward_input": 2, "backward_weight": 1},
        "memory": {"activation": 5, "retained": 2, "limit": limit},
    }
    return Problem.from_dict(data | changes)


@pytest.mark.parametrize(("limit", "ahead", "unfinished"), [(10, 0, 1), (15, 1, 2), (20, 2, 3), (25, 3, 4)])
def test_first_chunks_wait_for_last_ones(limit: int, ahead: int, unfinished: int) -> None:
    """With room for k chunks, one of them the last of some micro-batch, at most k - 2 others have begun."""
    later, n, u = Counts(paths(chunked(limit).instance((1,) * 6)), 0).turns
    assert later.ravel().tolist() == [3, 2, -1, -1]
    assert n[:2].ravel().tolist() == [ahead] * 2
    assert u[:2].ravel().tolist() == [unfinished] * 2


def test_where_only_a_fused_backward_fits_it_counts() -> None:
    """I needs 7 B while it runs, and there are 6: B's 9 ticks are the least, though I and W take 3."""
    costs = {"forward": 3, "backward_input": 2, "backward_weight": 1, "backward": 9}
    tight = {"activation": 3, "retained": 4, "limit": 6}
    one = {"ranks": 2, "placement": "v", "stages_per_rank": 2}
    problem = chunked(0, pipeline=one, batch={"samples": 2}, costs=costs, memory=tight)
    ways = paths(problem.instance((1, 1)))
    assert ways.fused_only.tolist() == [[False] * 2] * 2 + [[True] * 2] * 2
    assert ways.whole.tolist() == [[3] * 2] * 2 + [[9] * 2] * 2
    roomy = chunked(0, pipeline=one, batch={"samples": 2}, costs=costs, memory=tight | {"limit": 7})
    assert not paths(roomy.instance((1, 1))).fused_only.any()


@given(problem_data(max_samples=4, sizes=False, units=False, limited=True), st.sampled_from(OBJECTIVES))
def test_ranges_of_weight_gradients_only_relax(data: Data, objective: Objective) -> None:
    weight = data["costs"].pop("backward_weight")
    rows = weight if isinstance(weight, list) else [weight]
    stages = Problem.from_dict(data | {"costs": data["costs"] | {"backward_weight": weight}}).stages
    cut = [[row, 0] for row in (rows if len(rows) > 1 else rows * stages)]
    whole = Problem.from_dict(data | {"costs": data["costs"] | {"backward_weight": weight}})
    parts = Problem.from_dict(data | {"costs": data["costs"] | {"weight_units": cut}})
    sizes = whole.default_sizes()
    assert instance_bound(parts.instance(sizes), objective) <= instance_bound(whole.instance(sizes), objective)


amounts = st.integers(0, 9)
choices = st.lists(st.tuples(st.integers(1, 9), amounts, amounts), min_size=1, max_size=5)


@given(choices, st.integers(0, 30), st.integers(0, 40), st.integers(0, 9))
def test_a_filled_end_costs_no_less_than_said(rows: list[Job], room: int, way: int, whole: int) -> None:
    """Against every choice of weight gradients (ticks, bytes, cost of the split) beside one backward that is left."""
    ticks, held, saves = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    chosen = (np.arange(2 ** len(rows))[:, None] >> np.arange(len(rows))) & 1
    fits = chosen @ held <= room
    left = chosen @ ticks
    least = int((chosen @ saves + np.maximum(0, way - whole - left))[fits].min())
    filling = Filling(
        np.array([whole]),
        np.array([left[fits].max()]),
        np.array([(chosen @ np.maximum(ticks - saves, 0))[fits].max()]),
        np.concatenate([[0], np.cumsum(np.sort(ticks)[::-1])]),
        np.concatenate([[0], np.cumsum(np.sort(saves))]),
    )
    said = filling.extra(way)
    assert said <= least
    if len(set(rows)) == 1 and saves[0] <= ticks[0]:
        assert said == least, "exact where all are alike"


@pytest.mark.parametrize("units", [1, 4])
def test_the_end_is_filled_by_splits_that_have_their_price(units: int) -> None:
    """Memory for six micro-batches on four ranks: fusing all would leave the last rank's way out empty."""
    problem = replace(
        published(4, 8, 1.5), backward=(263,) * 4, weight_units=((93,),) * 4 if units == 1 else ((24, 23, 23, 23),) * 4
    )
    # The optimum without ranges, proven by CP-SAT; ranges gain nothing.
    assert lower_bound(problem) == 4234
