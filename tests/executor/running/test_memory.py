"""The memory limit while schedules run: never passed, and refused where it would be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import strategies as st

from adaptpipe.executor.errors import RankFailure
from adaptpipe.executor.launching.launcher import launch
from adaptpipe.executor.programs.reserve import reserve_for
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.solver import Kind, Noise, Op, Placement, Problem, Schedule, place, simulate
from adaptpipe.solver.core.problem import Cost

from ...strategies import drawn, problems, schedules_of
from ..orders import POLICIES, problem_for, schedule_for, stage_by_stage
from . import memory_jobs as jobs
from .pipeline_jobs import Case

pytestmark = pytest.mark.timeout(120)

MESSAGE_BYTES = 64
EXECUTIONS: tuple[ExecutionMode, ...] = ("adaptive", "adaptive", "adaptive", "static")
NOISES = (None, Noise.parse("sigma=0.8,link=1"), Noise.parse("pause=20,slow_rank=0:2,imbalance=0.5"))


def eager(schedule: Schedule) -> Schedule:
    """Every W whole, right after its I."""
    rows = tuple(
        tuple(
            each
            for op in row
            if op.kind is not Kind.W
            for each in ((op, Op(op.stage, Kind.W, op.microbatch)) if op.kind is Kind.I else (op,))
        )
        for row in schedule.ops
    )
    return replace(schedule, ops=rows)


def late(schedule: Schedule) -> Schedule:
    """Every W after all else."""
    return replace(schedule, ops=tuple(tuple(sorted(row, key=lambda op: op.kind is Kind.W)) for row in schedule.ops))


def limited(problem: Problem, schedule: Schedule, tightness: Sequence[float], message_bytes: int) -> Problem:
    """Limits between the least that adaptive execution accepts (tightness 1) and what the schedule holds (0)."""
    least, most = (simulate(problem, each).peak_memory for each in (eager(schedule), schedule))
    limits = tuple(
        round(low + (max(low, high) - low) * (1 - share))
        for low, high, share in zip(least, most, tightness, strict=True)
    )
    ranks, stages = problem.ranks, problem.placement.stage_count
    links = replace(problem.links, bandwidth=((1e12,) * ranks,) * ranks, message=(message_bytes,) * stages)
    bare = replace(problem, links=links, memory=replace(problem.memory, limit=limits, reserve=(1,) * ranks))
    reserve = reserve_for(bare, schedule)
    return replace(
        bare,
        memory=replace(
            bare.memory,
            limit=tuple(a + b for a, b in zip(limits, reserve, strict=True)),
            reserve=reserve,
        ),
    )


@st.composite
def cases(draw: st.DrawFn, ranks: int) -> jobs.Limited:
    """A random schedule of a random problem, its limits and its noise."""
    data = problems(max_ranks=ranks, max_samples=5, families=("linear", "loop", "v", "wave"), limited=False)
    problem = draw(data.filter(lambda problem: problem.ranks == ranks))
    problem = replace(problem, memory=replace(problem.memory, reserve=(0,) * ranks))
    schedule = draw(schedules_of(problem).map(late) | schedules_of(problem))
    execution: ExecutionMode = draw(st.sampled_from(EXECUTIONS))
    share = st.just(0.0) if execution == "static" else st.sampled_from([0.0, 0.5, 1.0, 1.0])
    tightness = draw(st.lists(share, min_size=ranks, max_size=ranks))
    return jobs.Limited(
        limited(problem, schedule, tightness, MESSAGE_BYTES), schedule, execution, draw(st.sampled_from(NOISES))
    )


def assert_within(problem: Problem, rank: int, peak_bytes: int, message_bytes: int) -> None:
    memory, limit = problem.memory, problem.memory.limit[rank]
    assert limit is not None
    assert peak_bytes + problem.static_bytes(rank) <= limit
    assert message_bytes <= memory.reserve[rank]


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_limit_is_never_passed_in_emulated_runs(ranks: int) -> None:
    """The published policy runs F past the limit where weight gradients cannot make room."""
    todo = drawn(cases(ranks), 30, ranks)
    for per_rank, count in ((2, 12), (4, 24)):
        looped = place("loop", ranks, per_rank)
        deep = stage_by_stage(looped, count)  # whose sends would wait for each other with the usual windows
        within = limited(problem_for(looped, (1,) * count), deep, (0.0,) * ranks, 64)
        todo.append(jobs.Limited(within, deep, "adaptive", NOISES[1]))
    tight = sum(
        limit is not None and peak > limit
        for case in todo
        for limit, peak in zip(
            case.problem.memory.limit, simulate(case.problem, case.schedule).peak_memory, strict=True
        )
    )
    assert tight >= 4
    measured = launch(jobs.emulated, ranks, (todo, MESSAGE_BYTES, 2e-5), threads=1)
    for rank, reports in enumerate(measured):
        for case, report in zip(todo, reports, strict=True):
            assert_within(case.problem, rank, report.peak_bytes, report.message_bytes)


def per_stage(values: dict[int, int]) -> tuple[Cost, ...]:
    return tuple(values[stage] for stage in sorted(values))


V, BOTH = place("v", 2, 2), place("bidirectional", 2)


def measured_problem(units: int, placement: Placement = V) -> Problem:
    """A problem of 2 ranks, with the bytes that the small GPT holds."""
    problem = replace(problem_for(placement, (1, 1), units), backward=None)
    schedule = eager(schedule_for(placement, (1, 1), "zb"))
    rows = tuple(
        tuple(
            each
            for op in row
            for each in (
                [replace(op, units=(u, u + 1)) for u in range(units)] if op.kind is Kind.W and units > 1 else [op]
            )
        )
        for row in schedule.ops
    )
    held, _ = launch(jobs.held_bytes, 2, Case("", "gpt", problem, replace(schedule, ops=rows)), threads=1)
    stages = range(placement.stage_count)
    after = {s: [held[s, Kind.I, 0], *(held.get((s, Kind.W, u + 1), 0) for u in range(units))] for s in stages}
    problem = problem_for(placement, (1,) * 4, units)
    memory = replace(
        problem.memory,
        activation=tuple(held[s, Kind.F, 0] for s in stages),
        retained=tuple(after[s][0] for s in stages),
        retained_units=tuple(tuple(a - b for a, b in pairwise(after[s])) for s in stages),
    )
    return replace(problem, memory=memory)


def random_cases(problem: Problem, count: int) -> list[jobs.Limited]:
    """Random schedules of a problem, limits and noises."""
    found = []
    parts = st.tuples(schedules_of(problem).map(late), st.sampled_from([0.5, 1.0]), st.sampled_from(NOISES))
    for schedule, share, noise in drawn(parts, count, count):
        within = limited(problem, schedule, (share,) * problem.ranks, 1 << 16)
        found.append(jobs.Limited(within, schedule, "adaptive", noise))
    return found


def test_the_limit_is_never_passed_in_real_runs() -> None:
    """With measured bytes a fixed order's peak is the predicted one, and no decision at run time passes a limit."""
    todo = []
    for units, placement in ((1, V), (3, V), (1, BOTH)):
        problem = measured_problem(units, placement)
        for number, policy in enumerate(POLICIES):
            schedule = schedule_for(problem.placement, (1,) * 4, policy, number)
            for share in (0.0, 0.5, 1.0):
                noise = NOISES[(number + units) % 3]
                within = limited(problem, schedule, (share,) * 2, 1 << 16)
                todo.append(jobs.Limited(within, schedule, "adaptive", noise))
            todo.append(jobs.Limited(limited(problem, schedule, (0.0,) * 2, 1 << 16), schedule, "static", None))
    todo += random_cases(measured_problem(1), 12)
    for rank, found in enumerate(launch(jobs.real, 2, todo, threads=1)):
        for case, (report, loss) in zip(todo, found, strict=True):
            assert_within(case.problem, rank, report.peak_bytes, report.message_bytes)
            same = next(n for n, each in enumerate(todo) if each.problem.placement == case.problem.placement)
            assert loss == pytest.approx(found[same][1], rel=1e-5)
            if case.execution == "static":
                predicted = simulate(case.problem, case.schedule).peak_memory[rank]
                assert report.peak_bytes + case.problem.static_bytes(rank) == predicted


