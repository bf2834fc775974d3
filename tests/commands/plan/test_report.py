"""What the report advises, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adaptpipe.commands.plan.advice import binds, gb, left_out, ms
from adaptpipe.commands.plan.question import Question
from adaptpipe.commands.plan.report import print_report
from adaptpipe.commands.plan.subject import Subject, subject
from adaptpipe.solver.planning.answer import Answer
from adaptpipe.solver.planning.judging.jury import RIVALS
from adaptpipe.solver.planning.judging.robust import robustness
from adaptpipe.solver.planning.plan import Plan
from adaptpipe.solver.planning.rivals.today import Today, rivals, todays

LLAMA: dict[str, Any] = {"model": "llama2-7b", "cluster": "h100x8", "microbatch_sizes": (1,)}


@pytest.fixture(scope="module")
def about() -> Subject:
    """Seven billion parameters on eight ranks."""
    return subject(Question(**LLAMA))


@pytest.fixture(scope="module")
def known(about: Subject) -> tuple[Today, ...]:
    """Today's schedules for it."""
    return todays(about.workload)


def answered(about: Subject, known: tuple[Today, ...], best: int, base: int, bound: int = 1) -> Answer:
    """One of today's schedules as the plan, over another."""
    plan, other = (known[at].plan(about.workload, bound) for at in (best, base))
    return Answer(
        about.workload, (plan,), known[base:], other, robustness(plan, rivals(known[base:], RIVALS), draws=2), 0.0
    )


def printed(about: Subject, answer: Answer, capsys: pytest.CaptureFixture[str]) -> str:
    print_report(about, answer)
    return capsys.readouterr().out


def test_a_gain_that_lasts_is_recommended(
    about: Subject, known: tuple[Today, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    slow = next(at for at, each in enumerate(known) if each.method == "1F1B")
    text = printed(about, answered(about, known, 0, slow), capsys)
    assert "recommended         yes: with costs 10% off it gains" in text
    assert "instead" not in text
    assert "nothing to gain" not in text


def test_a_gain_that_does_not_last_is_not(
    about: Subject, known: tuple[Today, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan here is worse than today's best, so it is worse with wrong costs too; the report says what to run."""
    slow = next(at for at, each in enumerate(known) if each.method == "1F1B")
    answer = answered(about, known, slow, 0)
    text = printed(about, answer, capsys)
    assert "recommended         no: with costs 10% off it gains -" in text
    instead = answer.instead
    assert instead in rivals(known, RIVALS)
    assert instead is not None
    assert f"instead             run {instead.name}: {len(instead.split)} stages of " in text
    assert f"{instead.makespan / 1e3:,.1f} ms a step" in text


def test_close_to_the_bound(about: Subject, known: tuple[Today, ...], capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(about, known, 0, 0, int(known[0].makespan / 1.01))
    text = printed(about, answer, capsys)
    assert "nothing to gain     today's best is within 1.00% of the bound (below 2%): keep what you run" in text
    assert "recommended         no: nothing faster was found" in text


def test_judged_by_nothing(about: Subject, known: tuple[Today, ...], capsys: pytest.CaptureFixture[str]) -> None:
    answer = replace(answered(about, known, 0, 1), robustness=None, interrupted=True)
    assert "recommended         no: interrupted before it was judged" in printed(about, answer, capsys)


def test_nothing_of_todays_fits(about: Subject, known: tuple[Today, ...], capsys: pytest.CaptureFixture[str]) -> None:
    last = tuple(each for each in known if not each.fits)
    assert last
    answer = replace(answered(about, known, 0, 1), todays=last, equal=None, robustness=None)
    text = printed(about, answer, capsys)
    assert "none of today's schedules fits" in text
    assert "yes: nothing of today's fits" in text
    assert "lacks" in text


def test_what_is_not_in_the_step(about: Subject, known: tuple[Today, ...]) -> None:
    """A ring over two replicas moves every gradient once: 4 bytes a parameter at 350 GB/s."""
    plan: Plan = known[0].plan(about.workload)
    assert left_out(about, plan)[0] == "not in the step: the optimizer"
    two = subject(Question(**LLAMA | {"cluster": "h100x16", "dp": 2}))
    plan = todays(two.workload)[0].plan(two.workload)
    per_rank = [0] * 8
    for stage, layers in enumerate(plan.split):
        parts = plan.workload.profile.parts[layers.start : layers.stop]
        per_rank[plan.placement.stages[0][stage]] += sum(part.parameters for part in parts)
    expected = f"the replicas' exchange of gradients: {ms(round(max(per_rank) * 4 / 350e9 * 1e6))} on rank"
    assert expected in left_out(two, plan)[0]
    assert "assumed" in left_out(two, plan)[1]
    assert len(left_out(replace(two, measured=True), plan)) == 1


def test_whole_layers_bind_where_ranks_hold_few() -> None:
    about = subject(Question("gemma2-9b", "h100x16", microbatch_sizes=(1,)))
    (answer,) = (answered(about, todays(about.workload)[:2], 0, 1),)
    text = "\n".join(binds(about, answer))
    assert "whole layers: the load cannot be divided evenly; the heaviest layer is head" in text
    assert "cut them (--split-layers), or use fewer ranks" in text
    cut = replace(about, question=replace(about.question, split_layers=True))
    assert "--split-layers" not in "\n".join(binds(cut, answer))


def test_numbers_for_people() -> None:
    assert (ms(2_246_576), ms(2_246), gb(71_400_000_000)) == ("2,246.6 ms", "2.246 ms", "71.40")
