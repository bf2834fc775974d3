"""Weight gradients in ranges of units: equal to trying every order, and only where allowed."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Kind, Problem, Schedule, check, simulate
from adaptpipe.solver.bounds import lower_bound
from adaptpipe.solver.core.granularity import Granularity
from adaptpipe.solver.core.result import Objective
from adaptpipe.solver.cpsat import solve_cpsat
from adaptpipe.solver.cpsat.prices import prices
from tests.solver.oracle import optimum, small
from tests.strategies import problem_data, sizes_of

CHOICES = ("fused,units", "units", "fused", "none")


def soon(seconds: float = 60.0) -> float:
    return time.monotonic() + seconds


def with_units(data: dict[str, Any], units: list[Any], overhead: int) -> Problem:
    """The problem with these units at every stage."""
    data["costs"].pop("backward_weight", None)
    data["costs"] |= {"weight_units": units, "overhead": overhead}
    return Problem.from_dict(data)


def chosen(schedule: Schedule) -> set[str]:
    """What a schedule has chosen beside the order."""
    ops = [op for row in schedule.ops for op in row]
    return {"fused" for op in ops if op.kind is Kind.B} | {"units" for op in ops if op.units is not None}


@settings(max_examples=30)
@given(
    problem_data(max_ranks=2, max_samples=3, units=False),
    st.lists(
        st.fixed_dictionaries({"fixed": st.integers(0, 12), "per_sample": st.integers(0, 4)}), min_size=2, max_size=3
    ),
    st.integers(0, 2),
    st.sampled_from(CHOICES),
    st.data(),
)
def test_equal_to_trying_every_order_with_ranges(
    data: dict[str, Any], units: list[Any], overhead: int, choice: str, draw: st.DataObject
) -> None:
    problem, granularity = with_units(data, units, overhead), Granularity.parse(choice)
    sizes = draw.draw(sizes_of(problem))
    assume(small(problem, sizes))
    best = optimum(problem.instance(sizes), granularity=granularity)
    schedule, bound, none = solve_cpsat(problem, deadline=soon(), workers=1, sizes=sizes, granularity=granularity)
    assert none == (best is None)
    if best is not None:
        assert schedule is not None
        assert not check(problem, schedule)
        assert simulate(problem, schedule).makespan == bound == best
        assert chosen(schedule) <= set(choice.split(","))


@settings(max_examples=30)
@given(
    problem_data(max_ranks=2, families=("linear", "v"), sizes=False, units=False),
    st.lists(st.integers(1, 20), min_size=2, max_size=2) | st.integers(1, 9).map(lambda ticks: [ticks] * 3),
    st.integers(2, 3),
    st.integers(1, 9),
    st.sampled_from((1, 1.5, 2, 3)),
)
def test_equal_to_trying_every_order_with_ranges_where_memory_is_short(
    data: dict[str, Any], units: list[Any], count: int, activation: int, share: float
) -> None:
    """Units free memory one by one: bounds and cuts that count whole weight gradients would leave optima out."""
    data["batch"]["samples"] = count
    data["memory"] |= {"unit": "B", "activation": activation, "static": 0, "weights": 0, "reserve": 0}
    data["memory"]["limit"] = int(share * activation)
    problem = with_units(data, units, 0)
    assume(small(problem, (1,) * count))
    best = optimum(problem.instance((1,) * count))
    schedule, bound, none = solve_cpsat(problem, deadline=soon(), workers=1)
    assert none == (best is None)
    if best is not None:
        assert schedule is not None
        assert not check(problem, schedule)
        assert simulate(problem, schedule).makespan == bound == best


@settings(max_examples=12)
@given(
    problem_data(max_ranks=2, max_samples=3, families=("linear", "v", "loop"), sizes=False, units=False),
    st.lists(st.integers(0, 12), min_size=2, max_size=2),
    st.sampled_from(CHOICES),
)
def test_span_with_ranges_is_bounded_from_both_sides(data: dict[str, Any], units: list[int], choice: str) -> None:
    problem, granularity = with_units(data, units, 1), Granularity.parse(choice)
    sizes = problem.default_sizes()
    assume(small(problem, sizes))
    objective: Objective = "span"
    best = optimum(problem.instance(sizes), objective, granularity)
    assume(best is not None)
    assert best is not None
    schedule, bound, _ = solve_cpsat(problem, objective, deadline=soon(), workers=1, granularity=granularity)
    assert schedule is not None
    assert not check(problem, schedule)
    assert bound <= best <= simulate(problem, schedule).span


def published(count: int, share: float, uneven: bool = False) -> Problem:
    """1.5 B model of Zero Bubble's Table 5 on four ranks, in us: 4 units a stage, a range costs 2 % of W, and fusing
    saves 4 %. Uneven: the embedding makes the first stage 10 % longer, the head the last 30 %."""
    scale = [110, 100, 100, 130] if uneven else [100] * 4
    costs = [[ticks * part // 100 for part in scale] for ticks in (18522, 18086, 9337)]
    return Problem.from_dict(
        {
            "pipeline": {"ranks": 4},
            "batch": {"samples": count},
            "costs": {
                "forward": costs[0],
                "backward_input": costs[1],
                "weight_units": [[(weight + k) // 4 for k in range(4)] for weight in costs[2]],
                "backward": [(i + w) * 96 // 100 for i, w in zip(costs[1], costs[2], strict=True)],
                "overhead": [weight // 50 for weight in costs[2]],
            },
            "memory": {"unit": "MB", "activation": 201, "retained": 74, "limit": int(share * 4 * 201)},
            "links": {"latency": 601},
        }
    )


@pytest.mark.parametrize(
    ("count", "share", "uneven"),
    [(8, 0.75, True), (8, 1.5, False)],
)
def test_published_costs_with_units_are_proven(count: int, share: float, uneven: bool) -> None:
    """From no schedule at all, the optimum: what ranges of units could gain is nothing here, and that is proven."""
    problem = published(count, share, uneven)
    whole = Granularity.parse("fused")
    coarse, _, _ = solve_cpsat(whole.restricted(problem), bound=lower_bound(problem), deadline=soon())
    schedule, bound, _ = solve_cpsat(problem, hint=coarse, bound=lower_bound(problem), deadline=soon(100))
    assert schedule is not None
    assert coarse is not None
    assert simulate(problem, schedule).makespan == bound <= simulate(problem, coarse).makespan


def test_ranges_are_chosen_where_they_pay() -> None:
    """Rank 1 waits for 3 ticks, the time of one of its units; see the test of the oracle."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 2},
            "costs": {"forward": [5, 1], "backward_input": 1, "weight_units": [[4], [3, 2]], "overhead": 1},
            "links": {"latency": 3},
        }
    )
    values = {}
    for choice in ("units", "none"):
        schedule, bound, _ = solve_cpsat(problem, deadline=soon(), workers=1, granularity=Granularity.parse(choice))
        assert schedule is not None
        values[choice] = simulate(problem, schedule).makespan
        assert values[choice] == bound
        assert chosen(schedule) == {choice} - {"none"}
    assert values == {"units": 23, "none": 25}


