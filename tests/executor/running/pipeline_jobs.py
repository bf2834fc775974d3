"""What the ranks of the pipeline tests do; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from unittest import mock

import torch
from torch import nn

from adaptpipe.executor.report import StepReport
from adaptpipe.executor.running.pipeline import Pipeline
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.executor.stages.runner import StageRunner
from adaptpipe.solver import AdaptPipeError, Problem, Schedule

from ..stage_sets import SETS, Model, gpt_whole, run_whole


@dataclass(frozen=True)
class Case:
    """One schedule to run on one set of stages."""

    name: str
    model: str
    problem: Problem
    schedule: Schedule


def compare_all(rank: int, world: int, cases: Sequence[Case]) -> list[tuple[str, float, float]]:
    """For each case: name, the largest error of a gradient, and that of the loss, both relative.

    Weight units float in every other case, the first among them.
    """
    modes: tuple[ExecutionMode, ...] = ("adaptive", "static")
    return [(case.name, *_compare(rank, case, modes[number % 2])) for number, case in enumerate(cases)]


def _compare(rank: int, case: Case, execution: ExecutionMode) -> tuple[float, float]:
    count = case.schedule.placement.stage_count
    model = SETS[case.model](count, sum(case.schedule.sizes))
    mine = own(rank, case.schedule, model)
    # The problems' bytes are not the models'.
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn, execution=execution, memory="report") as pipeline:
        loss = pipeline.step(model.batch, model.target)
    if case.model == "gpt":
        whole = gpt_whole(count)
        expected = model.loss_fn(whole(model.batch), model.target)
        torch.autograd.backward(expected)
        wanted = {name: p.grad for name, p in whole.named_parameters()}
        pairs = [(p.grad, wanted[name]) for module in mine.values() for name, p in module.named_parameters()]
        return max(error(a, b) for a, b in pairs), abs(loss / expected.item() - 1)
    expected, gradients = whole_gradients(SETS[case.model](count, sum(case.schedule.sizes)))
    return (
        max([error(p.grad, gradients[s][name]) for s, m in mine.items() for name, p in m.named_parameters()] or [0.0]),
        abs(loss / expected.item() - 1),
    )


def own(rank: int, schedule: Schedule, model: Model) -> dict[int, nn.Module]:
    """A rank's stages."""
    return {stage: model.stages[stage] for stage in sorted({stage for _, stage in schedule.placement.held[rank]})}


def whole_gradients(model: Model) -> tuple[torch.Tensor, dict[int, Mapping[str, torch.Tensor | None]]]:
    """Loss and gradients of all stages in one process, by autograd alone."""
    loss = model.loss_fn(run_whole(model.stages, model.batch), model.target)
    if loss.requires_grad:
        torch.autograd.backward(loss)
    return loss, {s: {name: p.grad for name, p in m.named_parameters()} for s, m in enumerate(model.stages)}


def error(ours: torch.Tensor | None, wanted: torch.Tensor | None) -> float:
    """Largest difference, relative to the largest value; infinite where only one of the two is there."""
    if ours is None or wanted is None:
        return 0.0 if ours is wanted else float("inf")
    return float((ours - wanted).abs().max() / wanted.abs().max().clamp_min(1e-6))


def train_thrice(rank: int, world: int, case: Case) -> float:
    """Error of the gradients after three steps without `zero_grad`, against three times the whole model's."""
    model, mine, gradients = _prepare(rank, case)
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn) as pipeline:
        for _ in range(3):
            pipeline.step(model.batch, model.target)
    pairs = [(p.grad, gradients[s][name]) for s, m in mine.items() for name, p in m.named_parameters()]
    return max(error(ours, None if wanted is None else 3 * wanted) for ours, wanted in pairs)


def alternate(rank: int, world: int, case: Case) -> list[tuple[float, float]]:
    """Evaluate, train, evaluate, train; each loss, and the whole model's."""
    model, mine, gradients = _prepare(rank, case)
    more = SETS[case.model](case.schedule.placement.stage_count, 7)
    losses = []
    modules = SETS[case.model](case.schedule.placement.stage_count, 1).stages
    with torch.no_grad():
        small = more.loss_fn(run_whole(modules, more.batch), more.target).item()
        large = model.loss_fn(run_whole(modules, model.batch), model.target).item()
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn) as pipeline:
        losses.append((pipeline.evaluate(more.batch, more.target), small))
        assert all(p.grad is None for m in mine.values() for p in m.parameters())
        losses.append((pipeline.step(model.batch, model.target), large))
        with torch.no_grad():
            losses.append((pipeline.evaluate(more.batch, more.target, sizes=(4, 1, 2)), small))
            losses.append((pipeline.step(model.batch, model.target), large))
        losses.append((pipeline.evaluate(model.batch, model.target), large))
        for runner in pipeline._runners.values():
            assert isinstance(runner, StageRunner)
            assert not runner._held
            assert not runner.held_bytes
    for s, module in mine.items():
        for name, p in module.named_parameters():
            wanted = gradients[s][name]
            assert error(p.grad, None if wanted is None else 2 * wanted) < 1e-5, name
    return losses


def evaluate_alone(rank: int, world: int, argument: tuple[Case, int]) -> None:
    """One rank evaluates, the other trains."""
    case, evaluating = argument
    model, mine, _ = _prepare(rank, case)
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn, timeout_s=1.0) as pipeline:
        call = pipeline.evaluate if rank == evaluating else pipeline.step
        call(model.batch, model.target)


