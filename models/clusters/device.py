"""Devices by their makers' figures, and the shares of those that training kernels reach."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from adaptpipe.solver import InputError
from adaptpipe.solver.core.errors import did_you_mean

DEVICES_PER_NODE = 8
"""As in HGX and DGX servers, and in AMD's platform."""


@dataclass(frozen=True, slots=True)
class Achieved:
    """Shares of a device's published figures that kernels reach; all assumed, none measured.

    Attributes
    ----------
    gemm
        Of `flops`, in matrix products of large layers.
    attention_forward, attention_backward
        Of `flops`, in fused attention.
    elementwise
        Of `bandwidth`, in kernels that read and write memory.
    inside, between
        Of the links' bandwidths, in messages of a few megabytes.

    Raises
    ------
    InputError
        When one is not above 0 and at most 1.
    """

    gemm: float = 0.55
    attention_forward: float = 0.35
    attention_backward: float = 0.30
    elementwise: float = 0.75
    inside: float = 350 / 450
    between: float = 0.80

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and 0 < value <= 1):
                raise InputError(f"achieved.{field.name} = {value}: is a share; must be above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator in a node of several.

    Parameters
    ----------
    name
        As in `DEVICES`, or the user's.
    flops
        Floating-point operations per second: dense bf16 matrix products, as published.
    bandwidth
        Bytes per second of its memory, as published.
    memory
        Bytes of its memory, as published.
    inside, between
        Bytes per second, one way, between two devices of a node and between two of different nodes, as published.
    mesh
        Whether every two devices of a node have a link of their own, which `inside` is the speed of: a group uses all
        of them at once. Otherwise a switch joins them, and a device sends at `inside` to however many.
    per_node
        Devices of a node.
    inside_latency_s, between_latency_s
        Seconds of an empty message between them; assumed.
    op_s
        Seconds that each op of a stage takes beside its kernels (launches, Python); assumed.
    kept, kept_share
        Bytes, and a share of `memory`, that training cannot use: context and communication buffers, and what the
        allocator loses to fragments; assumed.
    achieved
        What kernels reach of these.

    Raises
    ------
    InputError
        When a value is out of bounds.
    """

    name: str
    flops: float
    bandwidth: float
    memory: int
    inside: float
    between: float
    mesh: bool = False
    per_node: int = DEVICES_PER_NODE
    inside_latency_s: float = 15e-6
    between_latency_s: float = 30e-6
    op_s: float = 80e-6
    kept: int = 3 * 10**9
    kept_share: float = 0.07
    achieved: Achieved = Achieved()

    def __post_init__(self) -> None:
        for key in ("flops", "bandwidth", "memory", "inside", "between"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"device.{key} = {value}: must be finite and above 0")
        for key in ("inside_latency_s", "between_latency_s", "op_s", "kept"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"device.{key} = {value}: must be finite and not below 0")
        if self.per_node < 1:
            raise InputError(f"device.per_node = {self.per_node}: must be at least 1")
        if not 0 <= self.kept_share < 1:
            raise InputError(f"device.kept_share = {self.kept_share}: must be at least 0 and below 1")

    @property
    def reserve(self) -> int:
        """Bytes that training cannot use.

        Examples
        --------
        >>> DEVICES["h100"].reserve, DEVICES["h100"].usable
        (8600000000, 71400000000)
        """
        return self.kept + round(self.kept_share * self.memory)

    def exchange(self, devices: int) -> float:
        """Bytes per second that each of a group of neighbours sends to the others, all at once.

        Where such groups do not fit into nodes evenly, some of them send between nodes, and set the pace.

        Examples
        --------
        >>> [round(DEVICES[name].exchange(8) / 1e9) for name in ("h100", "mi300x")], DEVICES["h100"].exchange(16) / 1e9
        ([350, 348], 40.0)
        """
        if self.per_node % devices:
            return self.between * self.achieved.between
        return self.inside * self.achieved.inside * (max(1, devices - 1) if self.mesh else 1)

    @property
    def usable(self) -> int:
        """Bytes that a rank may hold, never below 0."""
        return max(0, self.memory - self.reserve)


DEVICES = {
    device.name: device
    for device in (
        Device("a100-40", 312e12, 1.555e12, 40 * 10**9, 300e9, 25e9),
        Device("a100-80", 312e12, 2.039e12, 80 * 10**9, 300e9, 25e9),
        Device("h100", 989e12, 3.35e12, 80 * 10**9, 450e9, 50e9),
        Device("h200", 989e12, 4.8e12, 141 * 10**9, 450e9, 50e9),
        Device("b200", 2250e12, 8.0e12, 180 * 10**9, 900e9, 50e9),
        Device("mi300x", 1307.4e12, 5.3e12, 192 * 10**9, 64e9, 50e9, mesh=True),
    )
}
"""Devices by name: dense bf16, one way, as their makers publish them.

- a100-40, a100-80: SXM4. NVIDIA A100 data sheet: 312 TFLOP/s, 1,555 and 2,039 GB/s, NVLink 600 GB/s both ways;
  DGX A100: one 200 Gb/s InfiniBand adapter for each GPU.
- h100, h200: SXM5. NVIDIA data sheets: 1,979 TFLOP/s with sparsity, half of it dense; 3.35 and 4.8 TB/s; NVLink
  900 GB/s both ways; DGX: 400 Gb/s InfiniBand for each GPU.
- b200: HGX and DGX B200: 4.5 PFLOP/s with sparsity, half of it dense; 1,440 GB and 64 TB/s for 8 GPUs; NVLink 1.8 TB/s
  both ways; 400 Gb/s for each GPU.
- mi300x: AMD Instinct MI300X data sheet: 1,307.4 TFLOP/s, 192 GB, 5.3 TB/s; every two of the 8 GPUs of a node share
  one Infinity Fabric link of 128 GB/s both ways; 400 Gb/s RoCE for each GPU.
"""

_OTHER_NAMES = {"a100": "a100-80", "h100-80": "h100", "h200-141": "h200"}


def device(name: str) -> Device:
    """Device by name, without regard to case.

    Raises
    ------
    InputError
        When there is none, with the names that there are.

    Examples
    --------
    >>> device("A100").memory
    80000000000
    """
    key = name.lower()
    found = DEVICES.get(_OTHER_NAMES.get(key, key))
    if found is None:
        hint = did_you_mean(key, [*DEVICES, *_OTHER_NAMES])
        raise InputError(f"device {name!r}: unknown; {hint}there are {', '.join(DEVICES)}")
    return found
