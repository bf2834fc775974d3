"""Files of workloads: layer types with prices, the layers in order, ranks, memory and links.

One file holds several instances by name. Times are microseconds, memory is in units of 10^6 bytes, bandwidths are bytes
per microsecond; costs are for one sample and grow with the micro-batch size, `fixed` ones do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from ...core.cluster import Cluster
from ...core.errors import InputError, did_you_mean
from ...core.profile import Measurement, Part, Profile
from ...files.reading import convert, read_data
from ..workload import Workload

MEGABYTE = 10**6

Time = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Megabytes = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Pair = Annotated[list[float], msgspec.Meta(min_length=2, max_length=2)]


class LayerType(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of one sort of layer, for a micro-batch of one sample.

    Attributes
    ----------
    kind
        "embed", "block", "head", …
    F, I, W
        Microseconds for each sample.
    fixed
        Microseconds of F, I and W whatever the size.
    act, rel_i
        Megabytes for each sample that F takes, and those of them that I lets go of.
    static
        Megabytes of weights, gradients and optimizer state.
    comm_bytes
        Bytes for each sample of the message that leaves the layer.
    """

    kind: str
    F: Time
    I: Time  # noqa: E741  # the letter of the input gradient
    W: Time
    fixed: Annotated[list[Time], msgspec.Meta(min_length=3, max_length=3)]
    act: Megabytes
    rel_i: float
    static: Megabytes
    comm_bytes: Annotated[int, msgspec.Meta(ge=0)]


class Wires(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Links as [microseconds, bytes per microsecond]: one for `all`, or inside and between nodes."""

    all: Pair | None = None
    ranks_per_node: Annotated[int, msgspec.Meta(ge=1)] | None = None
    intra: Pair | None = None
    inter: Pair | None = None


class InstanceSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One instance.

    Attributes
    ----------
    p
        Ranks.
    sequences
        Samples in a batch.
    default_mbs, mbs_fixed
        Usual micro-batch size, and whether it is the only one.
    cap
        Megabytes that each rank may hold.
    speed
        Of each rank.
    aop
        Microseconds that each op of a stage takes beside its layers.
    link, types
        Links; sorts of layers.
    units
        The layers, first to last, as runs: [type, count].
    """

    p: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    sequences: Annotated[int, msgspec.Meta(ge=1, le=10**6)]
    default_mbs: Annotated[int, msgspec.Meta(ge=1)]
    mbs_fixed: bool
    cap: Megabytes
    speed: list[float]
    aop: Time
    link: Wires
    types: Annotated[list[LayerType], msgspec.Meta(min_length=1)]
    units: Annotated[list[tuple[int, int]], msgspec.Meta(min_length=1)]


class InstanceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Instances by name; `format` says in words what the numbers are."""

    instances: dict[str, InstanceSpec]
    format: str = ""


SIZES = (1, 2, 3, 4)
"""Micro-batch sizes that are considered where an instance does not fix one, beside its default size."""


def load_workload(path: str | Path, name: str | None = None, sizes: Sequence[int] | None = None) -> Workload:
    """Read an instance.

    Parameters
    ----------
    path
        JSON or TOML.
    name
        Which one; may be left out where the file holds one.
    sizes
        Micro-batch sizes to consider, ascending; None: as the instance says, or `SIZES`.

    Raises
    ------
    InputError
        With file, key and remedy.
    """
    place = str(path)
    found = convert(place, read_data(path), InstanceFile).instances
    if name is None:
        if len(found) != 1:
            raise InputError(f"{place}: holds {len(found)} instances; choose one by name: {', '.join(found)}")
        (name,) = found
    if name not in found:
        hint = did_you_mean(name, found)
        raise InputError(f"{place}: no instance {name!r}; {hint}it holds {', '.join(found)}")
    spec, where = found[name], f"{place}: instances.{name}"
    if sizes is None:
        sizes = (spec.default_mbs,) if spec.mbs_fixed else sorted({*SIZES, spec.default_mbs})
    usable = tuple(size for size in sizes if size <= spec.sequences)
    if not usable:
        raise InputError(f"{where}: no micro-batch size of {list(sizes)} is within {spec.sequences} sequences")
    parts: list[Part] = []
    for run, (kind, count) in enumerate(spec.units):
        if not 0 <= kind < len(spec.types):
            raise InputError(f"{where}.units[{run}]: type {kind} is none of 0 to {len(spec.types) - 1}")
        if count < 1:
            raise InputError(f"{where}.units[{run}]: {count} layers; must be at least 1")
        parts += [_part(f"{spec.types[kind].kind} {len(parts) + i}", spec.types[kind], usable) for i in range(count)]
    try:
        return Workload(
            name, Profile(name, tuple(parts), 0.0, op_s=spec.aop / 1e6), _cluster(name, spec), spec.sequences, usable
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _part(name: str, layer: LayerType, sizes: Sequence[int]) -> Part:
    def at(size: int) -> Measurement:
        f, i, w = (
            (each * size + fixed) / 1e6 for each, fixed in zip((layer.F, layer.I, layer.W), layer.fixed, strict=True)
        )
        activation = round(layer.act * MEGABYTE * size)
        retained = max(0, round((layer.act - layer.rel_i) * MEGABYTE * size))
        return Measurement(size, f, i, w, i + w, activation, retained, layer.comm_bytes * size)

    return Part(name, round(layer.static * MEGABYTE), tuple(at(size) for size in sizes), kind=layer.kind)


def _cluster(name: str, spec: InstanceSpec) -> Cluster:
    wires, ranks = spec.link, range(spec.p)
    if wires.all is not None:
        rows = [[wires.all for _ in ranks] for _ in ranks]
    elif wires.ranks_per_node is not None and wires.intra is not None and wires.inter is not None:
        node = [rank // wires.ranks_per_node for rank in ranks]
        rows = [[wires.intra if node[r] == node[q] else wires.inter for q in ranks] for r in ranks]
    else:
        raise InputError("link: give all, or ranks_per_node, intra and inter")
    return Cluster(
        name,
        tuple(spec.speed),
        (round(spec.cap * MEGABYTE),) * spec.p,
        tuple(tuple(latency / 1e6 for latency, _ in row) for row in rows),
        tuple(tuple(speed * 1e6 for _, speed in row) for row in rows),
    )
