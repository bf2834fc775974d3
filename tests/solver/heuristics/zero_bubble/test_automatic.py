"""ZB-1p and ZB-2p: their published values, their authors' orders, and their formulas."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings

from adaptpipe.solver import Problem, check, simulate
from adaptpipe.solver.heuristics import zb_1p, zb_2p
from benchmarks.instances import Published, load, published
from tests.solver.heuristics.shapes import SHAPES, problem
from tests.strategies import Data, problem_data

CELLS = [cell for cell in published() if cell.method in ("ZB-1p", "ZB-2p")]


def test_there_are_24_cells() -> None:
    assert len(CELLS) == 24


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.instance}-{cell.method}")
def test_the_published_cell_within_the_published_memory(cell: Published) -> None:
    at = load(cell.instance + ("-2x" if cell.method == "ZB-2p" else ""))
    schedule = zb_2p(at) if cell.method == "ZB-2p" else zb_1p(at)
    assert check(at, schedule) == (), "the limit is p or 2p activations"
    assert round(simulate(at, schedule).span_bubble, 4) == cell.span_bubble


THEIRS = [
    # p, m, F, I, W, message, activation, retained, memory in p; one for each way to decide that is the best but one
    ((4, 13, 3, 2, 7, 4, 3, 3, 2), "97a917e1b8a5"),
    ((6, 13, 7, 3, 10, 4, 5, 5, 2), "bea2375e7cd4"),
    ((5, 16, 8, 7, 3, 5, 4, 2, 2), "97ba765bd1b3"),
    ((6, 16, 5, 3, 3, 3, 9, 7, 2), "b6b49c930cf7"),
    ((6, 18, 9, 3, 6, 1, 1, 1, 2), "bc0437d22085"),
    ((7, 12, 12, 10, 11, 0, 5, 2, 2), "6737860d9870"),
    ((5, 7, 8, 2, 3, 2, 2, 2, 2), "64d73c3ecd1e"),
]
"""Hashes of the orders that the authors' code makes; commit 39f2c186 of their repository."""


@pytest.mark.parametrize(("numbers", "order"), THEIRS)
def test_the_order_is_that_of_the_authors_code(numbers: tuple[int, ...], order: str) -> None:
    ranks, samples, forward, backward, weight, latency, activation, retained, times = numbers
    memory: dict[str, object] = {"activation": activation, "retained": retained}
    at = problem(ranks, samples, costs=(forward, backward, weight), latency=latency, memory=memory)
    text = "\n".join(" ".join(map(str, row)) for row in (zb_1p if times == 1 else zb_2p)(at).ops)
    assert hashlib.sha256(text.encode()).hexdigest()[:12] == order


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_formulas(ranks: int, microbatches: int) -> None:
    at = problem(ranks, microbatches, costs=(6, 5, 4))
    once = simulate(at, zb_1p(at))
    assert once.span == microbatches * 15 + (ranks - 1) * (6 + 5 - 4)
    assert max(once.peak_memory) == ranks
    equal = problem(ranks, microbatches, costs=(5, 5, 5))
    twice = simulate(equal, zb_2p(equal))
    assert max(twice.peak_memory) <= min(microbatches, 2 * ranks)
    assert twice.span == microbatches * 15 + (0 if microbatches >= 2 * ranks else (ranks - 1) * 5)


@given(problem_data(families=("linear",), sizes=False))
@settings(max_examples=40)
def test_memory_is_p_or_2p_activations_where_w_needs_no_more_than_f(data: Data) -> None:
    data["memory"] = {"activation": 7, "retained": min(data["memory"]["static"], 7)}
    at = Problem.from_dict(data)
    for times, build in ((1, zb_1p), (2, zb_2p)):
        assert max(simulate(at, build(at)).peak_memory) <= times * at.ranks * 7


def test_a_forward_that_costs_more_than_the_next_ranks_does_not_stop_the_schedule() -> None:
    """The second rank would run all its micro-batches ahead while the first cannot."""
    data = {"pipeline": {"ranks": 3}, "batch": {"samples": 3}, "memory": {"activation": 1, "retained": 1}}
    at = Problem.from_dict(
        {**data, "costs": {"forward": [90, 1, 50], "backward_input": [1, 1, 50], "backward_weight": 1}}
    )
    assert check(at, zb_2p(at)) == ()
