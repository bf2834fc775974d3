"""What the ranks of the memory tests do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.profiler import ProfilerActivity, profile

from adaptpipe.executor.feeding.rows import MicroBatches
from adaptpipe.executor.report import StepReport
from adaptpipe.executor.running.emulated import EmulatedPipeline
from adaptpipe.executor.running.memory import MemoryRule
from adaptpipe.executor.running.pipeline import Pipeline
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.executor.waiting import gather
from adaptpipe.solver import Kind, Noise, Problem, Schedule
from adaptpipe.solver.core.problem import Memory

from ..orders import problem_for
from ..stage_sets import SETS
from .pipeline_jobs import Case, own, refusal


@dataclass(frozen=True)
class Limited:
    """One schedule under a limit."""

    problem: Problem
    schedule: Schedule
    execution: ExecutionMode
    noise: Noise | None


def emulated(rank: int, world: int, argument: tuple[Sequence[Limited], int, float]) -> list[StepReport]:
    """One step of each."""
    cases, message_bytes, seconds_per_tick = argument
    reports = []
    for case in cases:
        with EmulatedPipeline(
            case.problem,
            case.schedule,
            seconds_per_tick=seconds_per_tick,
            execution=case.execution,
            noise=case.noise,
            message_bytes=message_bytes,
        ) as pipeline:
            pipeline.step()
            reports.append(pipeline.report)
    return reports


def real(rank: int, world: int, cases: Sequence[Limited]) -> list[tuple[StepReport, float]]:
    """One step of each on a small GPT: the report, and the loss."""
    found = []
    for case in cases:
        model = SETS["gpt"](case.schedule.placement.stage_count, sum(case.schedule.sizes))
        mine = own(rank, case.schedule, model)
        with Pipeline(
            case.problem, case.schedule, mine, model.loss_fn, execution=case.execution, noise=case.noise
        ) as pipeline:
            loss = pipeline.step(model.batch, model.target)
            found.append((pipeline.report, loss))
    return found


def held_bytes(rank: int, world: int, case: Case) -> dict[tuple[int, Kind, int], int]:
    """What each op of one step leaves held on any rank: by stage, kind and, for W, the end of its units."""
    model = SETS[case.model](case.schedule.placement.stage_count, sum(case.schedule.sizes))
    mine = own(rank, case.schedule, model)
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn, execution="static", memory="report") as pipeline:
        pipeline.step(model.batch, model.target)
        records = pipeline.report.records
    held = {(r.op.stage, r.op.kind, 0 if r.op.units is None else r.op.units[1]): r.held_bytes for r in records}
    everyone: list[dict[tuple[int, Kind, int], int]] = [{} for _ in range(world)]
    dist.all_gather_object(everyone, held)
    return {key: value for each in everyone for key, value in each.items()}


def refusals(rank: int, world: int, cases: Sequence[Limited]) -> list[str]:
    """What each says when it is made."""
    return [
        refusal(partial(EmulatedPipeline, each.problem, each.schedule, seconds_per_tick=1e-5, execution=each.execution))
        for each in cases
    ]


def allocated(rank: int, world: int, cases: Sequence[Case]) -> list[list[tuple[int, int]]]:
    """For each case, at the end of each op of a step: bytes that the account has, and those that torch has taken."""
    found = []
    for case in cases:
        model = SETS[case.model](case.schedule.placement.stage_count, sum(case.schedule.sizes))
        mine = own(rank, case.schedule, model)
        with Pipeline(case.problem, case.schedule, mine, model.loss_fn, execution="static") as pipeline:
            for _ in range(2):  # the first makes the gradients
                pipeline.step(model.batch, model.target)
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
                pipeline.step(model.batch, model.target)
        kineto = profiler.profiler
        assert kineto is not None
        events = kineto.kineto_results.events()
        taken = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
        ends = {event.name(): event.end_ns() for event in events}
        held: dict[tuple[int, int], int] = {}
        passed: dict[tuple[int, bool, int], int] = {}
        row = []
        for record in pipeline.report.records:
            op = record.op
            held[op.stage, op.microbatch] = record.held_bytes
            if op.kind is not Kind.W:
                passed.pop((op.stage, op.is_backward, op.microbatch), None)
                passed[op.stage + (-1 if op.is_backward else 1), op.is_backward, op.microbatch] = record.message_bytes
            there = sum(count for when, count in taken if when <= ends[str(op)])
            row.append((sum(held.values()) + sum(passed.values()), there))
        found.append(row)
    return found


def step(rank: int, world: int, argument: tuple[Limited, MemoryRule]) -> int:
    """One step of a small GPT; its peak."""
    case, memory = argument
    model = SETS["gpt"](case.schedule.placement.stage_count, sum(case.schedule.sizes))
    mine = own(rank, case.schedule, model)
    with Pipeline(
        case.problem, case.schedule, mine, model.loss_fn, memory=memory, execution=case.execution
    ) as pipeline:
        pipeline.step(model.batch, model.target)
        return pipeline.report.peak_bytes


def lengths(rank: int, world: int, schedule: Schedule) -> list[tuple[int, list[float]]]:
    """Two steps whose micro-batches have 12 rows or 4, planned as 8: measured, then with what was measured as limit."""
    problem = problem_for(schedule.placement, schedule.sizes)
    stage = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    rows = [12, 4] * (len(schedule.sizes) // 2)
    found, peak = [], 0
    modes: list[tuple[MemoryRule, ExecutionMode]] = [
        ("report", "static"),
        ("enforce", "adaptive"),
        ("enforce", "static"),
    ]
    for memory, execution in modes:
        half = problem.memory if memory == "report" else _halves(problem, gather(peak, 60, "peaks"))
        with Pipeline(
            replace(problem, memory=half), schedule, {rank: stage}, mse_loss, memory=memory, execution=execution
        ) as pipeline:
            losses = []
            for step in (rows, rows[::-1], rows):
                parts = MicroBatches([torch.ones(1, n, 8) for n in step])
                losses.append(pipeline.step(parts, parts))
                peak = max(peak, pipeline.report.peak_bytes)
        found.append((peak, losses))
    return found


def _halves(problem: Problem, peaks: Sequence[int]) -> Memory:
    """Limits, half of which every micro-batch is planned to hold."""
    half = tuple(peak // 2 for peak in peaks)
    return replace(problem.memory, activation=half, retained=half, limit=tuple(peaks))
