"""The answer under noise: the search decides, the figures only tell; neither the clock nor Ctrl-C loses a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from adaptpipe.solver import Problem, Result, Schedule, check, simulate
from adaptpipe.solver.evaluate.noise import VALIDATION, Noise
from adaptpipe.solver.evaluate.noisy import noisy, noisy_values
from adaptpipe.solver.heuristics.one_f_one_b import one_f_one_b_split
from adaptpipe.solver.heuristics.zero_bubble import zb_h1
from adaptpipe.solver.robust import answer, hardened, robust, search
from adaptpipe.solver.robust.draw import draw
from tests.solver.heuristics.shapes import problem as shape

NOISE = Noise(sigma=0.3, link=0.2)
PROBLEM = shape(4, 8, costs=(60, 50, 40))
LONG, SHORT = one_f_one_b_split(PROBLEM), zb_h1(PROBLEM)

Told = Callable[[Schedule, float], None]


def result(schedule: Schedule = LONG, reason: str = "") -> Result:
    return Result("auto", "makespan", simulate(PROBLEM, schedule), 1, 2.0, found_by="greedy", reason=reason)


def hard(plain: Result, iterations: int | None = 100, deadline: float | None = None) -> Result:
    return hardened(PROBLEM, plain, NOISE, iterations=iterations, deadline=deadline, seed=0)


def finding(
    monkeypatch: pytest.MonkeyPatch, *schedules: Schedule, then: Callable[[], None] = lambda: None
) -> list[Any]:
    """A search that tells of these schedules; what it was called with."""
    called: list[Any] = []

    def stand_in(*_: object, on_schedule: Told, **options: object) -> None:
        called.append(options)
        for schedule in schedules:
            on_schedule(schedule, 0.0)
        then()

    monkeypatch.setattr(answer, "robust", stand_in)
    return called


def interrupt() -> None:
    raise KeyboardInterrupt


def ticking(monkeypatch: pytest.MonkeyPatch, module: str, first: float = 0, step: float = 1) -> None:
    """A clock that goes on only when it is looked at."""
    times = count(first, step)
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr(f"adaptpipe.solver.robust.{module}.time", clock)


def test_the_figures_are_of_both_schedules() -> None:
    found = hard(result(reason="something is open"), iterations=20_000)
    assert (found.found_by, found.reason, found.interrupted) == ("robust", "something is open", False)
    assert check(PROBLEM, found.schedule) == ()
    assert found.time_s > 2
    assert found.robustness is not None
    assert found.robustness.runs == answer.RUNS
    for schedule, figures in ((LONG, found.robustness.plain), (found.schedule, found.robustness.robust)):
        runs = noisy(PROBLEM, schedule, NOISE, count=answer.RUNS)
        assert (figures.mean, figures.error, figures.p95) == (runs.mean, runs.error, runs.p95)
        assert figures.value == simulate(PROBLEM, schedule).makespan
    assert found.robustness.gain > 0


def test_the_figures_do_not_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that chose would flatter the choice: a loss in them is told, not hidden."""
    finding(monkeypatch, SHORT, LONG)
    found = hard(result(SHORT))
    assert (found.schedule, found.found_by) == (LONG, "robust")
    assert found.robustness is not None
    assert found.robustness.gain < 0
    assert found.robustness.gain == 1 - noisy(PROBLEM, LONG, NOISE).mean / noisy(PROBLEM, SHORT, NOISE).mean


def test_where_nothing_better_is_found_both_are_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    finding(monkeypatch, LONG)
    found = hard(result(LONG))
    assert (found.schedule, found.found_by, found.reason) == (LONG, "greedy", "")
    assert found.robustness is not None
    assert found.robustness.plain == found.robustness.robust


def test_without_a_schedule_there_is_nothing_to_harden() -> None:
    nothing = replace(result(), timeline=None)
    assert hard(nothing) is nothing


def test_a_deadline_that_is_over_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    called = finding(monkeypatch, SHORT)
    ticking(monkeypatch, "answer")
    found = hard(result(reason="something is open"), deadline=0)
    assert found.schedule == LONG
    assert found.reason == "the time was too short to try it under noise; something is open"
    assert found.robustness is None
    assert not found.interrupted
    assert not called


def test_where_no_search_fits_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    finding(monkeypatch)
    found = hard(result())
    assert (found.schedule, found.found_by) == (LONG, "greedy")
    assert found.reason == "the time was too short to search under noise"
    assert found.robustness is not None
    assert found.robustness.gain == 0


