"""Divisions of a batch: against trying everything, and quick for large batches."""

from __future__ import annotations

from itertools import combinations_with_replacement

from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import Problem
from adaptpipe.solver.bounds import infeasible, lower_bound
from adaptpipe.solver.core.division import divisions, fewest, uniform_counts

batches = st.integers(1, 12), st.sets(st.integers(1, 6), min_size=1).map(lambda sizes: tuple(sorted(sizes)))


def everything(samples: int, sizes: tuple[int, ...]) -> set[tuple[int, ...]]:
    counts = range(1, samples + 1)
    return {row for count in counts for row in combinations_with_replacement(sizes, count) if sum(row) == samples}


@given(*batches)
def test_divisions_are_all_there_are_each_once(samples: int, sizes: tuple[int, ...]) -> None:
    found = list(divisions(samples, sizes))
    assert len(found) == len(set(found))
    assert set(found) == everything(samples, sizes)


@given(*batches)
def test_fewest_is_the_shortest_of_all(samples: int, sizes: tuple[int, ...]) -> None:
    found, known = fewest(samples, sizes), everything(samples, sizes)
    assert found is None if not known else found in known
    assert found is None or len(found) == min(map(len, known))


@given(*batches)
def test_uniform_counts_are_those_of_even_divisions(samples: int, sizes: tuple[int, ...]) -> None:
    even = {len(row) for row in everything(samples, sizes) if row[-1] - row[0] <= 1}
    found = list(uniform_counts(samples, sizes))
    assert found == sorted(even, reverse=True)


def test_a_batch_of_a_million_samples_fits_in_memory() -> None:
    cost = {"fixed": 1, "per_sample": 1}
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 999_997, "microbatch_sizes": [3, 5]},
            "costs": dict.fromkeys(("forward", "backward_input", "backward_weight"), cost),
        }
    )
    sizes = problem.default_sizes()
    assert (sum(sizes), sizes[:4], len(sizes)) == (999_997, (3, 3, 3, 3), 200_001)
    assert not infeasible(problem)
    assert lower_bound(problem) >= 3 * 999_997
