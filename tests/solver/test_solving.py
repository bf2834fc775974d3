"""solve and compare: honest status, the best of all parts, never nothing where there is something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, NoAnswerError, Problem, Schedule, Status, check, simulate, solve
from adaptpipe.solver.bounds import infeasible, instance_bound, lower_bound
from adaptpipe.solver.core.granularity import NONE
from adaptpipe.solver.evaluate.noise import Noise
from adaptpipe.solver.evaluate.noisy import noisy
from adaptpipe.solver.methods import METHODS
from adaptpipe.solver.portfolio.parts import LARGEST_MODEL
from adaptpipe.solver.portfolio.request import Progress
from tests.solver.bounds.test_bounds import published
from tests.solver.oracle import optimum
from tests.strategies import problems

TABLE_5 = {
    "unit": "us",
    "pipeline": {"ranks": 8},
    "batch": {"samples": 24},
    "costs": {"forward": 18522, "backward_input": 18086, "backward_weight": 9337},
    "links": {"latency": 601},
    "memory": {"unit": "MB", "activation": 201, "retained": 74, "limit": 1608},
}


def affine(fixed: int, samples: int, sizes: list[int], limit: int | None = None) -> Problem:
    cost = {"fixed": fixed, "per_sample": 10}
    memory: dict[str, Any] = {"activation": {"fixed": 0, "per_sample": 5}, "retained": {"fixed": 0, "per_sample": 2}}
    return Problem.from_dict(
        {
            "pipeline": {"ranks": 3},
            "batch": {"samples": samples, "microbatch_sizes": sizes},
            "costs": dict.fromkeys(("forward", "backward_input", "backward_weight"), cost),
            "memory": memory | ({} if limit is None else {"limit": limit}),
        }
    )


@pytest.mark.parametrize("method", ["auto", "cpsat"])
def test_table_5_is_proven(method: str) -> None:
    result = solve(Problem.from_dict(TABLE_5), method, time_limit=60)
    assert result.status is Status.OPTIMAL
    assert result.proven_for == "problem"
    assert result.timeline is not None
    assert round(result.timeline.bubble, 4) == 0.1585


@settings(max_examples=40)
@given(problems(max_ranks=3, max_samples=5), st.sampled_from(("makespan", "span")), st.sampled_from(("auto", "greedy")))
def test_a_schedule_wherever_there_is_one(problem: Problem, objective: Any, method: str) -> None:
    result = solve(problem, method, objective=objective, time_limit=0.3, workers=1)
    assert (result.status is Status.INFEASIBLE) == bool(infeasible(problem))
    if result.timeline is None:
        assume(infeasible(problem))
        assert result.reason == infeasible(problem)
        with pytest.raises(NoAnswerError, match=r"needs"):
            _ = result.schedule
        return
    assert not check(problem, result.schedule)
    assert result.value is not None
    assert lower_bound(problem, objective) <= result.bound <= result.value
    assert instance_bound(problem.instance(result.schedule.sizes), objective) <= result.value
    assert (result.status is Status.OPTIMAL) == (result.value == result.bound)
    assert simulate(problem, result.schedule).value(objective) == result.value


@given(problems(max_ranks=3, max_samples=5), st.sampled_from([m.name for m in METHODS if m.build is not None]))
def test_a_heuristic_gives_its_schedule_or_says_why_not(problem: Problem, name: str) -> None:
    try:
        result = solve(problem, name)
    except InputError:
        # It does not exist for this placement.
        return
    if result.timeline is None:
        assert result.status in (Status.INFEASIBLE, Status.UNKNOWN)
        assert "limit" in result.reason
        return
    assert not check(problem, result.schedule)
    assert result.bound <= (result.value or 0)


def test_a_heuristic_beyond_the_limit_names_rank_need_and_limit() -> None:
    result = solve(published(4, 8, 0.5), "gpipe")
    assert result.status is Status.UNKNOWN
    assert result.reason.startswith("GPipe does not keep the memory limit: rank 0, position 2: 0F2 brings")
    assert result.reason.endswith("it needs 1,608 B on rank 0, and the limit is 402 B")
    assert result.standing == "over limit"
    memory = {"unit": "GB", "activation": 4, "limit": 5}
    result = solve(Problem.from_dict(TABLE_5 | {"memory": memory}), "gpipe")
    assert result.reason.endswith("it needs 96 GB on rank 0, and the limit is 5 GB")


def test_progress_falls_and_ends_at_the_answer() -> None:
    seen: list[Progress] = []
    result = solve(published(4, 8, 0.75), time_limit=60, on_progress=seen.append)
    values = [progress.value for progress in seen]
    assert values == sorted(set(values), reverse=True)
    assert (result.value, result.bound, result.found_by) == (5319, 5319, seen[-1].found_by)
    assert all(progress.bound <= progress.value for progress in seen)
    assert all(progress.gap == progress.value / progress.bound - 1 for progress in seen)


def test_auto_stops_where_the_bound_is_met() -> None:
    seen: list[Progress] = []
    result = solve(published(8, 64, 2), time_limit=60, on_progress=seen.append)
    assert result.status is Status.OPTIMAL
    assert result.found_by != "cpsat"


def test_auto_leaves_large_models_to_the_heuristics_and_says_so() -> None:
    problem = published(16, 64, 0.6, v=True)
    result = solve(problem, time_limit=1)
    assert result.status is Status.FEASIBLE
    assert result.reason == f"CP-SAT was left out: 6144 ops, above {LARGEST_MODEL}; --method cpsat tries all the same"
    assert str(result).endswith(f"; {result.reason}")


@pytest.mark.parametrize("samples", [8, 32])
def test_the_shortest_time_limit_still_gives_a_schedule(samples: int) -> None:
    """UNKNOWN at the limit though a heuristic's schedule was known (google/or-tools#3750, d-krupke/cpsat-primer#52)."""
    problem = published(8, samples, 1)
    result = solve(problem, "cpsat", time_limit=0.05)
    assert result.timeline is not None
    assert result.status in (Status.OPTIMAL, Status.FEASIBLE)


