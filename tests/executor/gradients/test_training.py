"""Training on real ranks: tied weights, the global norm and replicas, against the unsplit model in one process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from adaptpipe.executor.launching.launcher import launch
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.models import build_full
from adaptpipe.solver import Kind, Op, Schedule, place
from adaptpipe.solver.heuristics import one_f_one_b, zb_v

from ..orders import problem_for, schedule_for
from . import training_jobs as jobs

pytestmark = pytest.mark.timeout(120)

STEPS = 5
MODES: tuple[ExecutionMode, ...] = ("static", "adaptive")


def runs(ranks: int, replicas: int) -> list[jobs.Run]:
    """1F1B, ZB-V, and what a solver may give: fused, split and cut backwards, micro-batches of unequal sizes.

    That also with two directions, where every stage has two replicas.
    """
    linear, v, both = place("linear", ranks), place("v", ranks, 2), place("bidirectional", ranks)
    samples = jobs.SAMPLES // replicas
    sizes = (1, 2, 1, samples - 4) if samples > 4 else (1, 2, samples - 3)
    ones = (1,) * samples
    found = [
        ("1F1B", linear, ones, one_f_one_b(problem_for(linear, ones))),
        ("ZB-V", v, ones, zb_v(problem_for(v, ones))),
        ("solver", v, sizes, cut(schedule_for(v, sizes, "random", seed=2))),
        ("directions", both, sizes, cut(schedule_for(both, sizes, "random", seed=2))),
    ]
    return [
        jobs.Run(
            f"{name} p={ranks} dp={replicas} {execution}",
            problem_for(placement, sizes, units=3),
            schedule,
            replicas,
            execution,
        )
        for name, placement, sizes, schedule in found
        for execution in MODES
    ]


def cut(schedule: Schedule) -> Schedule:
    """Cut every other W into two ranges of its three units, the second of which runs last on its rank."""
    rows = []
    for row in schedule.ops:
        ops: list[Op] = []
        last: list[Op] = []
        for op in row:
            if op.kind is Kind.W and op.microbatch % 2:
                ops.append(Op(op.stage, Kind.W, op.microbatch, (0, 1)))
                last.append(Op(op.stage, Kind.W, op.microbatch, (1, 3)))
            else:
                ops.append(op)
        rows.append((*ops, *last))
    return Schedule(schedule.placement, schedule.sizes, tuple(rows))


CASES = [*runs(4, 1), *runs(2, 2)]


@dataclass(frozen=True)
class Trained:
    """What every rank brought home, and where it was saved meanwhile."""

    everyone: tuple[tuple[list[jobs.Curve], list[list[jobs.Curve]]], ...]
    paths: list[Path]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """One set of processes for all."""
    folder, by_name = tmp_path_factory.mktemp("checkpoints"), {case.name: case for case in CASES}
    chains = [
        ("ZB-V p=4 dp=1 static", "directions p=2 dp=2 adaptive"),
        ("directions p=4 dp=1 static", "solver p=2 dp=2 adaptive"),
    ]
    resumed = [
        jobs.Resumed(by_name[first], by_name[second], folder / str(number) / "model.pt", 3, STEPS + 2)
        for number, (first, second) in enumerate(chains)
    ]
    everyone = launch(jobs.train_all, 4, (CASES, STEPS, resumed), threads=1)
    return Trained(everyone, [each.path for each in resumed])


def test_loss_curves_are_the_single_process_ones(trained: Trained) -> None:
    """The copies of a tied matrix drifted apart, on two ranks or both on rank 0 (V): NVIDIA/Megatron-LM#656.

    Each rank, and each of its stages, clipped by a norm of its own: pytorch/torchtitan#596.
    """
    whole = jobs.train_whole(STEPS)
    assert min(whole.norms) > jobs.MAX_NORM, "clipping has something to do"
    for number, case in enumerate(CASES):
        curves = [rank[number] for rank, _ in trained.everyone]
        for curve in curves:
            assert curve.losses == pytest.approx(whole.losses, rel=1e-5), case.name
            assert curve.norms == pytest.approx(whole.norms, rel=1e-4), case.name
            assert (curve.losses, curve.norms) == (curves[0].losses, curves[0].norms), "alike to the bit on all ranks"
        copies = [copy for curve in curves for copy in curve.copies]
        assert len(copies) == 2 * case.replicas * case.schedule.placement.directions
        assert all(torch.equal(copy, copies[0]) for copy in copies), case.name
        assert torch.allclose(copies[0], whole.copies[0], atol=1e-5)


def test_a_checkpoint_of_four_ranks_goes_on_with_two(trained: Trained) -> None:
    """And each stage is in it once, also where it has two replicas."""
    whole = jobs.train_whole(STEPS + 2)
    for _, chains in trained.everyone:
        for halves in chains:
            losses = [loss for curve in halves for loss in curve.losses]
            assert losses == pytest.approx(whole.losses, rel=1e-5)
    for path in trained.paths:
        assert list(path.parent.iterdir()) == [path]
        data = torch.load(path, weights_only=True)
        model = build_full(jobs.CONFIG, 0)
        assert list(data["model"]) == list(model.state_dict())
        model.load_state_dict(data["model"])
        assert set(data["optimizer"]["state"]) == set(data["model"])
        names = [name for group in data["optimizer"]["groups"] for name in group["params"]]
        assert sorted(names) == sorted(data["model"])
        assert (data["steps"], data["extra"]) == (3, {"from": "p=4"})
