"""The whole answer: what it proposes, what it compares that with, and what it does with Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from adaptpipe.solver import Measurement, NoAnswerError, Part, Profile
from adaptpipe.solver.core.cluster import uniform_cluster
from adaptpipe.solver.planning import answer as answering
from adaptpipe.solver.planning.answer import Answer, answer
from adaptpipe.solver.planning.judging import jury
from adaptpipe.solver.planning.judging.jury import ALIKE
from adaptpipe.solver.planning.plan import Plan
from adaptpipe.solver.planning.rivals.today import capped, todays
from adaptpipe.solver.planning.workload import Workload

Search = Callable[..., tuple[Plan, ...]]


def workload(memory: int | None = 100) -> Workload:
    """Six layers on two ranks, the last twice as heavy."""
    parts = tuple(
        Part(f"layer {i}", 4, (Measurement(1, t, t, t, 2 * t, 3, 2, 9),)) for i, t in enumerate([1e-3] * 5 + [2e-3])
    )
    return Workload("six", Profile("device", parts, 0.0), uniform_cluster("two", 2, memory, 1e-5, 1e9), 4, (1,))


def searching(monkeypatch: pytest.MonkeyPatch, search: Search) -> list[dict[str, Any]]:
    """Let another search answer; what it was asked for."""
    asked: list[dict[str, Any]] = []

    def find(within: Workload, **options: Any) -> tuple[Plan, ...]:
        asked.append({"within": within, **options})
        return search(within, **options)

    monkeypatch.setattr(answering, "search", find)
    return asked


def faster(plan: Plan, by: float, memory: int = 0) -> Plan:
    """The plan with all its ops sooner, and its ranks holding more: what a search could find elsewhere."""
    line = plan.timeline
    small = replace(
        line,
        start=(line.start * (1 - by)).astype(int),
        end=(line.end * (1 - by)).astype(int),
        during=line.during + memory,
    )
    return replace(plan, timeline=small, method=f"{by}")


def none(*_: Any, **__: Any) -> tuple[Plan, ...]:
    """A search that finds nothing."""
    raise NoAnswerError("nothing")


def test_with_nothing_better_todays_best_is_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = searching(monkeypatch, none)
    found = answer(workload(), time_limit=5)
    best = todays(workload())[0]
    assert (found.plan.makespan, found.gain, found.gain_equal_memory) == (best.makespan, 0, 0)
    assert found.plan.timeline.schedule == best.timeline.schedule
    assert not found.recommended
    assert 0 < found.plan.bound <= found.plan.makespan
    assert len(asked) == 1, "what fits into the base's memory needs no second search"
    assert [plan.timeline.schedule for plan in asked[0]["start"]] == [best.timeline.schedule]


def test_at_equal_memory_no_rank_holds_more_than_any_of_todays_best(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(within: Workload, *, start: tuple[Plan, ...], **_: Any) -> tuple[Plan, ...]:
        (base,) = start[-1:]
        return (faster(base, 0.2, 10),) if within == workload() else (faster(base, 0.1),)

    asked = searching(monkeypatch, search)
    found = answer(workload(), time_limit=5)
    base = found.base
    assert base is not None
    assert [each["within"] for each in asked] == [workload(), capped(workload(), base)]
    assert found.equal is not None
    assert (found.plan.method, found.equal.method) == ("0.2", "0.1")
    assert found.gain == pytest.approx(0.2, abs=1e-3)
    assert found.gain_equal_memory == pytest.approx(0.1, abs=1e-3)
    assert (
        max(found.equal.timeline.peak_memory) <= max(base.timeline.peak_memory) < max(found.plan.timeline.peak_memory)
    )


def test_of_plans_as_fast_the_steadier_one_is_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is slower by more than `ALIKE` is not, however steady."""

    def search(_: Workload, *, start: tuple[Plan, ...], **__: Any) -> tuple[Plan, ...]:
        shares = (0.7, 0.7 * (1 + 0.9 * ALIKE), 0.7 * (1 + 1.1 * ALIKE))
        plans = [today.plan(workload()) for today in todays(workload())[:3]]
        each = zip(shares, plans, "abc", strict=True)
        goal = start[0].makespan
        return tuple(replace(faster(plan, 1 - share * goal / plan.makespan), method=name) for share, plan, name in each)

    def ranked(plans: list[Plan], *_: Any) -> tuple[tuple[Plan, None], ...]:
        return tuple((plan, None) for plan in sorted(plans, key=lambda plan: -plan.makespan))

    searching(monkeypatch, search)
    monkeypatch.setattr(jury, "ranked", ranked)
    found = answer(workload(), time_limit=5)
    assert [plan.method for plan in found.plans[:3]] == ["b", "a", "c"]
    assert found.base is not None
    assert max(found.plan.timeline.peak_memory) <= max(found.base.timeline.peak_memory)
    assert found.equal is found.plan, "it is the plan at equal memory, too: more memory never seems to gain less"


def test_ctrl_c_ends_the_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(_: Workload, *, start: tuple[Plan, ...], **__: Any) -> tuple[Plan, ...]:
        return (replace(faster(start[0], 0.1, 10), reason="interrupted"),)

    asked = searching(monkeypatch, search)
    found = answer(workload(), time_limit=5)
    assert (len(asked), found.interrupted, found.plan.method) == (1, True, "0.1")


def test_ctrl_c_while_the_plan_is_judged_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def robustness(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    searching(monkeypatch, lambda _, *, start, **__: (faster(start[0], 0.1),))
    monkeypatch.setattr(jury, "robustness", robustness)
    found = answer(workload(), time_limit=5)
    assert (found.interrupted, found.plan.method, found.robustness, found.recommended) == (True, "0.1", None, False)


def test_nothing_found_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    searching(monkeypatch, none)
    with pytest.raises(NoAnswerError, match="six: no plan was found that fits in 5 s; allow more time"):
        answer(workload(1), time_limit=5)


def test_a_plan_where_nothing_of_todays_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = todays(workload())[0].plan(workload())
    searching(monkeypatch, lambda *_, **__: (plan,))
    found = answer(workload(1), time_limit=5)
    assert (found.base, found.gain, found.gain_equal_memory, found.equal) == (None, None, None, None)
    assert found.recommended


def test_compiling_is_not_in_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call after installation took its minute for compiling and had none left to search."""
    done: list[str] = []

    class Run:
        def __init__(self, *_: Any) -> None:
            done.append("its clock runs")

        def run(self) -> None:
            pass

    monkeypatch.setattr(answering, "warm_up", lambda: done.append("compiled"))
    monkeypatch.setattr(answering, "_Run", Run)
    answer(workload(), time_limit=5)
    assert done == ["compiled", "its clock runs"]


def test_there_is_always_time_for_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = searching(monkeypatch, none)
    answer(workload(), time_limit=1e-6)
    assert asked[0]["time_limit"] > 0


def test_close_to_the_bound_there_is_nothing_to_gain() -> None:
    best = todays(workload())[0]
    at = [best.plan(workload(), int(best.makespan / (1 + gap))) for gap in (0.019, 0.021)]
    found = [Answer(workload(), (plan,), (best,), plan, None, 0.0).nothing_to_gain for plan in at]
    assert found == [True, False]
