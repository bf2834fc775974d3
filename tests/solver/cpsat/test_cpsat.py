"""CP-SAT: equal to trying every order on tiny problems, and to known optima; in time; never worse than its hint."""

from __future__ import annotations

import time
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from adaptpipe.solver import Problem, Schedule, check, simulate
from adaptpipe.solver.bounds import infeasible, lower_bound
from adaptpipe.solver.core.ops import Kind, Op
from adaptpipe.solver.cpsat import solve_cpsat
from adaptpipe.solver.cpsat.prices import prices
from adaptpipe.solver.greedy import greedy
from adaptpipe.solver.heuristics import one_f_one_b, one_f_one_b_split
from tests.solver.bounds.test_bounds import published
from tests.solver.oracle import optimum, small
from tests.strategies import problem_data, problems, schedules_of, sizes_of

FAR = 60.0


def soon(seconds: float = FAR) -> float:
    return time.monotonic() + seconds


@settings(max_examples=40)
@given(problems(max_ranks=3, max_samples=3, units=False), st.data())
def test_equal_to_trying_every_order(problem: Problem, data: st.DataObject) -> None:
    """Zero durations too: an op of no duration is in no other op, in model, simulator and oracle alike
    (google/or-tools#3190, dwave-examples/job-shop-scheduling#7)."""
    sizes = data.draw(sizes_of(problem))
    assume(small(problem, sizes))
    best = optimum(problem.instance(sizes))
    for fifo in (True, False):
        schedule, bound, none = solve_cpsat(problem, deadline=soon(), workers=1, sizes=sizes, fifo=fifo)
        assert none == (best is None)
        if best is None:
            assert schedule is None
            assert infeasible(problem, sizes)
        else:
            assert schedule is not None
            assert not check(problem, schedule)
            assert simulate(problem, schedule).makespan == bound == best


@settings(max_examples=60)
@given(
    problem_data(max_ranks=2, families=("linear", "v", "loop", "bidirectional"), sizes=False, units=False),
    st.integers(2, 4),
    st.integers(1, 9),
    st.sampled_from((1, 1.5, 2, 3, 4)),
)
def test_equal_to_trying_every_order_where_memory_is_short(
    data: dict[str, Any], count: int, activation: int, share: float
) -> None:
    """Cuts by the work before an F, by the work that is left, and by what memory lets come first leave optima in."""
    data["batch"]["samples"] = count
    limit = int(share * activation)
    data["memory"] |= {"unit": "B", "activation": activation, "static": 0, "weights": 0, "reserve": 0, "limit": limit}
    problem = Problem.from_dict(data)
    assume(small(problem, (1,) * count))
    best = optimum(problem.instance((1,) * count))
    schedule, bound, none = solve_cpsat(problem, deadline=soon(), workers=1)
    assert none == (best is None)
    if best is not None:
        assert schedule is not None
        assert simulate(problem, schedule).makespan == bound == best


@settings(max_examples=25)
@given(problems(max_ranks=3, max_samples=3, units=False), st.data())
def test_span_is_bounded_from_both_sides(problem: Problem, data: st.DataObject) -> None:
    sizes = data.draw(sizes_of(problem))
    assume(small(problem, sizes))
    best = optimum(problem.instance(sizes), "span")
    assume(best is not None)
    assert best is not None
    schedule, bound, _ = solve_cpsat(problem, "span", deadline=soon(), workers=1, sizes=sizes)
    assert schedule is not None
    assert not check(problem, schedule)
    assert bound <= best <= simulate(problem, schedule).span


@settings(max_examples=30)
@given(problems(max_ranks=3, max_samples=3, units=False, sizes=False, families=("linear",)))
def test_span_of_linear_pipelines_equals_trying_every_order(problem: Problem) -> None:
    """Where micro-batches are alike and ranks pass them on in a line, every rank begins as early as it can."""
    sizes = problem.default_sizes()
    assume(small(problem, sizes))
    best = optimum(problem.instance(sizes), "span")
    schedule, bound, none = solve_cpsat(problem, "span", deadline=soon(), workers=1, sizes=sizes)
    assert none == (best is None)
    if best is not None:
        assert schedule is not None
        assert not check(problem, schedule)
        assert bound <= simulate(problem, schedule).span == best


@settings(max_examples=25)
@given(problems(max_ranks=3, max_samples=4, limited=False), st.sampled_from(("makespan", "span")), st.data())
def test_never_worse_than_the_hint(problem: Problem, objective: Any, data: st.DataObject) -> None:
    """Hints in any order, with micro-batches out of order, with fused, split and cut backwards."""
    hint = data.draw(schedules_of(problem))
    assume(not check(problem, hint))
    schedule, bound, _ = solve_cpsat(problem, objective, hint, deadline=soon(0.5), workers=1)
    assert schedule is not None
    assert not check(problem, schedule)
    assert bound <= simulate(problem, schedule).value(objective) <= simulate(problem, hint).value(objective)


