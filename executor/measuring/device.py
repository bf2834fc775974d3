"""What a device reaches by itself: large matrix products, and reading and writing memory."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .stopwatch import stopwatch_for

_REPEATS = 25
_WIDTH = {"cpu": 1024, "cuda": 8192}
"""Of the square matrices that are multiplied, by the kind of device."""


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """A device's speed and size.

    Parameters
    ----------
    name
        For people.
    flops
        Operations per second of a large matrix product.
    bandwidth
        Bytes per second that are read and written when a large tensor is copied.
    memory
        Bytes; of the processor's the share of one of the processes on this machine.
    """

    name: str
    flops: float
    bandwidth: float
    memory: int


def measure_device(device: torch.device, dtype: torch.dtype, processes: int) -> MeasuredDevice:
    """Measure a device; `processes` share this machine's main memory.

    The best of some repeats: what the device can do, as its maker's figures say what it should.
    """
    width = _WIDTH["cuda" if device.type == "cuda" else "cpu"]
    a, b, out = (torch.ones(width, width, dtype=dtype, device=device) for _ in range(3))
    source = torch.ones(16 * width * width, dtype=dtype, device=device)
    target = torch.empty_like(source)
    watch = stopwatch_for(device)
    pieces: dict[str, Callable[[], Tensor]] = {
        "products": lambda: torch.mm(a, b, out=out),
        "copies": lambda: target.copy_(source),
    }
    best = {}
    for name, piece in pieces.items():
        for _ in range(_REPEATS):
            watch.start()
            piece()
            watch.stop()
        best[name] = min(watch.take_s())
    if device.type == "cuda":
        name, memory = torch.cuda.get_device_name(device), torch.cuda.get_device_properties(device).total_memory
    else:
        name = platform.processor() or platform.machine()
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // processes
    return MeasuredDevice(name, 2 * width**3 / best["products"], 2 * source.nbytes / best["copies"], memory)
