"""The ILP: equal to trying every order and to CP-SAT; every valid schedule is a solution of it; honest when stopped."""

from __future__ import annotations

import time
from typing import Any, Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Problem, Schedule, check, simulate, solve
from adaptpipe.solver.bounds import lower_bound
from adaptpipe.solver.core.granularity import ALL, NONE
from adaptpipe.solver.core.result import Objective
from adaptpipe.solver.cpsat import solve_cpsat
from adaptpipe.solver.cpsat.prices import prices
from adaptpipe.solver.heuristics import one_f_one_b, one_f_one_b_split
from adaptpipe.solver.ilp import search, solve_ilp
from adaptpipe.solver.ilp.model import binaries, build
from adaptpipe.solver.ilp.sets import Sets
from adaptpipe.solver.ilp.variables import Variables
from adaptpipe.solver.ilp.warm_start import order_of, warm_start
from tests.solver.bounds.test_bounds import OBJECTIVES, published, small
from tests.solver.oracle import optimum
from tests.strategies import problems, schedules_of, sizes_of

BackendName = Literal["highs", "cbc"]
BACKENDS: tuple[BackendName, ...] = ("highs", "cbc")
FAR = 60.0


def soon(seconds: float = FAR) -> float:
    return time.monotonic() + seconds


def quick(problem: Problem) -> Schedule:
    """The optimum of a small problem by HiGHS."""
    schedule, bound, _ = solve_ilp(problem, deadline=soon(), workers=1)
    assert schedule is not None
    assert simulate(problem, schedule).makespan == bound
    return schedule


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_program_that_cbc_once_called_infeasible(backend: BackendName) -> None:
    """Its preprocessing did; one rank with two stages and two micro-batches, which nothing keeps apart."""
    costs = {"forward": 1, "backward_input": 3, "backward_weight": 24}
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 1, "placement": "loop", "stages_per_rank": 2},
            "batch": {"samples": 2},
            "costs": costs,
            "memory": {"activation": 1, "retained": 0},
        }
    )
    schedule, bound, none = solve_ilp(problem, deadline=soon(), workers=1, backend=backend)
    assert schedule is not None
    assert (bound, none) == (2 * 2 * sum(costs.values()), False)


@settings(max_examples=40)
@given(
    problems(max_ranks=3, max_samples=3, units=False), st.sampled_from(OBJECTIVES), st.sampled_from(BACKENDS), st.data()
)
def test_equal_to_trying_every_order(
    problem: Problem, objective: Objective, backend: BackendName, data: st.DataObject
) -> None:
    """Zero durations too (google/or-tools#3190), and infeasible ones, which have no values (coin-or/pulp#517)."""
    sizes = data.draw(sizes_of(problem))
    assume(small(problem, len(sizes)))
    best = optimum(problem.instance(sizes), objective)
    schedule, bound, none = solve_ilp(problem, objective, deadline=soon(), workers=1, sizes=sizes, backend=backend)
    assert none == (best is None)
    if best is None:
        assert schedule is None
    else:
        assert schedule is not None
        assert not check(problem, schedule)
        assert simulate(problem, schedule).value(objective) == bound == best


@settings(max_examples=25)
@given(problems(max_ranks=4, max_samples=6, units=False), st.data())
def test_equal_to_cp_sat_where_both_prove(problem: Problem, data: st.DataObject) -> None:
    sizes = data.draw(sizes_of(problem))
    assume(binaries(Sets(prices(problem.instance(sizes))), "makespan") <= 120)
    one, proven, none = solve_ilp(problem, deadline=soon(4), workers=1, sizes=sizes)
    other, bound, nothing = solve_cpsat(problem, deadline=soon(4), workers=1, sizes=sizes)
    if one is None or other is None:
        assert not (none and other is not None)
        assert not (nothing and one is not None)
        return
    assert not check(problem, one)
    value, best = simulate(problem, one).makespan, simulate(problem, other).makespan
    assert max(proven, bound) <= min(value, best)
    if proven == value and bound == best:
        assert value == best


@settings(max_examples=40)
@given(problems(max_ranks=3, max_samples=4, units=False, limited=False), st.sampled_from(OBJECTIVES), st.data())
def test_every_schedule_is_a_solution(problem: Problem, objective: Objective, data: st.DataObject) -> None:
    """Nothing is left out: the values of a random valid schedule keep every constraint."""
    schedule = data.draw(schedules_of(problem))
    assume(not check(problem, schedule))
    timeline = simulate(problem, schedule)
    sets = Sets(prices(problem.instance(schedule.sizes), search.LONGEST))
    v = build(sets, objective, 0, sets.prices.horizon)
    assert v is not None
    order = order_of(sets, schedule)
    assert order is not None
    warm_start(v, order)
    broken = [str(constraint) for constraint in v.model.constraints() if not constraint.valid(1e-6)]
    assert not broken
    for variable in v.model.variables():
        assert variable.valid(1e-6), variable.name
    assert v.value.varValue * sets.prices.step <= timeline.value(objective)