def test_the_account_is_what_torch_allocates() -> None:
    """At the end of every op, by the allocator's own events: what is held is what is accounted for, but for scalars."""
    placement, sizes = place("loop", 1, 2), (1,) * 4  # one rank, for the profiler sees one thread
    cases = [
        Case(policy, "gpt", problem_for(placement, sizes, units=2), schedule_for(placement, sizes, policy))
        for policy in POLICIES
    ]
    (found,) = launch(jobs.allocated, 1, cases, threads=1)
    for case, row in zip(cases, found, strict=True):
        for op, (accounted, there) in zip(case.schedule.ops[0], row, strict=True):
            assert 0 <= there - accounted <= 64, (case.name, op)


def test_schedules_that_could_pass_the_limit_are_refused() -> None:
    """At load, on every rank, with rank and op; a fixed order also where only its own W's come too late.

    Messages beyond the usual windows, which a step then failed of, are seen at load too.
    """
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 3},
            "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
            "memory": {"activation": 10, "retained": 4, "limit": 28},
        }
    )
    first = ["0F0", "0F1", "0F2", "0I0", "0W0", "0I1", "0W1", "0I2", "0W2"]
    second = ["1F0", "1I0", "1F1", "1I1", "1F2", "1I2", "1W0", "1W1", "1W2"]
    deep = Schedule.parse(problem.placement, (1,) * 3, [first, second])
    late = Schedule.parse(problem.placement, (1,) * 3, [[*first[:2], *first[3:5], "0F2", *first[5:]], second])
    tight = replace(problem, memory=replace(problem.memory, limit=(28, 17)))
    looped = place("loop", 2, 3)
    waves = stage_by_stage(looped, 40)
    wide = replace(
        problem_for(looped, (1,) * 40),
        memory=replace(problem.memory, activation=(10,) * 6, retained=(4,) * 6, static=(0,) * 6),
    )
    usual = replace(wide, memory=replace(wide.memory, reserve=(1280, 1280), limit=(2480, 2480)))
    cases = [
        jobs.Limited(problem, deep, "adaptive", None),
        jobs.Limited(tight, late, "static", None),
        jobs.Limited(tight, late, "adaptive", None),
        jobs.Limited(usual, waves, "adaptive", None),
        jobs.Limited(usual, waves, "static", None),
    ]
    for messages in launch(jobs.refusals, 2, cases, threads=1):
        assert messages[0].startswith("NoAnswerError: rank 0: 0F2 brings the memory to 30 B, above the limit of 28 B")
        assert messages[1].startswith("NoAnswerError: rank 1, position 4: 1F2 brings the memory to 18 B")
        assert messages[2] == "no error"
        for message in messages[3:]:
            assert re.match(
                r"NoAnswerError: rank 0.*above the limit of 2,480 B.*; messages of rank 0 count [\d,]+ B of it, "
                "because this order has more of them on their way at once than memory.reserve = 1,280 B holds",
                message,
            )


