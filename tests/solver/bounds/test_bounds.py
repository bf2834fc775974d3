"""Bounds: never above the true optimum, and exact where the literature's schedules are optimal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Problem, simulate
from adaptpipe.solver.bounds import infeasible, instance_bound, lower_bound, needed
from adaptpipe.solver.bounds.knapsack import Pieces, most, most_of_two
from adaptpipe.solver.bounds.order_heads import heads_of, order_heads
from adaptpipe.solver.bounds.paths import paths
from adaptpipe.solver.core.granularity import NONE
from adaptpipe.solver.core.result import Objective
from tests.solver import oracle
from tests.solver.oracle import optimum
from tests.strategies import problem_data, problems, schedules_of

Data = dict[str, Any]
OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


def published(p: int, m: int, share: float, v: bool = False) -> Problem:
    """The 1.5 B model of Zero Bubble's Table 5, in hundreds of microseconds, with a share of p activations as limit."""
    forward, short, weight = (92, 90, 46) if v else (185, 181, 93)
    chunks = 2 if v else 1
    return Problem.from_dict(
        {
            "pipeline": {"ranks": p, "placement": "v" if v else "linear", "stages_per_rank": chunks},
            "batch": {"samples": m},
            "costs": {"forward": forward, "backward_input": short, "backward_weight": weight},
            "links": {"latency": 6},
            "memory": {"activation": 201, "retained": 74, "limit": int(share * p * chunks * 201)},
        }
    )


def small(problem: Problem, count: int) -> bool:
    """Whether the oracle takes well under a second."""
    return problem.stages * count <= 6 and (problem.stages <= 3 or count == 1)


@settings(max_examples=60)
@given(problems(max_ranks=3, max_samples=3), st.sampled_from(OBJECTIVES))
def test_no_bound_is_above_the_optimum(problem: Problem, objective: Objective) -> None:
    """With fused backwards, ranges of units and every division of the batch to choose from, and with none of these."""
    divisions = list(oracle.sequences(problem))
    assume(all(oracle.small(problem, sizes) for sizes in divisions) and len(divisions) <= 6)
    whole = NONE.restricted(problem)
    found = []
    for sizes in divisions:
        best = optimum(problem.instance(sizes), objective)
        assert (best is None) == bool(infeasible(problem, sizes))
        if best is not None:
            found.append(best)
            assert instance_bound(problem.instance(sizes), objective) <= best
        coarse = optimum(whole.instance(sizes), objective, NONE)
        assert (coarse is None) == bool(infeasible(whole, sizes, fused=False))
        if coarse is not None:
            assert instance_bound(whole.instance(sizes), objective) <= coarse
    assert bool(found) or bool(infeasible(problem)) or len(problem.sizes) > 1
    if found:
        assert lower_bound(problem, objective) <= min(found)
        assert not infeasible(problem)


@settings(max_examples=25)
@given(problem_data(max_ranks=2, families=("linear",), sizes=False, units=False), st.integers(2, 4), st.integers(1, 9))
def test_bounds_by_order_hold_where_memory_is_short(data: Data, count: int, activation: int) -> None:
    data["batch"]["samples"] = count
    data["memory"] |= {
        "unit": "B",
        "activation": activation,
        "static": 0,
        "weights": 0,
        "reserve": 0,
        "limit": 2 * activation,
    }
    problem = Problem.from_dict(data)
    best = optimum(problem.instance((1,) * count))
    assert best is not None
    assert instance_bound(problem.instance((1,) * count)) <= best


@given(problems(), st.data())
def test_no_schedule_is_below_the_bound(problem: Problem, data: st.DataObject) -> None:
    """Also with weight gradients in ranges, which the oracle does not try; limits are lifted, as orders are random."""
    free = problem.memory.limit
    assume(all(limit is None for limit in free))
    timeline = simulate(problem, data.draw(schedules_of(problem)))
    for objective in OBJECTIVES:
        assert lower_bound(problem, objective) <= timeline.value(objective)
        assert lower_bound(problem, objective, timeline.schedule.sizes) <= timeline.value(objective)


@given(problems(sizes=False))
def test_with_one_size_both_bounds_are_one(problem: Problem) -> None:
    assert lower_bound(problem) == lower_bound(problem, sizes=(1,) * problem.samples)


@pytest.mark.parametrize(
    ("p", "m", "share", "value"),
    [(4, 8, 1, 4563), (8, 24, 1, 13095), (8, 64, 1, 31455), (16, 48, 1, 26487), (16, 128, 1, 63207), (4, 8, 2, 4245)],
)
def test_bound_meets_the_proven_optimum(p: int, m: int, share: float, value: int) -> None:
    assert lower_bound(published(p, m, share)) == value


@pytest.mark.parametrize(("p", "m", "share", "value"), [(4, 8, 2, 4155), (8, 24, 1, 13095), (8, 24, 2, 11523)])
def test_bound_of_the_span_meets_the_proven_optimum(p: int, m: int, share: float, value: int) -> None:
    """Few micro-batches and much memory: the first rank waits for the last one's backwards, and does its last W."""
    assert lower_bound(published(p, m, share), "span") == value


