"""Prices of slices: parts of the whole micro-batch's that add up to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import Affine, InputError, Problem, Slices
from tests.strategies import problems


@given(problems(slices=True))
def test_the_slices_of_a_micro_batch_add_up_to_it(problem: Problem) -> None:
    """But for the fixed parts of affine costs, which every slice pays."""
    slices = problem.slice_count
    sliced = problem.instance(problem.default_sizes())
    plain = replace(problem, slices=None)
    whole = plain.instance(plain.default_sizes())
    assert sliced.microbatches == slices * whole.microbatches
    fixed = {
        "forward": problem.forward,
        "backward_input": problem.backward_input,
        "activation": problem.memory.activation,
        "retained": problem.memory.retained,
    }
    for name, costs in fixed.items():
        once = np.array([cost.fixed if isinstance(cost, Affine) else 0 for cost in costs])[:, None]
        added = getattr(sliced, name).reshape(problem.stages, whole.microbatches, slices).sum(axis=2)
        assert np.array_equal(added, getattr(whole, name) + (slices - 1) * once), name
    parts = sliced.unit_ticks.reshape(problem.stages, whole.microbatches, slices, -1).sum(axis=2)
    paid = [np.cumsum([0] + [u.fixed if isinstance(u, Affine) else 0 for u in units]) for units in problem.weight_units]
    for stage, ticks in enumerate(paid):
        assert np.array_equal(
            parts[stage, :, : len(ticks)], whole.unit_ticks[stage, :, : len(ticks)] + (slices - 1) * ticks
        )


def test_tokens_say_the_bytes_and_work_the_time() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 4, "microbatch_sizes": [2], "slices": {"tokens": [3, 1], "work": [1, 4]}},
            "costs": {"forward": {"fixed": 7, "per_sample": 5}, "backward_input": 10, "weight_units": [5, 15]},
            "memory": {"activation": 8, "retained": {"fixed": 1, "per_sample": 2}},
            "links": {"latency": 1, "bandwidth": 1e6, "bytes": 40},
        }
    )
    instance = problem.instance((2, 2, 2, 2))
    assert instance.forward[0].tolist() == [9, 15, 9, 15]
    assert instance.backward_input[0].tolist() == [2, 8, 2, 8]
    assert instance.unit_ticks[0, :2].tolist() == [[0, 1, 4], [0, 4, 16]]
    assert instance.activation[0].tolist() == [6, 2, 6, 2]
    assert instance.retained[0].tolist() == [4, 2, 4, 2]
    assert sorted(set(instance.lag[instance.lag > 0].tolist())) == [11, 31]
    assert problem.uniform_counts() == (4,)
    assert problem.uniform_sizes(4) == problem.fewest_sizes() == problem.default_sizes() == (2, 2, 2, 2)


def test_messages() -> None:
    with pytest.raises(InputError, match=r"batch.slices: 1 slices, and there are from 2 to 1024; leave batch.slices"):
        Slices((1,), (1,))
    with pytest.raises(InputError, match=r"batch.slices.work: 1 values for 2 slices"):
        Slices((1, 1), (1,))
    with pytest.raises(InputError, match=r"batch.slices.tokens\[1\]: 0 is below 1"):
        Slices((1, 0), (1, 1))
    data = {"pipeline": {"ranks": 2}, "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1}}
    problem = Problem.from_dict(data | {"batch": {"samples": 2, "slices": 2}})
    with pytest.raises(InputError, match="sizes: 2 samples in all, and the batch has 2, 2 times over for the slices"):
        problem.instance((1, 1))


@given(st.lists(st.integers(1, 2**40), min_size=2, max_size=6), st.integers(0, 2**53))
def test_a_large_price_is_cut_exactly(parts: list[int], whole: int) -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 1},
            "batch": {"samples": 1, "slices": {"work": [min(part, 2**31) for part in parts]}},
            "costs": {"forward": whole, "backward_input": 1, "backward_weight": 1},
        }
    )
    ticks = problem.instance(problem.default_sizes()).forward
    assert int(ticks.sum()) == whole
    assert (ticks >= 0).all()
