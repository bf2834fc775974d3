"""Loss curves beside the single process: tied embeddings, clipping, AdamW, replicas, and a checkpoint in between.

    python -m benchmarks.curves                     # 50 steps of a GPT of 8 blocks of width 256
    python -m benchmarks.curves --steps 5 --width 64
    python -m benchmarks.curves --json

Every schedule runs with p = 4 and with two replicas of p = 2, static and adaptive, on the same batches of text. The
last row is saved half-way by p = 4 and goes on with p = 2. The report goes to `benchmarks/results/DATE-curves.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from adaptpipe.executor import Pipeline, launch, load_checkpoint, save_checkpoint
from adaptpipe.models import (
    GPTConfig,
    build_full,
    build_stage,
    load_text,
    next_byte_loss,
    split_layers,
    split_text,
    tied_copies,
    training_batches,
)
from adaptpipe.solver import Kind, Problem, Schedule, solve

from .solve import RESULTS, machine

PROCESSES, SAMPLES, SEED, RATE, MAX_NORM = 4, 10, 0, 3e-4, 0.5
TOLERANCE = 1e-5
"""Largest relative difference of a step's loss that counts as equal."""


@dataclass(frozen=True)
class Leg:
    """Steps of one curve under one schedule; the checkpoints it begins and ends with, if any."""

    schedule: str
    problem: Problem
    plan: Schedule
    replicas: int
    execution: str
    steps: range
    load: str = ""
    save: str = ""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.schedule}, p = {PROCESSES // self.replicas}, dp = {self.replicas}, {self.execution}"


@dataclass(frozen=True)
class Curve:
    """One row of the report: how far the losses are from the single process's, relative to them, at the worst step."""

    name: str
    ops: str
    worst: float
    step: int
    first_loss: float
    last_loss: float


def problem_of(ranks: int, placement: str, samples: int) -> Problem:
    """Prices as a GPT's: weight gradients in four units, fused backwards a little cheaper, memory for p activations."""
    return Problem.from_dict(
        {
            "pipeline": {"ranks": ranks, "placement": placement, "stages_per_rank": 2 if placement == "v" else 1},
            "batch": {"samples": samples, "microbatch_sizes": [1, 2, 3]},
            "costs": {
                "forward": {"fixed": 50, "per_sample": 100},
                "backward_input": {"fixed": 50, "per_sample": 100},
                "weight_units": [{"fixed": 2, "per_sample": 25}] * 4,
                "backward": {"fixed": 55, "per_sample": 190},
                "overhead": 2,
            },
            "memory": {
                "activation": {"per_sample": 10},
                "retained": {"per_sample": 6},
                "static": 0,
                "limit": 25 * ranks,
            },
            "links": {"latency": 10},
        }
    )


def plans(ranks: int, replicas: int) -> Iterator[tuple[str, Problem, Schedule]]:
    """The schedules to train under; the memory limit is the solver's, and the run's is lifted."""
    samples = SAMPLES // replicas
    for name, placement in (("1F1B", "linear"), ("ZB-V", "v"), ("solver", "v")):
        problem = problem_of(ranks, placement, samples)
        if name != "solver":
            problem = replace(problem, sizes=(1,))
        result = solve(problem, "auto" if name == "solver" else name, time_limit=10)
        assert result.timeline is not None, result.reason
        yield name, replace(problem, memory=replace(problem.memory, limit=(None,) * ranks)), result.schedule


def legs(steps: int, folder: Path) -> list[tuple[Leg, ...]]:
    """Every curve, in one leg or two."""
    found: list[tuple[Leg, ...]] = []
    for replicas in (1, 2):
        for plan in plans(PROCESSES // replicas, replicas):
            found += [(Leg(*plan, replicas, execution, range(steps)),) for execution in ("static", "adaptive")]
    half, path = steps // 2, str(folder / "half.pt")
    first, second = found[3][0], found[-1][0]
    found.append((replace(first, steps=range(half), save=path), replace(second, steps=range(half, steps), load=path)))
    return found


def batches(config: GPTConfig, steps: range) -> Iterator[tuple[Tensor, Tensor]]:
    """The same text for every curve."""
    text = split_text(load_text(), config.sequence)[0]
    return islice(training_batches(config, text, SAMPLES, SEED), steps.start, steps.stop)


def single(config: GPTConfig, steps: int, size: int = SAMPLES) -> list[float]:
    """Losses of the unsplit model, whose gradients are summed over micro-batches of that many samples."""
    model = build_full(config, SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    losses = []
    for batch, target in batches(config, range(steps)):
        loss = 0.0
        for part, wanted in zip(torch.split(batch, size), torch.split(target, size), strict=True):
            share = next_byte_loss(model(part), wanted) * (len(part) / SAMPLES)
            torch.autograd.backward(share)
            loss += share.item()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    return losses


def train_all(rank: int, world: int, work: tuple[GPTConfig, list[tuple[Leg, ...]]]) -> list[list[float]]:
    """What every process does; the losses of each curve."""
    config, curves = work
    found = []
    for curve in curves:
        if rank == 0:
            print(" then ".join(leg.name for leg in curve), file=sys.stderr, flush=True)
        found.append([loss for leg in curve for loss in _train(config, leg, world)])
    return found


def _train(config: GPTConfig, leg: Leg, world: int) -> list[float]:
    ranks, placement = world // leg.replicas, leg.plan.placement
    mesh = init_device_mesh("cpu", (leg.replicas, ranks), mesh_dim_names=("dp", "pp"))
    parts = split_layers(len(config.layer_names), placement.stage_count, [0, *config.layer_parameters[1:]])
    stages: dict[int, nn.Module] = {
        stage: build_stage(config, SEED, parts[stage]) for _, stage in placement.held[mesh.get_local_rank("pp")]
    }
    optimizer = torch.optim.AdamW([p for stage in stages.values() for p in stage.parameters()], lr=RATE)
    share = slice(mesh.get_local_rank("dp"), None, leg.replicas)
    losses = []
    with Pipeline(
        leg.problem,
        leg.plan,
        stages,
        next_byte_loss,
        mesh=mesh,
        tied=tied_copies(config, parts),
        execution="static" if leg.execution == "static" else "adaptive",
    ) as pipeline:
        if leg.load:
            load_checkpoint(leg.load, pipeline, optimizer)
        for batch, target in batches(config, leg.steps):
            losses.append(pipeline.step(batch[share], target[share]))
            pipeline.clip_grad_norm_(MAX_NORM)
            optimizer.step()
            optimizer.zero_grad()
        if leg.save:
            save_checkpoint(leg.save, pipeline, optimizer)
    return losses


def compared(name: str, ops: str, losses: Sequence[float], wanted: Sequence[float]) -> Curve:
    """One row of the report."""
    errors = [abs(a / b - 1) for a, b in zip(losses, wanted, strict=True)]
    worst = max(errors)
    return Curve(
        name=name,
        ops=ops,
        worst=worst,
        step=errors.index(worst) + 1,
        first_loss=losses[0],
        last_loss=losses[-1],
    )


def _ops(plan: Schedule) -> str:
    """What a schedule is made of."""
    ops = [op for row in plan.ops for op in row]
    counts = {
        "fused": sum(op.kind is Kind.B for op in ops),
        "split": sum(op.kind is Kind.I for op in ops),
        "ranges of W": sum(op.kind is Kind.W and op.units is not None for op in ops),
    }
    uneven = any(a != b for a, b in pairwise(plan.sizes))
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    return ", ".join(parts) + (f", sizes {' '.join(map(str, plan.sizes))}" if uneven else "")


def report(config: GPTConfig, steps: int, curves: Sequence[Curve]) -> str:
    """The tables in Markdown."""
    lines = [
        "# Loss curves beside the single process",
        "",
        f"Made by `python -m benchmarks.curves` on {machine()}: {datetime.now(UTC).date()}.",
        "",
        f"A GPT of {config.layers} blocks, width {config.width}, sequence {config.sequence}, embedding and head tied; "
        f"{SAMPLES} samples a step, {steps} steps of AdamW, gradients clipped to a norm of {MAX_NORM}. **Worst**: the "
        "largest relative difference of a step's loss from that of the unsplit model in one process, which sees the "
        "batch as a whole, and at which step. The first row is that process with micro-batches of one sample: what "
        "rounding alone does.",
        "",
        "| schedule | ops | worst | at step | loss, first to last |",
        "|---|---|---|---|---|",
    ]
    for curve in curves:
        lines.append(
            f"| {curve.name} | {curve.ops} | {curve.worst:.1e} | {curve.step} | "
            f"{curve.first_loss:.4f} to {curve.last_loss:.4f} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code, 1 where a curve leaves the single process's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50, help="steps of each curve (50)")
    parser.add_argument("--width", type=int, default=256, help="of the model (256)")
    parser.add_argument("--sequence", type=int, default=32, help="bytes of a sample (32)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, and no report")
    options = parser.parse_args(arguments)
    config = GPTConfig(layers=8, width=options.width, heads=4, sequence=options.sequence, tied=True)
    wanted = single(config, options.steps)
    with tempfile.TemporaryDirectory() as folder:
        work = legs(options.steps, Path(folder))
        found = launch(train_all, PROCESSES, (config, work), threads=1)[0]
    curves = [compared("one process, micro-batches of one", "", single(config, options.steps, 1), wanted)]
    for curve, losses in zip(work, found, strict=True):
        name, ops = " then ".join(leg.name for leg in curve), "; ".join(_ops(leg.plan) for leg in curve)
        curves.append(compared(name, ops, losses, wanted))
    text = report(config, options.steps, curves)
    if options.json:
        print(json.dumps({"machine": machine(), "steps": options.steps, "curves": [asdict(curve) for curve in curves]}))
    else:
        path = RESULTS / f"{datetime.now(UTC).date()}-curves.md"
        path.write_text(text, encoding="utf-8")
        print(f"{text}\nwritten to {path}")
    return int(max(curve.worst for curve in curves) > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
