"""Measuring the links between a run file's ranks, and the cluster file that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgspec
import torch

from adaptpipe.executor import MeasuredDevice, MeasuredLinks, launch, measure_device, measure_links
from adaptpipe.models.clusters.fleet_file import AchievedSpec, DeviceSpec, FleetFile, Group, LinksSpec
from adaptpipe.solver import InputError
from adaptpipe.solver.files.reading import write_text

from .common import table
from .run_file import RunSpec


@dataclass(frozen=True, slots=True)
class LinkBench:
    """Where to measure: "cpu" or "cuda"; in which numbers, by torch's name; and how long to wait."""

    device: str
    dtype: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The links, the same on every rank, and this rank's device."""

    links: MeasuredLinks
    device: MeasuredDevice


ALIKE = 0.15
"""Devices whose speeds differ by less, relative to the first's, count as equally fast: measurements differ too."""


def profile_links(spec: RunSpec, device: str, dtype: str) -> FleetFile:
    """Measure the links between as many processes as a run file has ranks, or between those of torchrun.

    Raises
    ------
    InputError
        When there is one rank only.
    """
    if spec.processes < 2:
        raise InputError(f"ranks = {spec.ranks}: one rank has no links; set two at least, as with --set ranks=2")
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    bench = LinkBench(device, dtype, spec.timeout_s)
    return as_cluster(launch(_measure, spec.processes, bench, backend=backend), device)


def _measure(rank: int, ranks: int, bench: LinkBench) -> Measured:
    where = torch.device("cuda", torch.cuda.current_device()) if bench.device == "cuda" else torch.device("cpu")
    links = measure_links(device=None if bench.device == "cpu" else where, timeout_s=bench.timeout_s)
    return Measured(links, measure_device(where, getattr(torch, bench.dtype), ranks))


def as_cluster(measured: Sequence[Measured], device: str) -> FleetFile:
    """The cluster file's content: each rank's device, all in one node, with a link for each two.

    All that was measured counts as reached; what attention reaches was not, and stays as it is assumed everywhere.
    """
    links, first = measured[0].links, measured[0].device
    ranks = range(len(measured))
    slowest = min(links.bandwidth[a][b] for a in ranks for b in ranks if a != b) / 1e9
    own = DeviceSpec(first.name, first.flops / 1e12, first.bandwidth / 1e12, first.memory / 1e9, slowest, slowest)

    def group(found: MeasuredDevice) -> Group:
        speed = found.flops / first.flops
        return Group(
            own,
            1,
            1.0 if abs(speed - 1) < ALIKE else round(speed, 2),
            None if found.memory == first.memory else found.memory / 1e9,
            reserve_gb=0.0 if device == "cpu" else None,
        )

    groups = [(each, len(list(run))) for each, run in groupby(group(rank.device) for rank in measured)]
    return FleetFile(
        [msgspec.structs.replace(each, count=count) for each, count in groups],
        "measured",
        devices_per_node=len(ranks),
        achieved=AchievedSpec(gemm=1.0, elementwise=1.0, inside=1.0, between=1.0),
        links=LinksSpec(
            latency_us=[[each * 1e6 for each in row] for row in links.latency_s],
            gb_per_s=[[each / 1e9 for each in row] for row in links.bandwidth],
        ),
    )


def require_cluster_name(path: Path | None) -> None:
    """Refuse a name by which the file would not be read as a cluster's.

    Raises
    ------
    InputError
        When it does not end in .json.
    """
    if path is not None and path.suffix.lower() != ".json":
        raise InputError(f"--output {path}: a cluster file is known by its name; let it end in .json")


def save_cluster(cluster: FleetFile, path: Path) -> None:
    """Write a file that `adaptpipe plan --cluster` takes.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    write_text(path, msgspec.json.format(msgspec.json.encode(content(cluster)), indent=1).decode() + "\n")


def content(cluster: FleetFile) -> object:
    """What the file says: keys that were not measured are left out."""
    return _filled(msgspec.to_builtins(cluster))


def _filled(data: object) -> object:
    if isinstance(data, dict):
        return {key: _filled(value) for key, value in data.items() if value is not None}
    return [_filled(each) for each in data] if isinstance(data, list) else data


def show_links(cluster: FleetFile) -> None:
    """Print latency and bandwidth of each pair of ranks."""
    latency, speed = cluster.links.latency_us, cluster.links.gb_per_s
    assert latency is not None
    assert speed is not None
    ranks = range(len(latency))
    rows = [
        [f"rank {a}", *("–" if a == b else f"{latency[a][b]:.0f} us, {speed[a][b]:.3g} GB/s" for b in ranks)]
        for a in ranks
    ]
    table(["from", *(f"to rank {b}" for b in ranks)], rows)
    device = cluster.devices[0].device
    assert isinstance(device, DeviceSpec)
    print(
        f"{device.name}: {device.tflops:.3g} TFLOP/s in large matrix products, {device.tb_per_s * 1e3:.3g} GB/s when a "
        f"tensor is copied, {device.memory_gb:.3g} GB for each rank"
    )
    speeds = [group.speed for group in cluster.devices for _ in range(group.count)]
    others = [f"rank {rank} {speed:.2f} times as fast" for rank, speed in enumerate(speeds) if speed != 1.0]
    if others:
        print(f"that is rank 0; {', '.join(others)}")
