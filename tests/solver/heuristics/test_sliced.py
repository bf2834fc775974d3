"""Seq1F1B, its interleaved form and SVPP: formulas, memory, and what they are where micro-batches are whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings

from adaptpipe.solver import InputError, Kind, Problem, Slices, check, simulate, solve
from adaptpipe.solver.heuristics import one_f_one_b, seq_interleaved, seq_one_f_one_b, svpp
from tests.solver.heuristics.shapes import SHAPES
from tests.solver.heuristics.shapes import problem as shape
from tests.strategies import Data, problem_data

COSTS = [(6, 5, 4), (9, 2, 2), (3, 5, 7)]


def sliced(
    ranks: int, microbatches: int, slices: int, rounds: int = 1, costs: tuple[int, int, int] = (1, 1, 1)
) -> Problem:
    """Equal stages; F, I and W of a slice as given, each slice holding 1 byte."""
    forward, short, weight = (slices * ticks for ticks in costs)
    memory: dict[str, object] = {"activation": slices, "retained": slices}
    whole = shape(ranks, microbatches, "loop", rounds, costs=(forward, short, weight), memory=memory)
    return whole if slices == 1 else replace(whole, slices=Slices.equal(slices))


def group(ranks: int, microbatches: int, slices: int) -> int:
    """Micro-batches of the largest group."""
    return -(-microbatches // max(1, microbatches // -(-ranks // slices)))


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_seq1f1b_formula(ranks: int, microbatches: int) -> None:
    for slices, costs in product((1, 2, 3, 4), COSTS):
        at = sliced(ranks, microbatches, slices, costs=costs)
        timeline = simulate(at, seq_one_f_one_b(at))
        assert timeline.makespan - max(timeline.work) == (ranks - 1) * sum(costs)
        assert timeline.peak_memory == tuple(
            min(microbatches * slices, ranks - 1 - rank + slices) for rank in range(ranks)
        )


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_seq1f1b_interleaved_formula(ranks: int, microbatches: int) -> None:
    for slices, rounds in product((1, 2, 3, 4), (1, 2, 3) if microbatches <= 16 else (2,)):
        costs = COSTS[slices % 3]
        at = sliced(ranks, microbatches, slices, rounds, costs)
        timeline = simulate(at, seq_interleaved(at))
        assert timeline.makespan - max(timeline.work) == (ranks - 1) * sum(costs)
        ahead = (rounds - 1) * group(ranks, microbatches, slices) * slices
        assert timeline.peak_memory[0] == min(microbatches * slices * rounds, ahead + 2 * (ranks - 1) + slices)


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_svpp_formula(ranks: int, microbatches: int) -> None:
    """What the paper prints for memory holds where a group of whole micro-batches has exactly max(p, k) slices."""
    for slices, rounds in product(
        (1, 2, 3, 4), (1, 2, 3) if microbatches <= 8 else (2,) if microbatches <= 16 else (1,)
    ):
        costs = COSTS[slices % 3]
        at = sliced(ranks, microbatches, slices, rounds, costs)
        schedule = svpp(at)
        timeline = simulate(at, schedule)
        assert timeline.makespan - max(timeline.work) == (ranks - 1) * (costs[0] + costs[1])
        most = (rounds - 1) * group(ranks, microbatches, slices) * slices + ranks - 1 + slices
        assert max(timeline.peak_memory) == min(microbatches * slices * rounds, most)
        if (ranks % slices == 0 and microbatches % (ranks // slices) == 0) or slices % ranks == 0:
            assert most == rounds * max(ranks, slices) + min(ranks, slices) - 1


@pytest.mark.parametrize("build", [seq_one_f_one_b, seq_interleaved, svpp])
def test_each_exists_for_every_number_of_slices(build: object) -> None:
    assert callable(build)
    for ranks, slices, microbatches in product(range(1, 5), range(1, 6), (1, 2, 3, 5)):
        for rounds in (1,) if build is seq_one_f_one_b else (1, 2, 3):
            at = sliced(ranks, microbatches, slices, rounds)
            assert check(at, build(at)) == (), (ranks, slices, microbatches, rounds)


def test_whole_micro_batches_make_seq1f1b_1f1b() -> None:
    at = sliced(4, 8, 1)
    assert seq_one_f_one_b(at) == one_f_one_b(at)


@settings(max_examples=50)
@given(problem_data(families=("loop",), limited=False, slices=True))
def test_units_fill_waits_in_the_memory_of_fused_backwards(data: Data) -> None:
    """Where retained is at most activation, no rank holds more than with fused backwards; and F's and I's stay."""
    data["memory"] = {"activation": 9, "retained": 5}
    at = Problem.from_dict(data)
    schedule = svpp(at)
    assert check(at, schedule) == ()
    kept = [tuple(op for op in row if op.kind is not Kind.W) for row in schedule.ops]
    fused = replace(
        schedule,
        ops=tuple(tuple(replace(op, kind=Kind.B if op.kind is Kind.I else op.kind) for op in row) for row in kept),
    )
    pairs = zip(simulate(at, schedule).peak_memory, simulate(at, fused).peak_memory, strict=True)
    assert all(peak <= most for peak, most in pairs)
    even = sliced(at.ranks, at.samples, at.slice_count, at.stages // at.ranks)
    assert kept == [tuple(op for op in row if op.kind is not Kind.W) for row in svpp(even).ops]


def test_weight_gradients_run_gemm_by_gemm() -> None:
    data = {
        "pipeline": {"ranks": 3},
        "batch": {"samples": 3, "slices": 2},
        "costs": {"forward": 20, "backward_input": 20, "weight_units": [12, 12, 12]},
        "memory": {"activation": 2, "retained": 1},
    }
    at = Problem.from_dict(data)
    cut = [op for row in svpp(at).ops for op in row if op.kind is Kind.W and op.units is not None]
    assert cut
    assert simulate(at, svpp(at)).makespan < simulate(at, seq_one_f_one_b(at)).makespan


@pytest.mark.parametrize("name", ["Seq1F1B", "Seq1F1B-I", "SVPP", "MEPipe"])
def test_whole_micro_batches_are_refused_by_name(name: str) -> None:
    with pytest.raises(
        InputError, match=r"batch.slices: \S+ needs slices, and micro-batches are whole; set batch.slices"
    ):
        solve(sliced(2, 4, 1), name)


def test_the_solver_starts_from_them() -> None:
    at = sliced(4, 8, 2, costs=(6, 5, 4))
    values = [simulate(at, build(at)).makespan for build in (seq_one_f_one_b, seq_interleaved, svpp)]
    found = solve(at, time_limit=1)
    assert found.value is not None
    assert found.value <= min(values)
