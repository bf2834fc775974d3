"""Weight units that float at run time: what may not change, and what is gained."""

from __future__ import annotations

import pytest

from adaptpipe.executor.launching.launcher import launch
from adaptpipe.executor.report import StepReport
from adaptpipe.solver import Kind, Noise, Op, Problem, Schedule, place
from adaptpipe.solver.heuristics import one_f_one_b_split

from ..orders import POLICIES, problem_for, schedule_for
from .adaptive_jobs import Run, run_all

pytestmark = pytest.mark.timeout(120)


def assert_floats(schedule: Schedule, problem: Problem, rank: int, report: StepReport) -> None:
    """F, I and B ran in the schedule's order; every unit of every W once, after its I."""
    ran = [record.op for record in report.records]
    assert [op for op in ran if op.kind is not Kind.W] == [op for op in schedule.ops[rank] if op.kind is not Kind.W]
    units: dict[tuple[int, int], list[int]] = {}
    seen: set[Op] = set()
    for op in ran:
        seen.add(op)
        if op.kind is Kind.W:
            assert Op(op.stage, Kind.I, op.microbatch) in seen
            whole = (0, len(problem.weight_units[op.stage]))
            units.setdefault((op.stage, op.microbatch), []).extend(range(*(op.units or whole)))
    assert all(sorted(each) == list(range(len(problem.weight_units[s]))) for (s, _), each in units.items())
    assert set(units) == {(op.stage, op.microbatch) for op in ran if op.kind is Kind.I}


def runs_of(ranks: int) -> list[Run]:
    noises = (None, Noise.parse("sigma=0.5,link=0.5"), Noise.parse("pause=3,slow_rank=1:1.5,imbalance=0.3"))
    runs = []
    for family, per_rank in (("linear", 1), ("v", 2), ("loop", 2), ("bidirectional", 1)):
        placement = place(family, ranks, per_rank)
        for seed, policy in enumerate(POLICIES):
            sizes = (1, 2, 1, 1)
            schedule = schedule_for(placement, sizes, policy, seed)
            runs.append(Run(problem_for(placement, sizes, units=1 + seed % 3), schedule, noise=noises[seed % 3]))
    return runs


@pytest.mark.parametrize("ranks", [2, 4])
def test_units_float_and_nothing_else(ranks: int) -> None:
    """Every message has its place in the schedule, whatever weight units do: pytorch/pytorch#172668 shows why."""
    runs = runs_of(ranks)
    for run, *ranks_reports in zip(runs, *launch(run_all, ranks, runs, threads=1), strict=True):
        for rank, (report,) in enumerate(ranks_reports):
            assert_floats(run.schedule, run.problem, rank, report)


def test_waits_are_filled() -> None:
    """A slow link leaves rank 0 waiting for its gradients; it runs what it owes meanwhile."""
    costs = {"forward": 20, "backward_input": 20, "weight_units": [5] * 4}
    problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 6}, "costs": costs})
    noise = Noise.parse("slow_link=1>0:60")
    schedule = one_f_one_b_split(problem)
    runs = [Run(problem, schedule, mode, noise) for mode in ("static", "adaptive")]
    (static, adaptive), _ = launch(run_all, 2, runs, threads=1)
    assert static[0].units_in_waits == 0
    assert adaptive[0].units_in_waits > 4
