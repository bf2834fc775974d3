"""Problems: derived facts. The messages of bad ones are tested where files are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import Affine, InputError, Problem, simulate
from adaptpipe.solver.heuristics import gpipe
from tests.strategies import problems, sizes_of

DATA: dict[str, Any] = {
    "pipeline": {"ranks": 2},
    "batch": {"samples": 7},
    "costs": {"forward": 0, "backward_input": 0, "backward_weight": 0},
}


def with_sizes(samples: int, sizes: list[int]) -> Problem:
    return Problem.from_dict(DATA | {"batch": {"samples": samples, "microbatch_sizes": sizes}})


@pytest.mark.parametrize(
    ("samples", "allowed", "counts", "default"),
    [
        (7, [1], (7,), (1,) * 7),
        (7, [2, 3], (3,), (2, 2, 3)),
        (7, [1, 2], (4, 5, 6, 7), (1,) * 7),
        (9, [2, 5], (), (2, 2, 5)),
        (8, [4], (2,), (4, 4)),
        (6, [1, 6], (1, 6), (1,) * 6),
    ],
)
def test_divisions_of_the_batch(
    samples: int, allowed: list[int], counts: tuple[int, ...], default: tuple[int, ...]
) -> None:
    problem = with_sizes(samples, allowed)
    assert problem.uniform_counts() == counts
    assert problem.default_sizes() == default


@given(st.integers(1, 30), st.sets(st.integers(1, 9), min_size=1))
def test_sizes_add_up_and_are_allowed(samples: int, allowed: set[int]) -> None:
    reachable = {0}
    for total in range(1, samples + 1):
        if any(total - size in reachable for size in allowed):
            reachable.add(total)
    if samples not in reachable:
        with pytest.raises(InputError, match=f"batch.samples: {samples} is no sum of the sizes"):
            with_sizes(samples, sorted(allowed))
        return
    problem = with_sizes(samples, sorted(allowed))
    assert sum(problem.default_sizes()) == samples
    assert set(problem.default_sizes()) <= allowed
    for count in problem.uniform_counts():
        sizes = problem.uniform_sizes(count)
        assert (len(sizes), sum(sizes)) == (count, samples)
        assert set(sizes) <= allowed
        assert max(sizes) - min(sizes) <= 1


def test_static_counts_every_stage_replica_and_the_reserve() -> None:
    data = DATA | {
        "pipeline": {"ranks": 2, "placement": "bidirectional"},
        "memory": {"static": [10, 1], "reserve": [100, 200]},
    }
    problem = Problem.from_dict(data)
    assert [problem.static_bytes(rank) for rank in range(2)] == [111, 211]


def test_one_copy_where_both_directions_have_a_stage_on_one_rank() -> None:
    data = DATA | {
        "pipeline": {"ranks": 3, "placement": "bidirectional"},
        "memory": {"static": [100, 10, 1]},
    }
    problem = Problem.from_dict(data)
    assert [problem.static_bytes(rank) for rank in range(3)] == [101, 10, 101]


def test_static_counts_further_versions_of_weights() -> None:
    problem = Problem.from_dict(DATA | {"memory": {"static": [10, 5], "weights": [4, 5], "reserve": 100}})
    assert [problem.static_bytes(rank, (3, 2)) for rank in range(2)] == [118, 110]
    unknown = Problem.from_dict(DATA | {"memory": {"static": [10, 5], "reserve": 100}})
    assert [unknown.static_bytes(rank, (3, 2)) for rank in range(2)] == [110, 105]


@given(st.data())
def test_instance_prices(data: st.DataObject) -> None:
    problem = data.draw(problems())
    sizes = data.draw(sizes_of(problem))
    instance = problem.instance(sizes)
    for s in range(problem.stages):
        for j, size in enumerate(sizes):
            cost = problem.forward[s]
            expected = cost.fixed + cost.per_sample * size if isinstance(cost, Affine) else cost
            assert instance.forward[s, j] == expected
            assert instance.unit_bytes[s, j, -1] == instance.retained[s, j]
            if problem.backward is None:
                assert instance.backward[s, j] == instance.backward_input[s, j] + instance.backward_weight[s, j]
            assert instance.rank[s, j] == problem.placement.rank_of(s, j, len(sizes))
    assert (instance.lag >= 0).all()
    assert problem.instance(sizes) is instance


def test_bytes_without_bandwidth_are_counted_and_take_no_time() -> None:
    quick, counted = (Problem.from_dict(DATA | {"links": {"latency": 2} | more}) for more in ({}, {"bytes": 1000}))
    for problem, count in ((quick, None), (counted, 1000)):
        timeline = simulate(problem, gpipe(problem))
        assert timeline.makespan == simulate(quick, gpipe(quick)).makespan
        assert timeline.message_bytes == (None if count is None else count * timeline.messages)


def test_bandwidth_is_per_second_whatever_the_unit() -> None:
    """1000 bytes at 1e9 bytes per second are 1 us: 1000 ns, and less than one ms, rounded up."""
    for unit, ticks in (("ns", 1000), ("us", 1), ("ms", 1), ("s", 1)):
        problem = Problem.from_dict(DATA | {"unit": unit, "links": {"bandwidth": 1e9, "bytes": 1000}})
        assert int(problem.instance((1,) * 7).lag.max()) == ticks


def test_messages_of_problems_made_by_hand() -> None:
    problem = Problem.from_dict(DATA)
    with pytest.raises(InputError, match=r"costs.forward: 1 values for 2 stages"):
        replace(problem, forward=(1,))
    with pytest.raises(InputError, match=r"costs.forward\[1\]: 0.5 is not an integer"):
        replace(problem, forward=(1, 0.5))  # type: ignore[arg-type]  # what an untyped caller may do
    with pytest.raises(InputError, match=r"costs.forward\[1\]: True is not an integer"):
        replace(problem, forward=(1, True))
    with pytest.raises(InputError, match=r"costs.forward\[0\]: -1 is not within 0..9007199254740992"):
        replace(problem, forward=(-1, 1))
    with pytest.raises(InputError, match=r"batch.samples: 0 is below 1"):
        replace(problem, samples=0)
    with pytest.raises(InputError, match=r"costs.weight_units: 1 lists for 2 stages"):
        replace(problem, weight_units=((1,),))
    with pytest.raises(InputError, match=r"memory.limit: 1 values for 2 ranks"):
        replace(problem, memory=replace(problem.memory, limit=(None,)))
    with pytest.raises(InputError, match=r"memory.weights: 1 values for 2 stages"):
        replace(problem, memory=replace(problem.memory, weights=(0,)))
    with pytest.raises(InputError, match=r"memory.weights\[1\]: 1 B are more than memory.static\[1\], 0 B, of which"):
        replace(problem, memory=replace(problem.memory, weights=(0, 1)))
    with pytest.raises(InputError, match=r"sizes: 6 samples in all, and the batch has 7"):
        problem.instance((1,) * 6)