def test_micro_batches_pass_alone_where_nothing_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr("adaptpipe.solver.greedy.greedy", nothing)
    result = solve(published(3, 4, 0.34), "greedy")
    assert result.found_by == "one-by-one"
    assert result.value == 4 * (3 * (185 + 181 + 93) + 4 * 6)


def test_interrupted_keeps_the_best() -> None:
    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    result = solve(published(4, 8, 0.75), on_progress=interrupt)
    assert result.reason == "interrupted"
    assert result.status is Status.FEASIBLE


def test_an_interrupted_search_is_not_followed_by_one_under_noise() -> None:
    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    result = solve(published(4, 8, 0.75), on_progress=interrupt, robust=Noise())
    assert result.interrupted
    assert result.robustness is None


def test_sizes_are_chosen_among_near_uniform_counts() -> None:
    """Large fixed costs want few micro-batches, none wants many."""
    few, many = (solve(affine(fixed, 24, list(range(1, 25))), time_limit=4) for fixed in (40, 0))
    assert few.timeline is not None
    assert many.timeline is not None
    assert len(few.schedule.sizes) < 8 < len(many.schedule.sizes)
    assert few.proven_for == "sizes"
    one_by_one = [
        solve(affine(40, 24, list(range(1, 25))), sizes=sizes, time_limit=4).value or 0 for sizes in [(1,) * 24, (24,)]
    ]
    assert few.value is not None
    assert few.value < min(one_by_one)


def test_sizes_that_do_not_fit_are_passed_over() -> None:
    result = solve(affine(1000, 6, [1, 2, 3, 6], limit=12), time_limit=5)
    assert result.timeline is not None
    assert max(result.schedule.sizes) <= 2
    assert result.value is not None
    assert result.bound <= result.value