@settings(max_examples=20)
@given(problems(max_ranks=3, max_samples=3, limited=False), st.sampled_from(OBJECTIVES), st.data())
def test_never_worse_than_the_hint(problem: Problem, objective: Objective, data: st.DataObject) -> None:
    """Hints in any order, with fused, split and cut backwards."""
    hint = data.draw(schedules_of(problem))
    assume(not check(problem, hint))
    backend = data.draw(st.sampled_from(BACKENDS))
    schedule, bound, none = solve_ilp(problem, objective, hint, deadline=soon(0.5), workers=1, backend=backend)
    assert schedule is not None
    assert not none
    assert not check(problem, schedule)
    assert bound <= simulate(problem, schedule).value(objective) <= simulate(problem, hint).value(objective)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_known_optimum(backend: BackendName) -> None:
    """The value that CP-SAT proves, from a worse start and without a bound of ours."""
    problem = published(3, 6, 1)
    hint = one_f_one_b_split(problem)
    schedule, bound, _ = solve_ilp(problem, hint=hint, deadline=soon(), workers=1, backend=backend)
    assert schedule is not None
    assert simulate(problem, hint).makespan > 3348 == simulate(problem, schedule).makespan == bound


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_micro_batches_than_ranks(backend: BackendName, count: int) -> None:
    """Training hung at m < p (pytorch/torchtitan#775)."""
    problem = published(4, count, 1)
    schedule, bound, _ = solve_ilp(problem, deadline=soon(), workers=1, backend=backend)
    assert schedule is not None
    assert simulate(problem, schedule).makespan == bound == lower_bound(problem)


