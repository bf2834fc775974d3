"""What ranks do in the tests of dropout, keywords and hooks; in a file of its own, so that other processes find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from adaptpipe.executor.feeding.rows import MicroBatches, cut
from adaptpipe.executor.running.pipeline import Pipeline
from adaptpipe.executor.stages.randomness import RandomState
from adaptpipe.solver import AdaptPipeError

from ..stage_sets import SETS
from .pipeline_jobs import Case, error, own, refusal

D = 8


class Noisy(nn.Module):
    """Dropout in plain code, in a recomputed part, and in attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(D, D), nn.Linear(D, D)

    def part(self, x: Tensor) -> Tensor:
        return F.dropout(torch.tanh(self.second(x)), 0.3, self.training)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(self.part, F.dropout(self.first(x), 0.3, self.training), use_reentrant=False)
        return x + y


def noisy(stages: int) -> list[nn.Module]:
    torch.manual_seed(4)
    return [Noisy() for _ in range(stages)]


def samples_of(case: Case) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(9)
    shape = (sum(case.schedule.sizes), 3, D)
    return torch.randn(shape, generator=draw), torch.randn(shape, generator=draw)


def losses_with_dropout(rank: int, world: int, cases: Sequence[Case]) -> list[tuple[list[float], float]]:
    """For each case: losses of three steps, and the largest error of a gradient after them."""
    return [_with_dropout(rank, case) for case in cases]


def _with_dropout(rank: int, case: Case) -> tuple[list[float], float]:
    count = case.schedule.placement.stage_count
    stages = noisy(count)
    mine = {stage: stages[stage] for _, stage in case.schedule.placement.held[rank]}
    batch, target = samples_of(case)
    torch.manual_seed(100 + rank)  # which must not matter
    with Pipeline(case.problem, case.schedule, mine, F.mse_loss, seed=5) as pipeline:
        before = torch.get_rng_state()
        losses = [pipeline.step(batch, target) for _ in range(2)]
        pipeline.steps = 7  # as when training resumes
        losses.append(pipeline.step(batch, target))
        assert torch.equal(before, torch.get_rng_state())
    wanted, whole = [], noisy(count)
    state = RandomState(5)
    for step in (0, 1, 7):
        state.step = step
        wanted.append(_whole_step(state, whole, case, batch, target))
    assert all(abs(a / b - 1) < 1e-6 for a, b in zip(losses, wanted, strict=True)), (losses, wanted)
    pairs = [(p, q) for s, m in mine.items() for p, q in zip(m.parameters(), whole[s].parameters(), strict=True)]
    return losses, max(error(p.grad, q.grad) for p, q in pairs)


def _whole_step(state: RandomState, stages: Sequence[nn.Module], case: Case, batch: Tensor, target: Tensor) -> float:
    total, sizes = 0.0, case.schedule.sizes
    for j, (x, y) in enumerate(zip(cut("batch", batch, sizes), cut("target", target, sizes), strict=True)):
        assert isinstance(x, Tensor)
        assert isinstance(y, Tensor)
        for s, stage in enumerate(stages):
            with state.of(s, j):
                x = stage(x)
        loss = F.mse_loss(x, y) * (sizes[j] / sum(sizes))
        torch.autograd.backward(loss)
        total += loss.item()
    return total


def torchs_own_seed(rank: int, world: int, case: Case) -> list[float]:
    """Losses with rank 0's seed of torch, with the same again, and with another."""
    batch, target = samples_of(case)
    losses = []
    for seed in (1, 1, 2):
        stages = noisy(case.schedule.placement.stage_count)
        torch.manual_seed(seed if rank == 0 else 50 + rank)
        mine = {stage: stages[stage] for _, stage in case.schedule.placement.held[rank]}
        with Pipeline(case.problem, case.schedule, mine, F.mse_loss) as pipeline:
            losses.append(pipeline.step(batch, target))
    return losses


class Masked(nn.Module):
    """Takes a mask and a number as keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)

    def forward(self, x: Tensor, *, mask: Tensor, scale: float = 1.0) -> Tensor:
        return x + torch.tanh(self.linear(x)) * mask[..., None] * scale


class Positioned(nn.Module):
    """Takes whatever keywords there are, and uses positions and a mapping's."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(16, D)

    def forward(self, x: Tensor, **more: Any) -> Tensor:
        return x + self.table(more["positions"]) + self.table(more["extra"]["positions"])  # type: ignore[no-any-return]


