"""The annealer's moves that change what ops are: all of them happen, and find what they are for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adaptpipe.solver import Kind, Op, Problem, Schedule, check, simulate
from adaptpipe.solver.anneal import anneal, kernel
from adaptpipe.solver.anneal.state import PIECES, State
from adaptpipe.solver.bounds import lower_bound
from adaptpipe.solver.core.granularity import NONE, Granularity
from adaptpipe.solver.heuristics import one_f_one_b_split, zb_v
from tests.solver.oracle import optimum


def priced(ranks: int, samples: int, placement: str = "linear", units: int = 4, **costs: Any) -> Problem:
    """1.5B costs, in whole and even units; a fused backward saves 4 %."""
    weight = 4664 if placement == "v" else 9336
    forward, back = (9261, 9043) if placement == "v" else (18522, 18086)
    stages = ranks * (2 if placement == "v" else 1)
    data = {
        "pipeline": {"ranks": ranks, "placement": placement},
        "batch": {"samples": samples},
        "costs": {
            "forward": forward,
            "backward_input": back,
            "backward": (back + weight) * 96 // 100,
            "weight_units": [[weight // units] * units] * stages,
            "overhead": weight * 2 // 100,
            **costs,
        },
        "links": {"latency": 601},
        "memory": {"activation": 201, "retained": 74, "limit": 201 * stages},
    }
    return Problem.from_dict(data)


def test_every_kind_of_move_happens_and_is_undone_by_another() -> None:
    problem = priced(4, 12)
    state = State(problem, one_f_one_b_split(problem, None), "makespan", 0)
    state.run(200_000, state.mean_ticks, 0.0, -1)
    assert (state.counters[kernel.BY_KIND :] > 20).all()


@pytest.mark.parametrize(
    ("granularity", "kinds"),
    [
        ("fused,units", {"F", "I", "W", "B", "part"}),
        ("fused", {"F", "I", "W", "B"}),
        ("units", {"F", "I", "W", "part"}),
        ("none", {"F", "I", "W"}),
    ],
)
def test_schedules_have_what_may_be_chosen_and_nothing_else(granularity: str, kinds: set[str]) -> None:
    chosen = Granularity.parse(granularity)
    problem = chosen.restricted(priced(4, 12))
    state = State(problem, one_f_one_b_split(problem, None), "makespan", 0, chosen)
    seen = set[str]()
    for _ in range(20):
        state.run(5_000, state.mean_ticks, state.mean_ticks, -1)
        state.values[kernel.BEST] = 2**62
        state.run(1, 0.0, 0.0, -1)
        state.restart(state.now.best.copy())
        for row in state.best_schedule().ops:
            seen |= {"part" if op.units else op.kind.name for op in row}
    assert seen == kinds


def ranges_of(problem: Problem, start: Schedule) -> Schedule:
    """The schedule with every W cut into its units."""

    def parts(op: Op) -> tuple[Op, ...]:
        units = range(len(problem.weight_units[op.stage])) if op.kind is Kind.W else ()
        return tuple(Op(op.stage, op.kind, op.microbatch, (u, u + 1)) for u in units) or (op,)

    return Schedule(start.placement, start.sizes, tuple(tuple(p for op in row for p in parts(op)) for row in start.ops))


def test_more_ranges_than_there_is_room_for_by_rule() -> None:
    problem = priced(3, 8)
    whole = one_f_one_b_split(problem, None)
    start = ranges_of(problem, whole)
    state = State(problem, start, "makespan", 0)
    assert len(problem.weight_units[0]) > PIECES
    assert state.best_schedule() == start
    better = anneal(problem, start, iterations=60_000)
    assert check(problem, better) == ()
    # The overhead of most ranges is gone.
    assert simulate(problem, better).makespan < simulate(problem, whole).makespan


def test_what_to_fuse_is_found_from_a_split_start_to_the_bound() -> None:
    problem = priced(4, 32, "v")
    split = NONE.restricted(problem)
    start = zb_v(split, None)
    bound = lower_bound(problem)
    better = anneal(problem, start, iterations=400_000, target=bound)
    assert simulate(problem, better).makespan <= 1.003 * bound
    assert simulate(problem, better).makespan < 0.983 * lower_bound(split)
    fused = np.mean(better.table.kind[better.table.kind % 2 == 1] == Kind.B)
    assert 0.2 < fused < 0.95


@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_moves_give_the_same_schedule(workers: int) -> None:
    problem = priced(4, 12, "v")
    start = zb_v(NONE.restricted(problem), None)
    one, two = (anneal(problem, start, iterations=30_000, seed=5, workers=workers) for _ in range(2))
    assert one == two
    assert (one.table.kind == Kind.B).any()
    assert simulate(problem, one).makespan < simulate(problem, start).makespan


CASES: dict[str, dict[str, Any]] = {
    "fused": {
        "batch": {"samples": 2},
        "costs": {"forward": [6, 9], "backward_input": [9, 7], "weight_units": [[5, 2], [1, 2]], "backward": [15, 9]},
        "links": {"latency": 4},
        "memory": {"activation": 4, "retained": 3, "limit": 12},
    },
    "units": {
        "batch": {"samples": 2},
        "costs": {"forward": [9, 5], "backward_input": [4, 2], "weight_units": [[5, 3, 4], [4, 5, 4]], "backward": 14},
        "links": {"latency": 1},
        "memory": {"activation": 4, "retained": 3, "limit": 15},
    },
    "fused,units": {
        "batch": {"samples": 3},
        "costs": {"forward": [7, 3], "backward_input": [8, 4], "weight_units": [[4, 1], [4, 6]], "backward": [10, 11]},
        "links": {"latency": 1},
        "memory": {"activation": 4, "retained": 4, "limit": 9},
    },
}


@pytest.mark.parametrize("needed", CASES)
def test_the_optimum_where_nothing_less_reaches_it(needed: str) -> None:
    problem = Problem.from_dict({"pipeline": {"ranks": 2}, **CASES[needed]})
    instance = problem.instance(problem.default_sizes())
    best = optimum(instance)
    assert best is not None
    for less in {"fused", "units", "none"} - {needed}:
        value = optimum(instance, granularity=Granularity.parse(less))
        assert value is not None
        assert value > best
    start = one_f_one_b_split(problem, None)
    better = anneal(problem, start, iterations=50_000, target=best)
    assert check(problem, better) == ()
    assert simulate(problem, better).makespan == best