def test_figures_are_of_fewer_runs_where_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    called = finding(monkeypatch, SHORT)
    ticking(monkeypatch, "answer")
    found = hard(result(), deadline=401)
    assert found.robustness is not None
    # Runs begin at 1 and may take a tenth of the 400 that are left then.
    assert found.robustness.runs == 40
    assert found.robustness.robust.mean == noisy(PROBLEM, SHORT, NOISE, count=40).mean
    assert called[0]["deadline"] == pytest.approx(401 - 41 / 40 * (40 + answer.ENDING) - answer.MARGIN_S)


def test_after_a_search_that_ends_late_the_figures_are_of_the_fewest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    finding(monkeypatch, SHORT, then=lambda: ticking(monkeypatch, "answer", first=1e9))
    ticking(monkeypatch, "answer")
    found = hard(result(), deadline=401)
    assert found.schedule == SHORT
    assert found.robustness is not None
    assert found.robustness.runs == answer.FEWEST_RUNS
    assert found.robustness.plain.mean == noisy(PROBLEM, LONG, NOISE, count=answer.FEWEST_RUNS).mean


def test_an_interrupted_search_keeps_its_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, anneal = count(), search.Search.anneal

    def until_the_tenth(self: search.Search, *arguments: Any) -> None:
        if next(looks) == 10:
            raise KeyboardInterrupt
        anneal(self, *arguments)

    monkeypatch.setattr(search.Search, "anneal", until_the_tenth)
    found = hard(result(reason="something is open"), iterations=30_000)
    assert (found.reason, found.interrupted, found.found_by) == ("interrupted; something is open", True, "robust")
    means = [noisy(PROBLEM, each, NOISE, count=63, stream=VALIDATION).mean for each in (found.schedule, LONG)]
    assert means[0] < means[1]
    assert found.robustness is not None
    assert found.robustness.runs == answer.RUNS


@pytest.mark.parametrize(
    ("values", "schedule", "runs"),
    [(0, LONG, None), (3, LONG, None), (20, LONG, 20), (60, SHORT, None), (63, SHORT, None), (80, SHORT, 20)],
)
def test_interrupted_figures_lose_no_schedule(
    monkeypatch: pytest.MonkeyPatch, values: int, schedule: Schedule, runs: int | None
) -> None:
    drawn = count()

    def until(*arguments: Any) -> Iterator[float]:
        for value in noisy_values(*arguments):
            if next(drawn) == values:
                raise KeyboardInterrupt
            yield value

    finding(monkeypatch, SHORT)
    monkeypatch.setattr(answer, "noisy_values", until)
    found = hard(result())
    assert (found.schedule, found.reason, found.interrupted) == (schedule, "interrupted", True)
    assert (found.robustness and found.robustness.runs) == runs


def test_as_many_runs_are_drawn_as_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = PROBLEM.instance(LONG.sizes)

    def drawn(number: int, deadline: float | None) -> int | None:
        ticking(monkeypatch, "draw")
        found = draw(instance, LONG, NOISE, number, deadline)
        if found is None:
            return None
        assert len(found.validation) == len(found.training)
        return len(found.training)

    assert drawn(63, None) == 63
    assert drawn(63, 1000) == 63
    # A run takes 1, and all together may take 30: with the plan, a multiple of 8.
    assert drawn(63, 100) == 23
    assert drawn(63, 40) is None
    assert drawn(5, 40) == 5
    assert drawn(5, 0) is None


def test_a_deadline_too_near_for_random_runs_gives_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Schedule] = []
    ticking(monkeypatch, "draw", first=1e9)
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: 0.0))
    found = robust(PROBLEM, LONG, "makespan", NOISE, deadline=1e9, on_schedule=lambda each, _: told.append(each))
    assert found is LONG
    assert told == []


def test_a_number_of_moves_that_does_not_fit_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on with the moves tried, a second for each: no chunk of them may begin that ends late."""
    problem: Problem = PROBLEM
    moved = [0.0]
    anneal = search.Search.anneal

    def slow(self: search.Search, begin: float, finish: float, size: int, heat: float) -> None:
        anneal(self, begin, finish, size, heat)
        moved[0] += size

    monkeypatch.setattr(search.Search, "anneal", slow)
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: moved[0]))
    monkeypatch.setattr("adaptpipe.solver.robust.draw.time", SimpleNamespace(monotonic=lambda: 0.0))
    robust(problem, LONG, "makespan", NOISE, scenarios=5, iterations=10**6, deadline=7000)
    assert moved[0] == 7000
