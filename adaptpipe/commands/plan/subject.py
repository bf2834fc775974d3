"""From a question to what is planned: the layers' costs, the ranks, and what the figures are measured against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from adaptpipe.models.clusters import Device, Fleet, load_fleet
from adaptpipe.models.costs import Architecture, Recompute, layers, preset, read_config, sample_flops
from adaptpipe.models.costs import parameters as count_parameters
from adaptpipe.solver import InputError
from adaptpipe.solver.core.cluster import Cluster, uniform_cluster
from adaptpipe.solver.planning.instance_file import load_workload
from adaptpipe.solver.planning.workload import UNIT, Workload

from .question import Question

__all__ = ["UNIT", "Subject", "subject"]

SIZES = (1, 2, 3, 4)
"""Micro-batch sizes that are considered where none are given."""

PER_RANK = 4
"""Samples of a batch for each rank of each pipeline, where no batch is given."""

SEQUENCE = 4096
"""Tokens of a sample where none are given; fewer where the model has fewer positions."""


@dataclass(frozen=True)
class Subject:
    """What is planned.

    Parameters
    ----------
    question
        What was asked.
    workload
        Layers, ranks and the batch of one pipeline.
    parameters
        Of the model, counted from its dimensions; None where only its costs are known.
    shared
        Parameters that the sum over the layers has beyond those: copies of a shared matrix, and blocks that predict
        further tokens.
    tokens, flops
        Of a step, all replicas together; the operations are those of the model, nothing twice. None: unknown.
    devices, device_flops
        How many devices there are, and their published operations per second in sum; None: unknown.
    reduction_s
        Seconds of the gradients' exchange between replicas, by bytes of gradients on a rank; None: there is none.
    model, cluster
        As plain data, for the plan's file.
    """

    question: Question
    workload: Workload
    parameters: int | None = None
    shared: int = 0
    tokens: int | None = None
    flops: float | None = None
    devices: int | None = None
    device_flops: float | None = None
    model: Mapping[str, object] = field(default_factory=dict)
    cluster: Mapping[str, object] = field(default_factory=dict)


def subject(question: Question) -> Subject:
    """What a question is about.

    Raises
    ------
    InputError
        When its parts do not fit each other.
    """
    return _of_instance(question) if question.instance is not None else _of_model(question)


def _of_instance(question: Question) -> Subject:
    assert question.instance is not None
    found = load_workload(question.instance, question.name, question.microbatch_sizes)
    cluster = found.cluster
    if question.ranks is not None:
        cluster = _resized(cluster, question.ranks)
    if question.memory is not None:
        cluster = replace(cluster, memory=(round(question.memory * 1e9),) * cluster.ranks)
    samples = question.global_batch or found.samples
    sizes = tuple(size for size in found.sizes if size <= samples)
    if not sizes:
        raise InputError(f"--global-batch {samples}: no micro-batch size of {list(found.sizes)} is as small")
    workload = replace(found, cluster=_scaled(cluster, question.links), samples=samples, sizes=sizes)
    return Subject(
        question,
        workload,
        model={"instance": question.instance, "name": workload.name},
        cluster={"name": cluster.name, "ranks": cluster.ranks},
    )


def _of_model(question: Question) -> Subject:
    assert question.model is not None
    assert question.cluster is not None
    tp, dp = question.tp, question.dp
    fleet = load_fleet(question.cluster)
    if question.ranks is not None:
        fleet = fleet.resized(question.ranks * tp * dp)
    if question.memory is not None:
        fleet = fleet.with_memory(round(question.memory * 1e9))
    device, cluster = fleet.cluster(tp, dp)
    architecture = _architecture(question.model)
    sequence = question.sequence or min(SEQUENCE, architecture.positions or SEQUENCE)
    if architecture.positions and sequence > architecture.positions:
        raise InputError(f"--sequence {sequence}: {architecture.name} has {architecture.positions} positions")
    batch = question.global_batch or PER_RANK * cluster.ranks * dp
    if batch % dp:
        raise InputError(f"--global-batch {batch}: does not divide among {dp} replicas; make it a multiple of {dp}")
    samples = batch // dp
    asked = question.microbatch_sizes or SIZES
    sizes = tuple(size for size in asked if size <= samples)
    if not sizes:
        raise InputError(f"--microbatch-sizes {list(asked)}: none is within the {samples} samples of a pipeline")
    profile, ties = layers(
        architecture,
        device,
        sequence=sequence,
        sizes=sizes,
        tp=tp,
        dp=dp,
        ep=question.ep,
        zero=question.zero,
        split_layers=question.split_layers,
        recompute=_recompute(question.recompute),
    )
    workload = Workload(
        f"{architecture.name} on {cluster.name}", profile, _scaled(cluster, question.links), samples, sizes, ties
    )
    parameters = count_parameters(architecture)
    return Subject(
        question,
        workload,
        parameters,
        sum(part.parameters for part in profile.parts) - parameters,
        batch * sequence,
        batch * sample_flops(architecture, sequence),
        len(fleet.members),
        sum(member.device.flops for member in fleet.members),
        {
            "name": architecture.name,
            "source": question.model,
            "sequence": sequence,
            "global_batch": batch,
            "split_layers": question.split_layers,
            "recompute": question.recompute,
        },
        _plain(fleet, device, tp, dp, question),
    )


def _architecture(model: str) -> Architecture:
    if Path(model).suffix.lower() == ".json":
        return read_config(model)
    if Path(model).is_dir():
        return read_config(Path(model) / "config.json")
    return preset(model)


def _recompute(text: str) -> Recompute:
    for each in get_args(Recompute):
        if text == each:
            return each  # type: ignore[no-any-return]  # one of the literals
    raise InputError(f"--recompute {text}: is none of {', '.join(get_args(Recompute))}")


def _plain(fleet: Fleet, device: Device, tp: int, dp: int, question: Question) -> dict[str, object]:
    return {
        "name": fleet.name,
        "device": device.name,
        "devices": len(fleet.members),
        "tp": tp,
        "dp": dp,
        "ep": question.ep,
        "zero": question.zero,
    }


def _scaled(cluster: Cluster, factor: float) -> Cluster:
    if factor == 1.0:
        return cluster
    return replace(cluster, bandwidth=tuple(tuple(value * factor for value in row) for row in cluster.bandwidth))


def _resized(cluster: Cluster, ranks: int) -> Cluster:
    """The first of an instance's ranks, or more of them where all are equal."""
    if ranks > cluster.ranks:
        if not cluster.uniform or cluster.ranks < 2:
            raise InputError(
                f"--ranks {ranks}: the instance has {cluster.ranks} ranks that are not all alike; ask for fewer"
            )
        latency, bandwidth = cluster.latency_s[0][1], cluster.bandwidth[0][1]
        return uniform_cluster(cluster.name, ranks, cluster.memory[0], latency, bandwidth, cluster.speed[0])

    def square(rows: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
        return tuple(row[:ranks] for row in rows[:ranks])

    return Cluster(
        cluster.name,
        cluster.speed[:ranks],
        cluster.memory[:ranks],
        square(cluster.latency_s),
        square(cluster.bandwidth),
    )
