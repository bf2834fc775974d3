"""From a question to what is planned: the layers' costs, the ranks, and what the figures are measured against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from adaptpipe.models.clusters import Device, Fleet, load_fleet
from adaptpipe.models.costs import MIXED
from adaptpipe.solver import InputError
from adaptpipe.solver.core.cluster import Cluster, uniform_cluster
from adaptpipe.solver.planning.files.instance_file import load_workload
from adaptpipe.solver.planning.workload import UNIT, Workload

from .costing import costs_of
from .question import Question

__all__ = ["UNIT", "Subject", "subject"]

SIZES = (1, 2, 3, 4)
"""Micro-batch sizes that are considered where none are given."""

PER_RANK = 4
"""Samples of a batch for each rank of each pipeline, where no batch is given."""


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
    measured
        Whether the layers' seconds were measured, or agree with what was.
    exchange_s
        Seconds that replicas take to sum the gradients of one parameter; 0: there are none, or it is unknown.
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
    measured: bool = False
    exchange_s: float = 0.0
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
    assert question.cluster is not None
    tp, dp = question.tp, question.dp
    fleet = load_fleet(question.cluster)
    if question.ranks is not None:
        fleet = fleet.resized(question.ranks * tp * dp)
    if question.memory is not None:
        fleet = fleet.with_memory(round(question.memory * 1e9))
    device, cluster = fleet.cluster(tp, dp)
    batch = question.global_batch or PER_RANK * cluster.ranks * dp
    if batch % dp:
        raise InputError(f"--global-batch {batch}: does not divide among {dp} replicas; make it a multiple of {dp}")
    samples = batch // dp
    asked = question.microbatch_sizes or SIZES
    sizes = tuple(size for size in asked if size <= samples)
    if not sizes:
        raise InputError(f"--microbatch-sizes {list(asked)}: none is within the {samples} samples of a pipeline")
    costs = costs_of(question, device, sizes)
    name, links = f"{costs.name} on {cluster.name}", _scaled(cluster, question.links)
    return Subject(
        question,
        Workload(name, costs.profile, links, samples, sizes, costs.ties),
        costs.parameters,
        sum(part.parameters for part in costs.profile.parts) - costs.parameters,
        batch * costs.sequence,
        None if costs.flops is None else batch * costs.flops,
        len(fleet.members),
        sum(member.device.flops for member in fleet.members),
        costs.measured,
        _exchange_s(fleet, tp, dp),
        {
            **costs.model,
            "sequence": costs.sequence,
            "global_batch": batch,
            "split_layers": question.split_layers,
            "recompute": question.recompute,
        },
        _plain(fleet, device, tp, dp, question),
    )


def _exchange_s(fleet: Fleet, tp: int, dp: int) -> float:
    """Seconds that replicas take to sum the gradients of one parameter: a ring, over the slowest link between them."""
    if dp == 1:
        return 0.0
    wide = tp * dp
    slowest = min(
        fleet.link(rank * wide + replica * tp, rank * wide + (replica + 1) % dp * tp).bandwidth
        for rank in range(len(fleet.members) // wide)
        for replica in range(dp)
    )
    return 2 * (dp - 1) / dp * MIXED.gradient / tp / slowest


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