def test_ranges_are_priced_as_the_simulator_does() -> None:
    """Also on a clock that rounds down: no range takes longer than in ticks."""
    problem = with_units(
        {
            "pipeline": {"ranks": 1},
            "batch": {"samples": 1},
            "costs": {"forward": 6, "backward_input": 4},
            "memory": {"activation": 8, "retained": 7},
        },
        [2, 4, 8],
        6,
    )
    exact, coarse = (prices(problem.instance((1,)), longest=longest) for longest in (1 << 45, 5))
    assert (exact.step, exact.exact, coarse.exact) == (2, True, False)
    assert [exact.range_ticks(0, 0, *part) for part in ((0, 3), (0, 1), (1, 3), (2, 3))] == [7, 1, 9, 7]
    assert coarse.step == 8
    assert [coarse.range_ticks(0, 0, *part) for part in ((0, 3), (1, 3))] == [14 // 8, 18 // 8]
    assert exact.piece_bytes(0, 0) == [1, 2, 4]


def test_pieces_that_are_alike_are_exchanged_whatever_the_rounding_of_bytes() -> None:
    data = {
        "pipeline": {"ranks": 1},
        "batch": {"samples": 1},
        "costs": {"forward": 6, "backward_input": 4},
        "memory": {"activation": 90, "retained": 0},
    }
    for retained, units, alike, freed in (
        (82, [5, 4, 4, 4], True, [24, 20, 20, 20]),
        (82, [5, 4, 4, 3], False, [25, 21, 20, 16]),
        (8, [5, 3], False, [5, 3]),
    ):
        data["memory"]["retained"] = retained
        scaled = prices(with_units(data, units, 1).instance((1,)))
        assert scaled.alike(0, 0) is alike
        assert scaled.piece_bytes(0, 0) == freed
