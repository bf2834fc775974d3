"""Cluster files: which devices, in which nodes, with which links and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

import msgspec

from adaptpipe.solver import InputError
from adaptpipe.solver.files.reading import convert, read_data

from .device import DEVICES_PER_NODE, Achieved, Device, device
from .fleet import MOST_DEVICES, Fleet, Link, Member, fleet

Number = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Above = Annotated[float, msgspec.Meta(ge=1e-6, le=1e12)]
Gigabytes = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]


class LinkSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link: microseconds of an empty message, and 10^9 bytes per second, as achieved."""

    latency_us: Number
    gb_per_s: Above


class LinksSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Links by topology, or a matrix [from][to] of devices for each of latency and bandwidth."""

    inside: LinkSpec | None = None
    between: LinkSpec | None = None
    latency_us: list[list[Number]] | None = None
    gb_per_s: list[list[Number]] | None = None


class DeviceSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device of one's own, by published figures: 10^12 operations and bytes per second, 10^9 bytes."""

    name: str
    tflops: Above
    tb_per_s: Above
    memory_gb: Gigabytes
    inside_gb_per_s: Above
    between_gb_per_s: Above


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some devices of one sort.

    Attributes
    ----------
    device
        A name, or a device of one's own.
    count
        How many.
    speed
        Relative to what the device's figures say.
    memory_gb, reserve_gb, limit_gb
        10^9 bytes that each has, that training cannot use, and that it may hold; left out: as the device has it.
    """

    device: str | DeviceSpec
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST_DEVICES)]
    speed: Above = 1.0
    memory_gb: Gigabytes | None = None
    reserve_gb: Gigabytes | None = None
    limit_gb: Gigabytes | None = None


class AchievedSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares of the published figures that kernels reach; left out: as `Achieved` has them."""

    gemm: Share | None = None
    attention_forward: Share | None = None
    attention_backward: Share | None = None
    elementwise: Share | None = None
    inside: Share | None = None
    between: Share | None = None


class FleetFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster."""

    devices: Annotated[list[Group], msgspec.Meta(min_length=1)]
    name: str = ""
    devices_per_node: Annotated[int, msgspec.Meta(ge=1, le=MOST_DEVICES)] = DEVICES_PER_NODE
    op_us: Number | None = None
    achieved: AchievedSpec = AchievedSpec()
    links: LinksSpec = LinksSpec()


def load_fleet(source: str) -> Fleet:
    """Cluster of a file (a name that ends in .toml or .json), or a preset.

    Raises
    ------
    InputError
        With file, key and remedy.
    """
    if Path(source).suffix.lower() not in (".toml", ".json"):
        return fleet(source)
    spec = convert(source, read_data(source), FleetFile)
    try:
        members = [member for index, group in enumerate(spec.devices) for member in _members(index, group, spec)]
        links = spec.links
        return Fleet(
            spec.name or Path(source).stem,
            tuple(members),
            spec.devices_per_node,
            _link(links.inside),
            _link(links.between),
            _matrix(links, len(members)),
        )
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _members(index: int, group: Group, spec: FleetFile) -> tuple[Member, ...]:
    found = device(group.device) if isinstance(group.device, str) else _own(group.device)
    shares = {each.name: getattr(spec.achieved, each.name) for each in fields(Achieved)}
    found = replace(
        found,
        achieved=replace(found.achieved, **{name: share for name, share in shares.items() if share is not None}),
    )
    if spec.op_us is not None:
        found = replace(found, op_s=spec.op_us / 1e6)
    if group.memory_gb is not None:
        found = replace(found, memory=round(group.memory_gb * 1e9))
    if group.reserve_gb is not None:
        if group.limit_gb is not None:
            raise InputError(f"devices[{index}]: has both reserve_gb and limit_gb; give one of them")
        found = replace(found, kept=round(group.reserve_gb * 1e9), kept_share=0.0)
    limit = None if group.limit_gb is None else round(group.limit_gb * 1e9)
    return (Member(found, group.speed, limit),) * group.count


def _own(spec: DeviceSpec) -> Device:
    return Device(
        spec.name,
        spec.tflops * 1e12,
        spec.tb_per_s * 1e12,
        round(spec.memory_gb * 1e9),
        spec.inside_gb_per_s * 1e9,
        spec.between_gb_per_s * 1e9,
    )


def _link(spec: LinkSpec | None) -> Link | None:
    return None if spec is None else Link(spec.latency_us / 1e6, spec.gb_per_s * 1e9)


def _matrix(spec: LinksSpec, count: int) -> tuple[tuple[Link, ...], ...] | None:
    if spec.latency_us is None and spec.gb_per_s is None:
        return None
    if spec.latency_us is None or spec.gb_per_s is None:
        raise InputError("links: a matrix of latency_us needs one of gb_per_s beside it, and the other way round")
    if spec.inside is not None or spec.between is not None:
        raise InputError("links: has both a matrix and inside or between; give one of them")
    for key, rows in (("latency_us", spec.latency_us), ("gb_per_s", spec.gb_per_s)):
        _require_square(key, rows, count)
    return tuple(
        tuple(
            Link(latency / 1e6, speed * 1e9) if to != one else Link(0.0, 1.0)
            for to, (latency, speed) in enumerate(zip(*rows, strict=True))
        )
        for one, rows in enumerate(zip(spec.latency_us, spec.gb_per_s, strict=True))
    )


def _require_square(key: str, rows: Sequence[Sequence[float]], count: int) -> None:
    for index, row in enumerate(rows):
        if len(row) != count:
            raise InputError(f"links.{key}[{index}]: {len(row)} values for {count} devices; give one for each")
    if len(rows) != count:
        raise InputError(f"links.{key}: {len(rows)} rows for {count} devices; give one for each")