def test_given_sizes_are_kept_and_the_proof_is_for_them() -> None:
    problem = affine(5, 6, [1, 2, 3])
    result = solve(problem, "cpsat", sizes=(1, 2, 3), time_limit=30)
    assert result.schedule.sizes == (1, 2, 3)
    assert result.status is Status.OPTIMAL
    assert result.proven_for == "sizes"
    assert result.standing == "OPTIMAL for these micro-batch sizes"
    assert str(result).startswith("OPTIMAL for these micro-batch sizes by ")


def priced(ranks: int, samples: int, sizes: list[int], costs: list[tuple[int, int]]) -> Problem:
    names = ("forward", "backward_input", "backward_weight")
    return Problem.from_dict(
        {
            "pipeline": {"ranks": ranks},
            "batch": {"samples": samples, "microbatch_sizes": sizes},
            "costs": {key: {"fixed": a, "per_sample": b} for key, (a, b) in zip(names, costs, strict=True)},
        }
    )


def test_uneven_sizes_are_tried_where_they_are_best() -> None:
    result = solve(priced(1, 4, [1, 3], [(3, 4), (4, 3), (7, 2)]), time_limit=10)
    assert (result.value, result.schedule.sizes, result.proven_for) == (64, (1, 3), "problem")


@pytest.mark.parametrize(
    ("method", "costs"), [("greedy", [(4, 1), (2, 1), (3, 4)]), ("cpsat", [(2, 2), (1, 4), (2, 1)])]
)
def test_what_is_proven_for_each_division_is_proven_for_the_problem(method: str, costs: list[tuple[int, int]]) -> None:
    """The bound for any sizes is below the optimum; that of each near-uniform division meets it, or is proven to."""
    problem = priced(2, 4, [1, 2, 3], costs)
    result = solve(problem, method, time_limit=5, iterations=2_000, deterministic=True, workers=1, granularity=NONE)
    even = [problem.uniform_sizes(count) for count in problem.uniform_counts()]
    best = min(optimum(problem.instance(sizes), granularity=NONE) or 0 for sizes in even)
    assert lower_bound(problem) < best
    assert (result.value, result.bound, result.proven_for) == (best, best, "problem")


@settings(max_examples=15)
@given(
    st.integers(1, 2),
    st.integers(2, 4),
    st.sets(st.integers(2, 4)),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=3, max_size=3),
)
def test_sizes_are_as_good_as_every_division(
    ranks: int, samples: int, more: set[int], costs: list[tuple[int, int]]
) -> None:
    """OPTIMAL without restriction is the best of all divisions; any answer is the best of the ascending ones."""
    problem = priced(ranks, samples, sorted({1} | more), costs)
    values = {sizes: optimum(problem.instance(sizes)) or 0 for sizes in orders(samples, problem.sizes)}
    result = solve(problem, "cpsat", time_limit=4)
    assert result.value == min(value for sizes, value in values.items() if list(sizes) == sorted(sizes))
    if result.standing == "OPTIMAL":
        assert result.value == min(values.values())
    elif len(problem.sizes) > 1:
        assert "divisions of the batch into micro-batches were looked at" in result.reason
        assert result.reason in str(result)