def only_where_needed(rank: int, world: int, case: Case) -> float:
    """Batch on the first stage's ranks, target on the last's, None elsewhere."""
    model, mine, _ = _prepare(rank, case)
    rows = case.schedule.placement.stages
    batch = model.batch if rank in {row[0] for row in rows} else None
    target = model.target if rank in {row[-1] for row in rows} else None
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn) as pipeline:
        loss = pipeline.step(batch, target)
        assert abs(pipeline.evaluate(batch, target) / loss - 1) < 1e-5
    return loss


def step_report(rank: int, world: int, case: Case) -> StepReport:
    model, mine, _ = _prepare(rank, case)
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn, execution="static") as pipeline:
        for _ in range(2):
            pipeline.step(model.batch, model.target)
    assert not any("forward" in module.__dict__ for stage in mine.values() for module in stage.modules())
    return pipeline.report


def _prepare(rank: int, case: Case) -> tuple[Model, dict[int, nn.Module], dict[int, Mapping[str, torch.Tensor | None]]]:
    count, samples = case.schedule.placement.stage_count, sum(case.schedule.sizes)
    model = SETS[case.model](count, samples)
    _, gradients = whole_gradients(SETS[case.model](count, samples))
    return model, own(rank, case.schedule, model), gradients


class Trap(nn.Module):
    """Fails, hangs, or ends the process, in the third of its forwards or backwards."""

    def __init__(self, inner: nn.Module, where: str) -> None:
        super().__init__()
        self.inner, self.where, self.calls = inner, where, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        if self.where == "backward":
            y.register_hook(self.count)  # type: ignore[no-untyped-call]  # torch's
        else:
            self.count()
        return y

    def count(self, gradient: torch.Tensor | None = None) -> None:
        self.calls += 1
        if self.calls == 3 and self.where == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.calls == 3 and self.where == "hang":
            time.sleep(30)
        if self.calls == 3:
            raise ValueError("boom")


def fall_into_trap(rank: int, world: int, argument: tuple[Case, int, str]) -> None:
    case, stage, where = argument
    model, mine, _ = _prepare(rank, case)
    if stage in mine:
        mine[stage] = Trap(mine[stage], where)
    timeout_s = 1.0 if where == "hang" else 60.0
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn, timeout_s=timeout_s) as pipeline:
        pipeline.step(model.batch, model.target)


class Odd(nn.Module):
    """Returns what no stage may return."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: torch.Tensor) -> object:
        return {"dict": {"hidden": x}, "None": None, "nested": (x, [x])}[self.what]


def return_odd(rank: int, world: int, argument: tuple[Case, int, str]) -> None:
    case, stage, what = argument
    model, mine, _ = _prepare(rank, case)
    if stage in mine:
        mine[stage] = Odd(what)
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn) as pipeline:
        pipeline.step(model.batch, model.target)


def forget_weights(rank: int, world: int, case: Case) -> None:
    """Make W of stage 1, micro-batch 2 do nothing."""
    model, mine, _ = _prepare(rank, case)
    with ExitStack() as stack, Pipeline(case.problem, case.schedule, mine, model.loss_fn) as pipeline:
        runner = pipeline._runners.get(1)
        if runner is not None:
            run = runner.weights
            stack.enter_context(
                mock.patch.object(runner, "weights", lambda j, units: None if j == 2 else run(j, units))
            )
        pipeline.step(model.batch, model.target)


def wrong_start(rank: int, world: int, argument: tuple[Case, dict[int, list[int]]]) -> str:
    """Give ranks other stages than their own; the message."""
    case, given = argument
    model = SETS[case.model](case.schedule.placement.stage_count, sum(case.schedule.sizes))
    return refusal(
        lambda: Pipeline(case.problem, case.schedule, {s: model.stages[s] for s in given[rank]}, model.loss_fn)
    )


def own_schedule(rank: int, world: int, cases: Sequence[Case]) -> str:
    """Give each rank a schedule of its own; the message."""
    case = cases[rank]
    model, mine, _ = _prepare(rank, case)
    return refusal(lambda: Pipeline(case.problem, case.schedule, mine, model.loss_fn))


def misuse(rank: int, world: int, case: Case) -> list[str]:
    """The messages of everything that a single rank can get wrong."""
    model, mine, _ = _prepare(rank, case)
    assert isinstance(model.batch, torch.Tensor)
    pipeline = Pipeline(case.problem, case.schedule, mine, model.loss_fn)
    batch, target = model.batch, model.target
    found = [
        refusal(lambda: pipeline.report),
        refusal(lambda: pipeline.step(None, target)),
        refusal(lambda: pipeline.step(batch[1:], target)),
        refusal(lambda: pipeline.step(batch, "target")),
        refusal(lambda: pipeline.step({"x": batch}, target)),
        refusal(lambda: pipeline.evaluate(batch, target, sizes=(0, 3))),
        refusal(lambda: pipeline.evaluate(batch, target, sizes=())),
        refusal(lambda: pipeline.evaluate(batch[:0], target)),
    ]
    pipeline.step(batch, target)  # none of these has broken it
    pipeline.close()
    pipeline.close()
    found.append(refusal(lambda: pipeline.step(batch, target)))
    pipeline = Pipeline(case.problem, case.schedule, mine, lambda output, target: output)
    found += [refusal(lambda: pipeline.step(batch, target)), refusal(lambda: pipeline.step(batch, target))]
    return found


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except AdaptPipeError as caught:
        return f"{type(caught).__name__}: {str(caught).splitlines()[0]}"
    return "no error"
