"""1F1B, eager and interleaved, where messages take time: formulas, and the published column that no order has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adaptpipe.solver.core.ops import Kind, Op
from adaptpipe.solver.core.problem import Problem
from adaptpipe.solver.core.schedule import Schedule
from adaptpipe.solver.evaluate.check import check
from adaptpipe.solver.evaluate.simulate import simulate
from adaptpipe.solver.heuristics import (
    eager_one_f_one_b,
    gpipe,
    interleaved,
    interleaved_wide,
    looped_bfs,
    one_f_one_b,
)
from adaptpipe.solver.methods import find_method
from benchmarks.instances import load
from tests.solver.heuristics.shapes import SHAPES, problem

F, I, W = 6, 5, 4  # noqa: E741 - PyTorch's letter
LAYERS = {"1.5b": 3, "6.2b": 4, "14.6b": 3, "28.3b": 2}
"""Layers of a rank, hence its stages, in Table 5; it is 2 in Table 8."""
PRINTED = {
    "zb-table5-1.5b-p8": {24: 0.1055, 32: 0.0818, 64: 0.0443},
    "zb-table5-6.2b-p8": {24: 0.0808, 32: 0.0628, 64: 0.0320},
    "zb-table5-14.6b-p16": {48: 0.1104, 64: 0.0852, 128: 0.0445},
    "zb-table5-28.3b-p32": {96: 0.1493, 128: 0.1164, 256: 0.0624},
    "zb-table8-6.2b-p16": {48: 0.1499, 64: 0.1169, 128: 0.0621},
    "zb-table8-14.6b-p24": {72: 0.1519, 96: 0.1184, 192: 0.0630},
    "zb-table8-28.3b-p32": {96: 0.1509, 128: 0.1177, 256: 0.0626},
}
"""Column 1F1B-I of Qi et al., arXiv 2401.10241, Tables 5 and 8, by instance and micro-batches."""
CELLS = [(name, m, rate) for name, rates in PRINTED.items() for m, rate in rates.items()]


def looped(name: str, microbatches: int) -> Problem:
    """A row of the tables with v stages on each rank, every time multiplied by v."""
    row = load(f"{name}-m{microbatches}" + ("" if "table5" in name else "-linear"))
    rounds = LAYERS[name.split("-")[2]] if "table5" in name else 2
    instance = row.instance(row.default_sizes())
    forward, backward, weight = (
        int(part[0, 0]) for part in (instance.forward, instance.backward_input, instance.backward_weight)
    )
    latency = rounds * row.links.latency[0][1]
    return problem(row.ranks, microbatches, "loop", rounds, costs=(forward, backward, weight), latency=latency)


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_one_f_one_b_pays_a_round_trip_per_rank_and_eager_does_not(ranks: int, microbatches: int) -> None:
    for latency in (0, 2, 7):
        at = problem(ranks, microbatches, latency=latency)
        work = (microbatches + ranks - 1) * (F + I + W)
        trips = 2 * (ranks - 1) * (microbatches // ranks + 1) - 2
        assert simulate(at, one_f_one_b(at)).makespan == work + trips * latency
        timeline = simulate(at, eager_one_f_one_b(at))
        assert timeline.makespan == work + 2 * (ranks - 1) * latency
        assert timeline.peak_memory == tuple(min(microbatches, 2 * (ranks - r) - 1) for r in range(ranks))


def test_eager_exists_for_every_shape() -> None:
    for ranks in range(1, 7):
        for microbatches in range(1, 15):
            at = problem(ranks, microbatches)
            assert check(at, eager_one_f_one_b(at)) == (), (ranks, microbatches)


@pytest.mark.parametrize("build", [interleaved_wide, looped_bfs])
def test_looped_schedules_exist_for_every_shape(build: Callable[[Problem], Schedule]) -> None:
    for ranks in range(1, 6):
        for rounds in range(1, 4):
            for microbatches in range(1, 16):
                at = problem(ranks, microbatches, "loop", rounds)
                assert check(at, build(at)) == (), (ranks, rounds, microbatches)


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_wide_groups_hide_the_messages_that_go_round(ranks: int, microbatches: int) -> None:
    for rounds in (1, 2, 3, 4):
        at = problem(ranks, microbatches, "loop", rounds)
        timeline = simulate(at, interleaved_wide(at))
        work = (microbatches * rounds + ranks - 1) * (F + I + W)
        assert timeline.makespan == work
        largest = -(-microbatches // max(1, microbatches // (ranks + 1)))
        held = (rounds - 1) * largest + (2 * ranks - 1 if rounds > 1 else ranks)
        assert timeline.peak_memory[0] == min(microbatches * rounds, held)
        if rounds > 1 and microbatches > ranks:
            at = problem(ranks, microbatches, "loop", rounds, costs=(50, 40, 20), latency=5)
            work = (microbatches * rounds + ranks - 1) * 110
            assert simulate(at, interleaved_wide(at)).makespan == work + 2 * (ranks - 1) * 5
            assert simulate(at, interleaved(at)).makespan == work + (2 * ranks * rounds - 2) * 5


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_looped_breadth_first_formula_and_the_same_times_in_gpipes_order(ranks: int, microbatches: int) -> None:
    for rounds in (1, 2, 3):
        at = problem(ranks, microbatches, "loop", rounds)
        timeline = simulate(at, looped_bfs(at))
        assert timeline.makespan == (microbatches * rounds + ranks - 1) * (F + I + W)
        assert timeline.peak_memory == (microbatches * rounds,) * ranks
        slow = problem(ranks, microbatches, "loop", rounds, latency=3)
        one, other = simulate(slow, looped_bfs(slow)), simulate(slow, gpipe(slow))
        assert one.schedule != other.schedule or microbatches == 1
        assert (one.start == other.start).all()
        assert one.peak_memory == other.peak_memory


def test_looped_breadth_first_runs_slices_in_their_order() -> None:
    at = Problem.from_dict(
        {
            "pipeline": {"ranks": 2, "placement": "loop", "stages_per_rank": 2},
            "batch": {"samples": 3, "slices": 2},
            "costs": {"forward": 4, "backward_input": 4, "backward_weight": 4},
        }
    )
    assert check(at, find_method("LoopedBFS").schedule(at)) == ()


@pytest.mark.parametrize(("name", "microbatches", "rate"), CELLS)
def test_interleaved_is_ranks_times_a_message_above_the_printed_cell(name: str, microbatches: int, rate: float) -> None:
    """And wide groups are below it."""
    at = looped(name, microbatches)
    timeline = simulate(at, interleaved(at))
    latency, work = at.links.latency[0][1], max(timeline.work)
    rounds = at.stages // at.ranks
    once = work // (microbatches * rounds)
    assert timeline.makespan == work + (at.ranks - 1) * once + (2 * at.ranks * rounds - 2) * latency
    assert round(1 - work / (timeline.makespan - at.ranks * latency), 4) == rate
    wide = simulate(at, interleaved_wide(at))
    assert wide.makespan == work + (at.ranks - 1) * once + 2 * (at.ranks - 1) * latency
    assert round(wide.bubble, 4) < rate


@pytest.mark.parametrize(("name", "microbatches", "rate"), CELLS[:4])
def test_the_printed_cell_comes_out_where_gradients_that_go_round_are_not_waited_for(
    name: str, microbatches: int, rate: float
) -> None:
    """Their simulation: only the first micro-batch of a group waits for what comes from rank 0 to rank p - 1."""
    at = looped(name, microbatches)
    work = max(simulate(at, interleaved(at)).work)
    rates = [1 - work / makespan_without(at, goes_round(at, kind)) for kind in (Kind.F, Kind.B)]
    printed, ours = rates[1], simulate(at, interleaved(at)).bubble
    assert round(printed, 4) == rate
    assert rates[0] == pytest.approx(ours), "the forwards that go round are never late"


def goes_round(at: Problem, kind: Kind) -> Callable[[Op], bool]:
    """Whether an op of that kind gets its message from the loop's other end, and is not the first of its group."""
    edge = 0 if kind is Kind.F else at.ranks - 1
    return lambda op: op.kind is kind and op.stage % at.ranks == edge and op.microbatch % at.ranks != 0


def makespan_without(at: Problem, ignored: Callable[[Op], bool]) -> int:
    """Makespan of the interleaved order where some ops do not wait for their message."""
    instance = at.instance(at.default_sizes())
    forward, backward = int(instance.forward[0, 0]), int(instance.backward[0, 0])
    latency, last = at.links.latency[0][1], at.stages - 1
    rows = interleaved(at).ops
    ends: dict[tuple[Kind, int, int], int] = {}
    clocks, done = [0] * at.ranks, [0] * at.ranks
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while done[rank] < len(row):
                op = row[done[rank]]
                source = op.stage - 1 if op.kind is Kind.F else op.stage + 1
                start = clocks[rank]
                if 0 <= source <= last and not ignored(op):
                    if (op.kind, source, op.microbatch) not in ends:
                        break
                    start = max(start, ends[op.kind, source, op.microbatch] + latency)
                clocks[rank] = start + (forward if op.kind is Kind.F else backward)
                ends[op.kind, op.stage, op.microbatch] = clocks[rank]
                done[rank] += 1
                moved = True
    assert done == [len(row) for row in rows]
    return max(clocks)
