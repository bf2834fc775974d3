"""Running a schedule with torch.distributed: lowering, channels, the weight-gradient queue, launching, measuring.

Names are imported when they are first used: the errors and the lowering need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .checkpoints import check_checkpoint, load_checkpoint, save_checkpoint
    from .errors import ExecutorError, MemoryLimitError, PeerFailed, RankFailure, TransportError, WeightQueueError
    from .feeding.rows import MicroBatches
    from .launching.launcher import launch
    from .measuring.device import MeasuredDevice, measure_device
    from .measuring.layers import LayerName, measure_layers
    from .measuring.links import MeasuredLinks, measure_links
    from .measuring.profiling import measure, message_reserve
    from .programs.lowering import lower
    from .programs.program import Program
    from .programs.reserve import reserve_for
    from .report import OpRecord, StepReport
    from .running.asynchronous import AsyncPipeline
    from .running.emulated import EmulatedPipeline
    from .running.pipeline import Pipeline

_HOME = {
    "checkpoints": ("check_checkpoint", "load_checkpoint", "save_checkpoint"),
    "errors": ("ExecutorError", "MemoryLimitError", "PeerFailed", "RankFailure", "TransportError", "WeightQueueError"),
    "feeding.rows": ("MicroBatches",),
    "launching.launcher": ("launch",),
    "measuring.device": ("MeasuredDevice", "measure_device"),
    "measuring.layers": ("LayerName", "measure_layers"),
    "measuring.links": ("MeasuredLinks", "measure_links"),
    "measuring.profiling": ("measure", "message_reserve"),
    "programs.lowering": ("lower",),
    "programs.program": ("Program",),
    "programs.reserve": ("reserve_for",),
    "report": ("OpRecord", "StepReport"),
    "running.asynchronous": ("AsyncPipeline",),
    "running.emulated": ("EmulatedPipeline",),
    "running.pipeline": ("Pipeline",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AsyncPipeline",
    "EmulatedPipeline",
    "ExecutorError",
    "LayerName",
    "MeasuredDevice",
    "MeasuredLinks",
    "MemoryLimitError",
    "MicroBatches",
    "OpRecord",
    "PeerFailed",
    "Pipeline",
    "Program",
    "RankFailure",
    "StepReport",
    "TransportError",
    "WeightQueueError",
    "check_checkpoint",
    "launch",
    "load_checkpoint",
    "lower",
    "measure",
    "measure_device",
    "measure_layers",
    "measure_links",
    "message_reserve",
    "reserve_for",
    "save_checkpoint",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE[name]}", __name__), name)
