"""AdaptPipe: pipeline-parallel training schedules that are found, proven and run.

The public names of `adaptpipe.solver`, at hand as `ap.solve`, `ap.Problem` and so on. Each is imported when it is first
used, so that `import adaptpipe` stays light: no torch, numba, matplotlib or ortools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import solver

if TYPE_CHECKING:
    from .solver import *  # noqa: F403

__all__ = []
__all__ += solver.__all__


def __getattr__(name: str) -> object:
    if name in solver.__all__:
        return getattr(solver, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
