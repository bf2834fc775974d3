"""Problems, schedules, simulation, bounds and search. No torch in here.

Names are imported when they are first used, so that `import adaptpipe` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .comparing import Comparison, compare
    from .core.bare import bare_problem
    from .core.errors import AdaptPipeError, InputError, NoAnswerError
    from .core.granularity import Granularity
    from .core.ops import Kind, Op, parse_op
    from .core.placement import Placement, explicit, place
    from .core.problem import Affine, Links, Memory, Problem
    from .core.profile import Measurement, Part, Profile
    from .core.regroup import regroup
    from .core.result import Objective, Result, Status
    from .core.schedule import Schedule
    from .core.slices import Slices
    from .evaluate.check import check
    from .evaluate.dag import critical_path, op_graph
    from .evaluate.noise import Noise
    from .evaluate.simulate import simulate
    from .evaluate.structure import Violation
    from .evaluate.timeline import Timeline
    from .solving import solve

_HOME = {
    "comparing": ("Comparison", "compare"),
    "core.bare": ("bare_problem",),
    "core.errors": ("AdaptPipeError", "InputError", "NoAnswerError"),
    "core.granularity": ("Granularity",),
    "core.ops": ("Kind", "Op", "parse_op"),
    "core.placement": ("Placement", "explicit", "place"),
    "core.problem": ("Affine", "Links", "Memory", "Problem"),
    "core.profile": ("Measurement", "Part", "Profile"),
    "core.regroup": ("regroup",),
    "core.result": ("Objective", "Result", "Status"),
    "core.schedule": ("Schedule",),
    "core.slices": ("Slices",),
    "evaluate.check": ("check",),
    "evaluate.dag": ("critical_path", "op_graph"),
    "evaluate.noise": ("Noise",),
    "evaluate.simulate": ("simulate",),
    "evaluate.structure": ("Violation",),
    "evaluate.timeline": ("Timeline",),
    "solving": ("solve",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AdaptPipeError",
    "Affine",
    "Comparison",
    "Granularity",
    "InputError",
    "Kind",
    "Links",
    "Measurement",
    "Memory",
    "NoAnswerError",
    "Noise",
    "Objective",
    "Op",
    "Part",
    "Placement",
    "Problem",
    "Profile",
    "Result",
    "Schedule",
    "Slices",
    "Status",
    "Timeline",
    "Violation",
    "bare_problem",
    "check",
    "compare",
    "critical_path",
    "explicit",
    "op_graph",
    "parse_op",
    "place",
    "regroup",
    "simulate",
    "solve",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE[name]}", __name__), name)