class Bare(nn.Module):
    """Takes none."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)  # type: ignore[no-any-return]  # modules return Any


def keyworded(stages: int) -> list[nn.Module]:
    torch.manual_seed(4)
    kinds: list[Callable[[], nn.Module]] = [Positioned, Masked, Bare, Masked]
    return [kinds[stage % 4]() for stage in range(stages)]


def _call(stage: nn.Module, x: Tensor, keywords: Mapping[str, Any]) -> Tensor:
    if isinstance(stage, Positioned):
        return stage(x, **keywords)  # type: ignore[no-any-return]  # modules return Any
    if isinstance(stage, Masked):
        return stage(x, mask=keywords["mask"], scale=keywords["scale"])  # type: ignore[no-any-return]
    return stage(x)  # type: ignore[no-any-return]


def _keywords(samples: int, length: int) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(length)
    return {
        "mask": torch.rand(samples, length, generator=draw) > 0.4,
        "scale": 0.5,
        "positions": torch.randint(16, (samples, length), generator=draw),
        "extra": {"positions": torch.randint(16, (samples, length), generator=draw)},
    }


def keywords_and_lengths(rank: int, world: int, case: Case) -> float:
    """Steps and evaluations with sequences of several lengths: the largest error of a loss or gradient."""
    sizes, worst = case.schedule.sizes, 0.0
    count = case.schedule.placement.stage_count
    stages, whole = keyworded(count), keyworded(count)
    mine = {stage: stages[stage] for _, stage in case.schedule.placement.held[rank]}
    with Pipeline(case.problem, case.schedule, mine, F.mse_loss) as pipeline:
        for length in (5, 3, 9, 5):
            batch, keywords = torch.randn(sum(sizes), length, D, generator=torch.Generator().manual_seed(length)), None
            keywords = _keywords(sum(sizes), length)
            target = torch.sin(batch)
            x = batch
            for stage in whole:
                x = _call(stage, x, keywords)
            loss = F.mse_loss(x, target)
            torch.autograd.backward(loss)
            worst = max(worst, abs(pipeline.evaluate(batch, target, **keywords) / loss.item() - 1))
            worst = max(worst, abs(pipeline.step(batch, target, **keywords) / loss.item() - 1))
        worst = max(worst, _lengths_by_microbatch(pipeline, whole, sizes))
    pairs = [(p, q) for s, m in mine.items() for p, q in zip(m.parameters(), whole[s].parameters(), strict=True)]
    return max(worst, *(error(p.grad, q.grad) for p, q in pairs))


def _lengths_by_microbatch(pipeline: Pipeline, whole: Sequence[nn.Module], sizes: Sequence[int]) -> float:
    """One step whose micro-batches have sequences of different lengths; the error of its loss."""
    lengths = [3 + 2 * j for j in range(len(sizes))]
    batches = [
        torch.randn(n, length, D, generator=torch.Generator().manual_seed(n))
        for n, length in zip(sizes, lengths, strict=True)
    ]
    keywords = [_keywords(n, length) for n, length in zip(sizes, lengths, strict=True)]
    total = 0.0
    for x, size, given in zip(batches, sizes, keywords, strict=True):
        y = x
        for stage in whole:
            y = _call(stage, y, given)
        loss = F.mse_loss(y, torch.sin(x)) * (size / sum(sizes))
        torch.autograd.backward(loss)
        total += loss.item()
    cut_already: dict[str, Any] = {
        name: MicroBatches([given[name] for given in keywords]) for name in ("mask", "positions", "extra")
    }
    batch, target = MicroBatches(batches), MicroBatches([torch.sin(x) for x in batches])
    found = [step(batch, target, scale=0.5, **cut_already) for step in (pipeline.step, pipeline.evaluate)]
    return max(abs(loss / total - 1) for loss in found)


def wrong_keywords(rank: int, world: int, case: Case) -> list[str]:
    """The messages of keywords that nobody can take."""
    stages = keyworded(case.schedule.placement.stage_count)
    mine = {stage: stages[stage] for _, stage in case.schedule.placement.held[rank]}
    samples = sum(case.schedule.sizes)
    batch, given = torch.randn(samples, 3, D), _keywords(samples, 3)
    with Pipeline(case.problem, case.schedule, mine, F.mse_loss) as pipeline:
        short: dict[str, Any] = {**given, "mask": given["mask"][1:]}
        cut_wrongly: dict[str, Any] = {**given, "mask": MicroBatches([given["mask"]])}
        found = [refusal(lambda: pipeline.step(batch, batch, **short))]
        found.append(refusal(lambda: pipeline.step(batch, batch, **cut_wrongly)))
        pipeline.step(batch, batch, **given)  # none of these has broken it
    mine = {stage: Masked() if stage == 2 else Bare() for stage in mine}
    with Pipeline(case.problem, case.schedule, mine, F.mse_loss) as pipeline:
        found.append(refusal(lambda: pipeline.step(batch, batch, maks=given["mask"])))
        pipeline.step(batch, batch, mask=given["mask"])
    return found


def register(parameter: nn.Parameter, hook: Callable[[Tensor], None]) -> Any:
    """Set a hook; its handle."""
    return parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]  # torch's


def hooked_steps(rank: int, world: int, cases: Sequence[Case]) -> list[str]:
    """Hooks on every parameter, over two steps without `zero_grad`; what is wrong with what they saw."""
    return [found for case in cases for found in _hooked_steps(rank, case)]


def _hooked_steps(rank: int, case: Case) -> list[str]:
    model = SETS[case.model](case.schedule.placement.stage_count, sum(case.schedule.sizes))
    mine, found = own(rank, case.schedule, model), []
    seen: list[tuple[str, Tensor]] = []
    named = {id(p): (f"{s}.{name}", p) for s, module in mine.items() for name, p in module.named_parameters()}
    handles, idle = [], set[str]()

    def last(name: str) -> Tensor:
        (grad,) = [p.grad for n, p in named.values() if n == name]
        assert grad is not None
        return grad

    for name, parameter in named.values():
        if not parameter.requires_grad:
            continue

        def hook(p: Tensor, name: str = name) -> None:
            assert p.grad is not None
            assert not torch.is_grad_enabled()
            seen.append((name, p.grad.clone()))

        handles.append(register(parameter, hook))
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn) as pipeline:
        for _ in range(2):
            seen.clear()
            pipeline.evaluate(model.batch, model.target)
            pipeline.step(model.batch, model.target)
            called = sorted(name for name, _ in seen)
            trained = sorted(name for name, p in named.values() if p.grad is not None and name not in idle)
            if called != trained:
                found.append(f"{case.name}: called for {called}, and {trained} got gradients")
            found += [
                f"{case.name}: {name} was not complete" for name, grad in seen if not torch.equal(grad, last(name))
            ]
            for name, parameter in named.values():
                if parameter.grad is None:  # what is there from elsewhere is not for the hook
                    parameter.grad = torch.zeros_like(parameter)
                    idle.add(name)
        seen.clear()
        for handle in handles:
            handle.remove()
        pipeline.step(model.batch, model.target)
        found += [f"{case.name}: {name} was called after its removal" for name, _ in seen]
    return found


def optimizers_in_hooks(rank: int, world: int, cases: Sequence[Case]) -> list[float]:
    """Train by an optimizer for each parameter, run by its hook; errors of the parameters after three steps."""
    return [_optimizers_in_hooks(rank, case) for case in cases]


def _optimizers_in_hooks(rank: int, case: Case) -> float:
    model, whole = (SETS[case.model](case.schedule.placement.stage_count, sum(case.schedule.sizes)) for _ in range(2))
    mine = own(rank, case.schedule, model)
    parameters = {id(p): p for module in mine.values() for p in module.parameters()}.values()
    optimizers = {p: torch.optim.AdamW([p], lr=1e-2, eps=1e-3) for p in parameters}

    def update(parameter: Tensor) -> None:
        optimizer = optimizers[parameter]  # type: ignore[index]  # it is a parameter
        optimizer.step()
        optimizer.zero_grad()

    for parameter in parameters:
        register(parameter, update)
    everything = [p for stage in whole.stages for p in stage.parameters()]
    optimizer = torch.optim.AdamW(everything, lr=1e-2, eps=1e-3)
    x: Any
    with Pipeline(case.problem, case.schedule, mine, model.loss_fn) as pipeline:
        for _ in range(3):
            pipeline.step(model.batch, model.target)
            x = whole.batch
            for stage in whole.stages:
                x = stage(x)
            torch.autograd.backward(whole.loss_fn(x, whole.target))
            optimizer.step()
            optimizer.zero_grad()
    pairs = [(p, q) for s, m in mine.items() for p, q in zip(m.parameters(), whole.stages[s].parameters(), strict=True)]
    assert all(p.grad is None for p, _ in pairs)
    return max(error(p.detach(), q.detach()) for p, q in pairs)


def hooks_after_a_failure(rank: int, world: int, case: Case) -> bool:
    """Whether a parameter has its hook back after a step that failed."""
    model = SETS[case.model](case.schedule.placement.stage_count, sum(case.schedule.sizes))
    mine = own(rank, case.schedule, model)
    parameter = next(p for module in mine.values() for p in module.parameters())
    register(parameter, lambda p: None)
    with Pipeline(case.problem, case.schedule, mine, lambda output, target: output) as pipeline:
        try:
            pipeline.step(model.batch, model.target)
        except AdaptPipeError:
            return bool(parameter._post_accumulate_grad_hooks)
    return False
