"""Which divisions of the batch are tried."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import Problem
from adaptpipe.solver.core.division import divisions
from adaptpipe.solver.core.granularity import ALL, NONE
from adaptpipe.solver.portfolio.choices import Choices


def problem(samples: int, sizes: tuple[int, ...], **memory: Any) -> Problem:
    cost = {"fixed": 2, "per_sample": 3}
    return Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": samples, "microbatch_sizes": list(sizes)},
            "costs": dict.fromkeys(("forward", "backward_input", "backward_weight"), cost),
            "memory": {"activation": cost, "retained": cost} | memory,
        }
    )


def choices(of: Problem, uneven: bool) -> Choices:
    return Choices(of, None, lambda sizes: len(sizes), time.monotonic() + 60, ALL if uneven else NONE)


@given(st.integers(1, 12), st.sampled_from([(1, 2, 3), (1, 4), (2, 3, 5), (1, 2, 4, 8)]))
def test_all_divisions_or_the_near_uniform_ones(samples: int, sizes: tuple[int, ...]) -> None:
    if not any(divisions(samples, sizes)):
        return
    of = problem(samples, sizes)
    every = choices(of, uneven=True)
    assert set(every.first) == set(divisions(samples, sizes))
    assert every.complete
    even = {of.uniform_sizes(count) for count in of.uniform_counts()}
    found = choices(of, uneven=False)
    assert set(found.first) == (even or {of.fewest_sizes()})
    assert [len(each) for each in found.first] == sorted(len(each) for each in found.first)


def test_what_was_left_out_is_said() -> None:
    of = problem(6, (1, 2, 3))
    assert str(choices(of, uneven=True)).startswith("all 7 divisions of the batch")
    assert str(choices(of, uneven=False)) == "5 near-uniform divisions of the batch into micro-batches were looked at"


def test_sums_of_many_large_sizes_are_not_looked_at() -> None:
    """64 micro-batches of 151 sizes: which samples each number of sizes adds up to would be 60 MB."""
    of = problem(48_000, tuple(range(750, 901)))
    found = choices(of, uneven=True)
    assert not found.complete
    assert set(found.first) == {*map(of.uniform_sizes, of.uniform_counts()), of.fewest_sizes()}


def test_an_uneven_one_is_taken_where_no_near_uniform_one_fits() -> None:
    """Eight samples in sizes of 3 and 5 have no near-uniform division; what does not fit is in no list."""
    of = problem(8, (3, 5), limit=40)
    assert choices(of, uneven=False).first == [(3, 5)]
    assert choices(problem(9, (4, 5), limit=10), uneven=False).first == []
