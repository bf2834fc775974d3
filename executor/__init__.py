"""Running a schedule with torch.distributed: lowering, channels, the weight-gradient queue, launching, measuring.

Names are imported when they are first used: the errors and the lowering need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .emulated import EmulatedPipeline
    from .errors import ExecutorError, PeerFailed, RankFailure, TransportError, WeightQueueError
    from .launcher import launch
    from .lowering import lower
    from .pipeline import Pipeline
    from .profiling import bare_problem, measure, message_reserve
    from .program import Program
    from .report import OpRecord, StepReport

_HOME = {
    "emulated": ("EmulatedPipeline",),
    "errors": ("ExecutorError", "PeerFailed", "RankFailure", "TransportError", "WeightQueueError"),
    "launcher": ("launch",),
    "lowering": ("lower",),
    "profiling": ("bare_problem", "measure", "message_reserve"),
    "pipeline": ("Pipeline",),
    "program": ("Program",),
    "report": ("OpRecord", "StepReport"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "EmulatedPipeline",
    "ExecutorError",
    "OpRecord",
    "PeerFailed",
    "Pipeline",
    "Program",
    "RankFailure",
    "StepReport",
    "TransportError",
    "WeightQueueError",
    "bare_problem",
    "launch",
    "lower",
    "measure",
    "message_reserve",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE[name]}", __name__), name)