@pytest.mark.parametrize(
    ("problem", "least", "most_"),
    [
        (published(4, 8, 0.75), 5200, 5319),
        (published(8, 24, 0.75), 14700, 15273),
        (published(4, 8, 1, v=True), 3970, 3984),
        (published(4, 8, 0.5, v=True), 4800, 5280),
    ],
)
def test_bound_is_near_the_proven_optimum(problem: Problem, least: int, most_: int) -> None:
    assert least <= lower_bound(problem) <= most_


def test_one_micro_batch_at_a_time_is_the_sum() -> None:
    """With room for one activation, micro-batches pass alone: the bound is that."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 3},
            "batch": {"samples": 4},
            "costs": {"forward": 3, "backward_input": 2, "backward_weight": 0},
            "links": {"latency": 1},
            "memory": {"activation": 5, "retained": 0, "limit": 5},
        }
    )
    assert lower_bound(problem) == 4 * (3 * 5 + 4)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7), st.integers(0, 30))
def test_knapsack_is_never_underestimated(items: list[tuple[int, int]], room: int) -> None:
    ticks, held = (np.array(column, dtype=np.int64) for column in zip(*items, strict=True))
    chosen = (np.arange(2 ** len(items))[:, None] >> np.arange(len(items))) & 1
    best = (chosen @ ticks)[chosen @ held <= room].max()
    assert most(Pieces(ticks, held), room) >= best
    assert most_of_two(Pieces(ticks[:3], held[:3]), Pieces(ticks[3:], held[3:]), room) >= best


def test_bounds_by_order_need_a_limit_and_for_the_model_equal_micro_batches() -> None:
    free = replace(published(4, 8, 1), memory=replace(published(4, 8, 1).memory, limit=(None,) * 4))
    assert order_heads(paths(published(4, 8, 1).instance((1,) * 8))) is not None
    assert order_heads(paths(published(4, 8, 1, v=True).instance((1,) * 8))) is not None
    assert order_heads(paths(free.instance((1,) * 8))) is None
    assert order_heads(paths(published(4, 8, 0.2).instance((1,) * 8))) is None
    mixed = paths(bidirectional(9, [1, 3]).instance((1, 3)))
    assert order_heads(mixed) is None
    assert heads_of(mixed, 0) is not None


def test_on_a_v_a_first_chunk_makes_room_for_the_last() -> None:
    """Memory for one micro-batch alone: what waits for what on a rank with two stages."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2, "placement": "v", "stages_per_rank": 2},
            "batch": {"samples": 2},
            "costs": {"forward": 3, "backward_input": 2, "backward_weight": 0},
            "links": {"latency": 1},
            "memory": {"activation": 5, "retained": 0, "limit": 10},
        }
    )
    # F(0, 1) waits for I(3, 0), which makes room, and then F(3, 1) for I(0, 0).
    assert lower_bound(problem) == optimum(problem.instance((1, 1))) == 41


def bidirectional(limit: int, sizes: list[int]) -> Problem:
    return Problem.from_dict(
        {
            "pipeline": {"ranks": 2, "placement": "bidirectional"},
            "batch": {"samples": 4, "microbatch_sizes": sizes},
            "costs": {key: {"fixed": 1, "per_sample": 1} for key in ("forward", "backward_input", "backward_weight")},
            "memory": {
                "activation": [{"fixed": 0, "per_sample": 2}, {"fixed": 1, "per_sample": 1}],
                "retained": 0,
                "static": [3, 4],
                "limit": limit,
            },
        }
    )


def test_infeasible_names_rank_need_limit_and_the_smallest_limit_that_does() -> None:
    """INFEASIBLE without a reason (google/or-tools#973, #3017): computed here, not from solver cores."""
    assert infeasible(bidirectional(9, [1])) == ""
    text = infeasible(bidirectional(8, [1]))
    assert text == (
        "rank 0 needs 9 B for one micro-batch alone (static 7 B, activations 2 B), above its limit of 8 B; "
        "the smallest limit with a schedule is 9 B"
    )


def test_infeasible_asks_for_the_smallest_sizes_that_make_the_batch() -> None:
    assert infeasible(bidirectional(11, [2])) == ""
    assert infeasible(bidirectional(10, [1, 2])) == ""
    assert "one micro-batch of 4" in infeasible(bidirectional(11, [3, 4]))
    assert needed(bidirectional(11, [3, 4]), 0, 0, 4) == 15


def test_sizes_that_are_not_the_problems_are_refused() -> None:
    with pytest.raises(InputError, match=r"sizes: 3 samples in all, and the batch has 8"):
        lower_bound(published(4, 8, 1), sizes=(1, 1, 1))


def test_split_backwards_may_need_more() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 1, "placement": [0, 0]},
            "batch": {"samples": 2},
            "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
            "memory": {"activation": [2, 3], "retained": [9, 4], "static": [1, 0], "limit": 8},
        }
    )
    assert infeasible(problem) == ""
    assert infeasible(problem, fused=False) == (
        "rank 0 needs 10 B for one micro-batch alone (static 1 B, activations and what I retains 9 B), above its limit "
        "of 8 B; the smallest limit with a schedule is 10 B, and 6 B where backwards may be fused"
    )
    assert needed(problem, 0, 0, 1) == 6
    assert needed(problem, 0, 0, 1, fused=False) == 10