@pytest.mark.parametrize(
    "costs",
    [
        {"forward": 3, "backward_input": 3, "backward_weight": [2, 0, 2]},
        {"forward": [3, 0, 3], "backward_input": 3, "backward_weight": 0},
        {"forward": 0, "backward_input": 0, "backward_weight": 1},
        {"forward": 0, "backward_input": 0, "backward_weight": 0},
    ],
)
@pytest.mark.parametrize("limit", [4, 8])
def test_ops_of_no_duration(costs: dict[str, Any], limit: int) -> None:
    """A task of no duration could not lie inside another (dwave-examples/job-shop-scheduling#7): here it is run between
    others, in model, simulator and CP-SAT alike, and is in the op list."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 3},
            "batch": {"samples": 4},
            "costs": costs,
            "memory": {"activation": 2, "retained": 1, "limit": limit},
        }
    )
    schedule = quick(problem)
    other, bound, _ = solve_cpsat(problem, deadline=soon(), workers=1)
    assert other is not None
    assert simulate(problem, schedule).makespan == simulate(problem, other).makespan == bound
    assert [len(row) for row in schedule.ops] == [12, 12, 12]


def test_fusing_is_a_choice_where_it_saves_time() -> None:
    data: dict[str, Any] = {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 4},
        "costs": {"forward": 740, "backward_input": 724, "backward_weight": 371, "backward": 1051},
        "links": {"latency": 24},
        "memory": {"activation": 201, "retained": 74, "limit": 402},
    }
    problem = Problem.from_dict(data)
    schedule = quick(problem)
    best, bound, _ = solve_cpsat(problem, deadline=soon(), workers=1)
    assert best is not None
    assert simulate(problem, schedule).makespan == bound
    assert {op.kind.name for row in schedule.ops for op in row} == {"F", "I", "W", "B"}


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
    assert [str(op) for op in quick(problem).ops[0]] == ["0F0", "0B0", "0F1", "0B1"]


@pytest.mark.parametrize(("seconds", "backend"), [(0.2, "highs"), (1.0, "highs"), (0.2, "cbc"), (1.0, "cbc")])
@pytest.mark.parametrize("hinted", [False, True])
def test_a_time_limit_is_kept_and_nothing_is_claimed(seconds: float, backend: BackendName, hinted: bool) -> None:
    """After a limit, "Optimal" stood for an incumbent, and "Infeasible" for "none found" (coin-or/pulp#649, #383)."""
    problem = published(4, 12, 0.75)
    hint = serial(problem) if hinted else None
    started = time.monotonic()
    schedule, bound, none = solve_ilp(problem, hint=hint, deadline=soon(seconds), workers=1, backend=backend)
    assert time.monotonic() - started < seconds + 20  # a hang, not a slow machine
    assert not none
    assert schedule is not None or not hinted
    if schedule is not None:
        assert not check(problem, schedule)
        assert bound < simulate(problem, schedule).makespan


def serial(problem: Problem) -> Schedule:
    """One micro-batch after the other."""
    stages, count = problem.stages, problem.samples
    rows = [[f"{s}{kind}{j}" for j in range(count) for kind in "FB"] for s in range(stages)]
    return Schedule.parse(problem.placement, (1,) * count, rows)


@pytest.mark.parametrize("backend", BACKENDS)
def test_infeasible_has_no_schedule(backend: BackendName) -> None:
    """An infeasible model still had values (coin-or/pulp#517)."""
    problem = published(2, 2, 0.4)
    assert solve_ilp(problem, bound=7, deadline=soon(), backend=backend) == (None, 7, True)


def test_a_large_problem_is_told_and_left_alone() -> None:
    problem, notes = published(8, 24, 1), list[str]()
    hint = one_f_one_b_split(problem)
    assert solve_ilp(problem, hint=hint, bound=7, deadline=soon(), on_note=notes.append) == (hint, 7, False)
    (note,) = notes
    assert note.startswith("the ILP is a reference for small problems, and this one has 6624 binaries (576 ops)")
    notes.clear()
    assert solve_ilp(published(16, 128, 1), deadline=soon(), on_note=notes.append) == (None, 0, False)
    assert "6144 ops, above 3000" in notes[0]


def test_a_program_too_slow_to_build_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(sets: Sets, objective: Objective, bound: int, latest: int, _: float) -> Variables | None:
        return build(sets, objective, bound, latest, soon(-1))

    monkeypatch.setattr(search, "build", late)
    problem, notes = published(2, 3, 1), list[str]()
    hint = one_f_one_b(problem)
    assert solve_ilp(problem, hint=hint, bound=7, deadline=soon(), on_note=notes.append) == (hint, 7, False)
    assert notes == ["the program of 18 ops takes longer to build than there is time"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_a_limit_it_runs_to_the_proof(backend: BackendName) -> None:
    """With any number of workers, one after the other in one process."""
    for workers in (1, 2, 1):
        schedule, bound, _ = solve_ilp(published(2, 3, 1), backend=backend, workers=workers, seed=workers)
        assert schedule is not None
        assert bound == 1674


def test_a_hint_that_meets_the_bound_is_the_answer() -> None:
    problem = published(8, 24, 1)
    hint = one_f_one_b_split(problem)
    value = simulate(problem, hint).makespan
    assert solve_ilp(problem, hint=hint, bound=value, on_note=pytest.fail) == (hint, value, False)


def test_a_deadline_in_the_past_gives_the_hint_back() -> None:
    problem = published(2, 3, 1)
    hint = one_f_one_b(problem)
    assert solve_ilp(problem, hint=hint, bound=7, deadline=soon(-1)) == (hint, 7, False)


def test_each_incumbent_is_told_and_is_better_than_the_last() -> None:
    problem = published(3, 6, 1)
    seen: list[int] = []
    solve_ilp(
        problem,
        deadline=soon(),
        workers=1,
        on_incumbent=lambda schedule, _: seen.append(simulate(problem, schedule).makespan),
    )
    assert seen == sorted(set(seen), reverse=True)
    assert seen[-1] == 3348


def scaled(factor: int, extra: int = 0) -> Problem:
    return Problem.from_dict(
        {
            "unit": "ns",
            "pipeline": {"ranks": 2},
            "batch": {"samples": 3},
            "costs": {
                "forward": 185 * factor + extra,
                "backward_input": 181 * factor,
                "backward_weight": 93 * factor,
            },
            "links": {"latency": 6 * factor},
            "memory": {"unit": "GB", "activation": 80, "retained": 30, "limit": 160},
        }
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_long_durations_are_scaled(backend: BackendName) -> None:
    """Coefficients of any size (google/or-tools#4352, #2343): exactly where they have a common divisor."""
    plain, long = (solve_ilp(scaled(factor), deadline=soon(), workers=1, backend=backend) for factor in (1, 10**11))
    assert plain[0] is not None
    assert long[0] is not None
    assert long[1] == plain[1] * 10**11 == simulate(scaled(10**11), long[0]).makespan


@pytest.mark.parametrize("backend", BACKENDS)
def test_durations_far_apart_are_rounded_down_and_simulated_in_ticks(backend: BackendName) -> None:
    problem, notes = scaled(10**12, extra=1), list[str]()
    schedule, bound, _ = solve_ilp(problem, deadline=soon(), workers=1, backend=backend, on_note=notes.append)
    assert schedule is not None
    value = simulate(problem, schedule).makespan
    assert bound <= value < bound * (1 + 1e-4)
    assert value >= lower_bound(problem)
    assert notes[0].startswith("durations were rounded down to ")


def test_a_back_end_of_another_name_is_refused() -> None:
    with pytest.raises(InputError, match="backend: 'glpk' is none of highs, cbc"):
        search.backend_of("glpk")


def test_where_nothing_may_be_fused_an_input_gradient_that_swells_needs_its_bytes() -> None:
    data = {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 2},
        "costs": {"forward": 3, "backward_input": 3, "backward_weight": 2},
        "memory": {"activation": 2, "retained": 3, "limit": 4},
    }
    problem = Problem.from_dict(data)
    free, split = (solve(problem, "ilp", time_limit=10, granularity=each) for each in (ALL, NONE))
    assert split.schedule.fused_share == 0
    assert check(problem, split.schedule) == ()
    assert (free.value, split.value) == (
        optimum(problem.instance((1, 1))),
        optimum(problem.instance((1, 1)), granularity=NONE),
    )