@pytest.mark.parametrize(
    ("share", "v", "value"),
    [(0.5, False, 6993), (0.75, False, 5319), (1, False, 4563), (2, False, 4245), (1, True, 3984), (0.5, True, 5280)],
)
def test_known_optima(share: float, v: bool, value: int) -> None:
    """Values of two independent searches, in hundreds of microseconds."""
    problem = published(4, 8, share, v=v)
    hint = greedy(problem, deadline=soon(1)) if v else None
    schedule, bound, _ = solve_cpsat(problem, hint=hint, bound=lower_bound(problem), deadline=soon(110))
    assert schedule is not None
    assert (simulate(problem, schedule).makespan, bound) == (value, value)


@pytest.mark.parametrize(("p", "share"), [(2, 1), (2, 0.5), (3, 0.34)])
def test_three_micro_batches_equal_brute_force(p: int, share: float) -> None:
    problem = published(p, 3, share)
    best = optimum(problem.instance((1, 1, 1)))
    schedule, bound, _ = solve_cpsat(problem, deadline=soon())
    assert schedule is not None
    assert simulate(problem, schedule).makespan == bound == best


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_micro_batches_than_ranks(count: int) -> None:
    """Training hung at m < p (pytorch/torchtitan#775)."""
    problem = published(4, count, 1)
    schedule, bound, _ = solve_cpsat(problem, deadline=soon())
    assert schedule is not None
    assert simulate(problem, schedule).makespan == bound == lower_bound(problem)


@pytest.mark.parametrize(("count", "seconds"), [(32, 0.05), (24, 0.05), (24, 0.5)])
def test_a_hint_survives_a_limit_that_ends_in_the_presolve(count: int, seconds: float) -> None:
    """Status UNKNOWN although a complete hint was given (google/or-tools#3750, #1126; d-krupke/cpsat-primer#52)."""
    problem = published(8, count, 1)
    hint = one_f_one_b_split(problem)
    schedule, bound, none = solve_cpsat(problem, hint=hint, bound=7, deadline=soon(seconds))
    assert schedule is not None
    assert not none
    assert 7 <= bound <= simulate(problem, schedule).makespan <= simulate(problem, hint).makespan


def test_a_deadline_in_the_past_gives_the_hint_back() -> None:
    problem = published(2, 3, 1)
    hint = one_f_one_b(problem)
    assert solve_cpsat(problem, hint=hint, bound=7, deadline=soon(-1)) == (hint, 7, False)


def test_a_model_too_large_for_the_time_is_not_built() -> None:
    problem, notes = published(16, 256, 1, v=True), list[str]()
    assert solve_cpsat(problem, bound=7, deadline=soon(0.5), on_note=notes.append) == (None, 7, False)
    assert notes == ["the model of 24576 ops takes longer to build than there is time"]


