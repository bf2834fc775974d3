"""Devices in nodes, and the ranks of a pipeline that they form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from adaptpipe.solver import InputError
from adaptpipe.solver.core.cluster import Cluster

from .device import DEVICES_PER_NODE, Device, device

MOST_DEVICES = 65_536


@dataclass(frozen=True, slots=True)
class Link:
    """Seconds of an empty message, and bytes per second.

    Raises
    ------
    InputError
        When a value is out of bounds.
    """

    latency_s: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency_s) and self.latency_s >= 0):
            raise InputError(f"link latency = {self.latency_s} s: must be finite and not below 0")
        if not (math.isfinite(self.bandwidth) and self.bandwidth > 0):
            raise InputError(f"link bandwidth = {self.bandwidth} bytes/s: must be finite and above 0")


@dataclass(frozen=True, slots=True)
class Member:
    """One device of a fleet.

    Parameters
    ----------
    device
        What it is.
    speed
        Its speed relative to what the device's figures say.
    limit
        Bytes that it may hold; None: what the device's reserve leaves.

    Raises
    ------
    InputError
        When a value is out of bounds.
    """

    device: Device
    speed: float = 1.0
    limit: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise InputError(f"speed of {self.device.name} = {self.speed}: must be finite and above 0")
        if self.limit is not None and self.limit < 0:
            raise InputError(f"limit of {self.device.name} = {self.limit} bytes: must not be below 0")

    @property
    def usable(self) -> int:
        """Bytes that it may hold."""
        return self.device.usable if self.limit is None else self.limit


@dataclass(frozen=True, slots=True)
class Fleet:
    """Devices in the order in which they are numbered, those of a node together.

    Parameters
    ----------
    name
        For people.
    members
        The devices.
    per_node
        Devices of a node.
    inside, between
        Links inside a node and between nodes; None: what the devices at both ends achieve.
    links
        Links [from][to] between devices, in the place of `inside` and `between`.

    Raises
    ------
    InputError
        When there are no devices, or too many, or the matrix does not fit them.
    """

    name: str
    members: tuple[Member, ...]
    per_node: int = DEVICES_PER_NODE
    inside: Link | None = None
    between: Link | None = None
    links: tuple[tuple[Link, ...], ...] | None = None

    def __post_init__(self) -> None:
        count = len(self.members)
        if not 1 <= count <= MOST_DEVICES:
            raise InputError(f"cluster {self.name}: {count} devices; must be 1 to {MOST_DEVICES}")
        if self.per_node < 1:
            raise InputError(f"cluster {self.name}: {self.per_node} devices per node; must be at least 1")
        if self.links is not None and (len(self.links) != count or any(len(row) != count for row in self.links)):
            raise InputError(f"cluster {self.name}: the links' matrix must have a row and a column for each device")

    def link(self, one: int, other: int) -> Link:
        """Link between two devices: the slower end's, where nothing is said of it."""
        if self.links is not None:
            return self.links[one][other]
        ends = (self.members[one].device, self.members[other].device)
        if one // self.per_node == other // self.per_node:
            return self.inside or Link(
                max(each.inside_latency_s for each in ends), min(each.inside * each.achieved.inside for each in ends)
            )
        return self.between or Link(
            max(each.between_latency_s for each in ends), min(each.between * each.achieved.between for each in ends)
        )

    def resized(self, count: int) -> Fleet:
        """The first of the devices; or more of them, where all are equal.

        Raises
        ------
        InputError
            When there are none, or too few to tell what a further one would be.

        Examples
        --------
        >>> len(fleet("h100x8").resized(64).members)
        64
        """
        if count < 1:
            raise InputError(f"cluster {self.name}: {count} devices are asked for; must be at least 1")
        more = count - len(self.members)
        if more > 0 and (self.links is not None or len(set(self.members)) > 1):
            raise InputError(
                f"cluster {self.name}: has {len(self.members)} devices, and {count} are asked for; list them in a file"
            )
        rows = None if self.links is None else tuple(row[:count] for row in self.links[:count])
        return replace(self, members=(*self.members[:count], *self.members[:1] * more), links=rows)

    def with_memory(self, memory: int) -> Fleet:
        """The same devices with so many bytes of memory each, of which their reserve comes off."""
        members = tuple(
            replace(member, device=replace(member.device, memory=memory), limit=None) for member in self.members
        )
        return replace(self, members=members)

    def ranks(self, tp: int = 1, dp: int = 1) -> int:
        """Ranks of a pipeline.

        Parameters
        ----------
        tp
            Tensor-parallel degree: devices that share a rank's layers.
        dp
            Data-parallel degree: pipelines that the batch is divided among.

        Raises
        ------
        InputError
            When the devices cannot be divided so.
        """
        for name, degree in (("tensor", tp), ("data", dp)):
            if degree < 1:
                raise InputError(f"{name}-parallel degree = {degree}: must be at least 1")
        ranks, rest = divmod(len(self.members), tp * dp)
        if rest or not ranks:
            raise InputError(
                f"cluster {self.name}: {len(self.members)} devices are not a multiple of {tp * dp} (tensor-parallel "
                f"degree {tp} x data-parallel degree {dp}); choose degrees whose product divides the devices"
            )
        return ranks

    def cluster(self, tp: int = 1, dp: int = 1) -> tuple[Device, Cluster]:
        """Device of the first rank, with the nodes and links that it has here, and the ranks relative to it.

        Devices are numbered as Megatron-LM does: those of a tensor-parallel group are neighbours, then come a rank's
        replicas, then the ranks of the pipeline. A rank is as fast as the slowest of its devices, holds as much as the
        smallest, and its links are the worst of those between its devices and the other rank's, each with its like:
        replicas and the members of a group run in step. Speeds are those of large matrix products.

        Raises
        ------
        InputError
            When the devices cannot be divided so.

        Examples
        --------
        >>> _, cluster = fleet("h100x16").cluster(tp=4)
        >>> cluster.ranks, cluster.bandwidth[0][1] / 1e9, cluster.bandwidth[1][2] / 1e9
        (4, 350.0, 40.0)
        """
        ranks, wide = self.ranks(tp, dp), tp * dp
        first = self.members[0].device

        def speed(member: Member) -> float:
            return (
                member.speed * (member.device.flops * member.device.achieved.gemm) / (first.flops * first.achieved.gemm)
            )

        groups = [self.members[rank * wide : (rank + 1) * wide] for rank in range(ranks)]
        wires = [
            [_worst(self.link(r * wide + k, q * wide + k) for k in range(wide)) for q in range(ranks)]
            for r in range(ranks)
        ]
        return self._linked(first, wide), Cluster(
            self.name,
            tuple(min(speed(member) for member in group) for group in groups),
            tuple(min(member.usable for member in group) for group in groups),
            tuple(tuple(wire.latency_s for wire in row) for row in wires),
            tuple(tuple(wire.bandwidth for wire in row) for row in wires),
        )

    def _linked(self, device: Device, wide: int) -> Device:
        """A device with the links of this fleet; of a matrix the worst between the devices of any one rank."""
        inside, between, mesh = self.inside, self.between, device.mesh
        if self.links is not None and wide > 1:
            starts = range(0, len(self.members), wide)
            pairs = (self.links[a + k][a + n] for a in starts for k in range(wide) for n in range(wide) if k != n)
            inside = between = _worst(pairs)
            mesh = False
        return replace(
            device,
            per_node=self.per_node,
            mesh=mesh,
            inside=device.inside if inside is None else inside.bandwidth / device.achieved.inside,
            between=device.between if between is None else between.bandwidth / device.achieved.between,
        )


def _worst(links: Iterable[Link]) -> Link:
    found = list(links)
    return Link(max(each.latency_s for each in found), min(each.bandwidth for each in found))


def fleet(name: str) -> Fleet:
    """Preset: a device's name, x and how many of them there are, in nodes of 8.

    Raises
    ------
    InputError
        When the name is none, or the device is unknown.

    Examples
    --------
    >>> len(fleet("a100-40x16").members)
    16
    """
    match = re.fullmatch(r"(.+)x([0-9]{1,9})", name, re.IGNORECASE)
    if match is None:
        raise InputError(
            f"cluster {name!r}: neither a file nor a preset; a preset is a device, x and their number, as in h100x8"
        )
    kind, count = device(match.group(1)), int(match.group(2))
    if not 1 <= count <= MOST_DEVICES:
        raise InputError(f"cluster {name}: {count} devices; must be 1 to {MOST_DEVICES}")
    return Fleet(name, (Member(kind),) * count)