def test_a_model_that_holds_more_than_planned_is_stopped() -> None:
    problem = measured_problem(1)
    schedule = schedule_for(problem.placement, (1,) * 4, "gpipe")
    thought = tuple(each // 2 for each in problem.memory.activation if isinstance(each, int))
    wrong = replace(problem, memory=replace(problem.memory, activation=thought))
    case = jobs.Limited(limited(wrong, schedule, (0.0, 0.0), 1 << 16), schedule, "adaptive", None)
    with pytest.raises(
        RankFailure, match=r"F of micro-batch .*with \dF\d rank \d (would hold|holds) .* above memory.limit"
    ):
        launch(jobs.step, 2, (case, "enforce"), threads=1)
    peaks = launch(jobs.step, 2, (case, "report"), threads=1)
    assert all(
        limit is not None and peak + case.problem.static_bytes(rank) > limit - case.problem.memory.reserve[rank]
        for rank, (peak, limit) in enumerate(zip(peaks, case.problem.memory.limit, strict=True))
    )


def test_sequences_of_other_lengths_than_planned_may_fit() -> None:
    """Long and short micro-batches in turns hold in sum what was planned: what one was seen to take binds none of
    another length, nor does the plan."""
    placement, sizes = place("linear", 2), (1,) * 6
    schedule = Schedule(placement, sizes, tuple(_two_at_a_time(stage, 6) for stage in range(2)))
    for rank in launch(jobs.lengths, 2, schedule, threads=1):
        (peak, losses), *limited = rank
        assert peak > 0
        assert limited == [(peak, losses)] * 2


def _two_at_a_time(stage: int, count: int) -> tuple[Op, ...]:
    kinds = (Kind.F, Kind.F, Kind.I, Kind.W, Kind.I, Kind.W)
    places = (0, 1, 0, 0, 1, 1)
    return tuple(Op(stage, k, j + add) for j in range(0, count, 2) for k, add in zip(kinds, places, strict=True))