def orders(samples: int, sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    if samples == 0:
        return [()]
    return [(size, *rest) for size in sizes if size <= samples for rest in orders(samples - size, sizes)]


def test_progress_says_what_its_bound_holds_for() -> None:
    seen: list[Progress] = []
    small = (1,) * 12  # far from the best division, so that what is proven for it holds for no other
    result = solve(affine(40, 12, [1, 2, 3, 4]), "anneal", time_limit=2, sizes=small, on_progress=seen.append)
    assert result.proven_for == "sizes"
    assert seen[-1].proven_for == "sizes"


def test_the_solvers_bound_is_kept_at_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = published(4, 8, 0.5, v=True)
    before = lower_bound(problem)

    def search(*_: object, on_bound: Callable[[int], None], **__: object) -> None:
        on_bound(before + 1)
        raise KeyboardInterrupt

    monkeypatch.setattr("adaptpipe.solver.cpsat.solve_cpsat", search)
    monkeypatch.setattr("adaptpipe.solver.bounds.tight.tight_bound", lambda *_, **__: before)
    result = solve(problem, "cpsat", time_limit=10)
    assert (result.reason, result.bound) == ("interrupted", before + 1)


def test_cut_weight_gradients_are_in_the_model() -> None:
    """What CP-SAT proves where weight gradients can be cut holds for cut ones, and is met by none that are whole."""
    problem = published(4, 8, 0.75)
    cut = replace(problem, weight_units=((46, 47),) * 4, backward=None)
    whole, free = (solve(each, "cpsat", time_limit=6) for each in (problem, cut))
    assert whole.status is Status.OPTIMAL
    assert free.value is not None
    assert whole.value is not None
    assert lower_bound(cut) <= free.bound <= free.value <= whole.value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "best"}, r"method: 'best' is none of auto, cpsat"),
        ({"objective": "bubble"}, r"objective: 'bubble' is neither makespan nor span"),
        ({"time_limit": 0}, r"time limit: 0 is not a positive number of seconds"),
        ({"time_limit": float("nan")}, r"time limit: nan is not a positive"),
        ({"workers": 0}, r"workers: 0 is below 1"),
        ({"sizes": (3,)}, r"sizes: 3 samples in all, and the batch has 8"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        solve(published(4, 8, 1), **options)


def test_a_schedule_is_what_it_says() -> None:
    result = solve(published(4, 8, 1))
    assert isinstance(result.schedule, Schedule)
    assert result.row()["bound"] == 4563


@pytest.mark.parametrize("method", ["auto", "cpsat"])
def test_no_time_is_enough_for_the_best_heuristic(method: str) -> None:
    """google/or-tools#3750: the limit ended in presolve and a complete hint was thrown away."""
    ranks = 16
    memory = {"activation": 3, "retained": 1, "limit": 3 * ranks}
    costs = {"forward": 10, "backward_input": 10, "backward_weight": 8}
    problem = Problem.from_dict(
        {"pipeline": {"ranks": ranks}, "batch": {"samples": 64}, "costs": costs, "memory": memory}
    )
    handmade = [solve(problem, name).value for name in ("1F1B", "1F1B-split", "ZB-H1")]
    result = solve(problem, method, time_limit=1e-6)
    assert result.value is not None
    assert result.value <= min(value for value in handmade if value is not None)


def test_a_robust_answer_has_the_figures_of_both_schedules() -> None:
    problem = published(4, 8, 1, v=True)
    result = solve(problem, time_limit=1, iterations=20_000, deterministic=True, robust=Noise(0.3))
    found = result.robustness
    assert found is not None
    assert found.robust.mean <= found.plain.mean
    assert found.robust.value == result.value
    assert found.gain == 1 - found.robust.mean / found.plain.mean > 0
    assert found.price == found.robust.value / found.plain.value - 1 >= 0
    assert noisy(problem, result.schedule, Noise(0.3)).mean == found.robust.mean
    assert not check(problem, result.schedule)
    assert result.row()["robustness"]
    assert solve(problem, "gpipe").robustness is None


@pytest.mark.parametrize("method", ["greedy", "anneal", "auto"])
def test_counted_by_work_the_same_arguments_give_the_same_schedule(method: str) -> None:
    problem = published(4, 6, 0.5, v=True)
    one, two = (solve(problem, method, time_limit=1, deterministic=True, seed=5) for _ in range(2))
    assert one.schedule == two.schedule
    assert (one.value, one.bound) == (two.value, two.bound)