def test_a_solver_that_does_not_stop_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds in the presolve too, which looks at it rarely."""
    released, ended = Event(), Event()

    def stuck(*_: object) -> None:
        released.wait()
        ended.set()

    monkeypatch.setattr(cp_model.CpSolver, "solve", stuck)
    problem = published(2, 3, 1)
    hint = one_f_one_b(problem)
    assert solve_cpsat(problem, hint=hint, bound=7, deadline=soon(0.2)) == (hint, 7, False)
    assert not ended.is_set()
    released.set()


def test_what_goes_wrong_in_the_solver_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(cp_model.CpSolver, "solve", broken)
    with pytest.raises(MemoryError, match="no room"):
        solve_cpsat(published(2, 3, 1), deadline=soon())


def test_each_incumbent_is_told_and_is_better_than_the_last() -> None:
    problem = published(4, 8, 1)
    seen: list[tuple[int, int]] = []

    def told(schedule: Schedule, bound: int) -> None:
        seen.append((simulate(problem, schedule).makespan, bound))

    solve_cpsat(problem, bound=lower_bound(problem), deadline=soon(), on_incumbent=told)
    values = [value for value, _ in seen]
    assert values == sorted(set(values), reverse=True)
    assert values[-1] == 4563
    assert all(4563 <= bound <= value for value, bound in seen)


def test_each_bound_told_is_higher_than_the_last_and_holds() -> None:
    told: list[int] = []
    _, bound, _ = solve_cpsat(published(3, 3, 0.6), deadline=soon(), workers=1, on_bound=told.append)
    best = optimum(published(3, 3, 0.6).instance((1,) * 3))
    assert best is not None
    assert told == sorted(set(told))
    assert told[-1] == bound == best


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_equal_seeds_find_equal_schedules(workers: int) -> None:
    """Also where the budget ends before the proof, and whatever else the machine does meanwhile."""
    problem = published(4, 12, 0.5, v=True)
    hint = one_by_one(problem)

    def run() -> tuple[Schedule | None, int, list[tuple[Schedule, int]]]:
        told: list[tuple[Schedule, int]] = []
        schedule, bound, _ = solve_cpsat(
            problem,
            hint=hint,
            deadline=soon(),
            workers=workers,
            seed=3,
            on_incumbent=lambda schedule, bound: told.append((schedule, bound)),
            deterministic=True,
            budget=0.3,
        )
        return schedule, bound, told

    schedule, bound, told = run()
    assert schedule is not None
    assert bound < simulate(problem, schedule).makespan < simulate(problem, hint).makespan
    assert (schedule, bound, told) == run()


def one_by_one(problem: Problem) -> Schedule:
    """One micro-batch after the other: long, and within any limit."""
    rows: list[list[Op]] = [[] for _ in range(problem.ranks)]
    for j in range(problem.samples):
        for kind, stages in ((Kind.F, range(problem.stages)), (Kind.B, reversed(range(problem.stages)))):
            for s in stages:
                rows[problem.placement.rank_of(s, j, problem.samples)].append(Op(s, kind, j))
    return Schedule(problem.placement, problem.default_sizes(), tuple(tuple(row) for row in rows))


def test_a_budget_ends_the_search() -> None:
    """Of no time at all: what is known is given back."""
    problem = published(2, 3, 1)
    hint = one_f_one_b(problem)
    assert solve_cpsat(problem, hint=hint, bound=7, deadline=soon(), budget=0.0) == (hint, 7, False)


@pytest.mark.parametrize(
    ("share", "fused", "value"),
    [
        (0.75, None, 21271),
        (1, None, 18247),
        (1.5, None, 16972),
        (0.75, 1051, 21051),
        (1, 1051, 18027),
        (1.5, 1051, 16928),
    ],
)
def test_fusing_is_a_choice_where_it_saves_time(share: float, fused: int | None, value: int) -> None:
    """Optima that another model of the same problem proved, without fusing and where fusing saves 4 % of I + W."""
    data: dict[str, Any] = {
        "pipeline": {"ranks": 4},
        "batch": {"samples": 8},
        "costs": {"forward": 740, "backward_input": 724, "backward_weight": 371},
        "links": {"latency": 24},
        "memory": {"activation": 201, "retained": 74, "limit": int(share * 4 * 201)},
    }
    if fused is not None:
        data["costs"]["backward"] = fused
    problem = Problem.from_dict(data)
    schedule, bound, _ = solve_cpsat(problem, bound=lower_bound(problem), deadline=soon())
    assert schedule is not None
    assert simulate(problem, schedule).makespan == bound == value
    kinds = {op.kind.name for row in schedule.ops for op in row}
    assert kinds == ({"F", "I", "W"} if fused is None else {"F", "I", "W", "B"})


def test_an_input_gradient_that_swells_is_fused_where_memory_is_short() -> None:
    """`retained` above `activation`: split, I would need 9 bytes at once; fused, 5 are enough."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 1},
            "batch": {"samples": 2},
            "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
            "memory": {"activation": 5, "retained": 9, "limit": 8},
        }
    )
    schedule, bound, _ = solve_cpsat(problem, deadline=soon())
    assert schedule is not None
    assert [str(op) for op in schedule.ops[0]] == ["0F0", "0B0", "0F1", "0B1"]
    assert bound == 6


def test_classes_keep_sizes_and_directions_apart() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2, "placement": "bidirectional"},
            "batch": {"samples": 6, "microbatch_sizes": [1, 2]},
            "costs": {key: {"fixed": 1, "per_sample": 1} for key in ("forward", "backward_input", "backward_weight")},
        }
    )
    grid = prices(problem.instance((1, 2, 1, 2)))
    assert len(np.unique(grid.group)) == 4
    assert prices(problem.instance((2, 2, 1, 1))).place.tolist() == [0, 1, 0, 1]


def test_a_proof_does_not_abort_the_process() -> None:
    """With dynamic precedences OR-tools 9.15 ended the interpreter here: "adding conflicting constraint"."""
    long = 1000
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 3},
            "batch": {"samples": 4},
            "costs": {"forward": [1, long, 1], "backward_input": [long, 1, 3], "backward_weight": 1},
            "links": {"latency": 1},
        }
    )
    schedule, bound, _ = solve_cpsat(problem, "span", deadline=time.monotonic() + 2)
    assert schedule is not None
    assert bound <= simulate(problem, schedule).span
