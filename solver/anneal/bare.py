"""How the annealer's functions are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])

_BARE: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def bare(function: Function) -> Function:
    """Compile a function that allocates nothing, without counts of references.

    Counting those to some fifty arrays, at each call and at each way out of it, took nine tenths of the time of a move.
    """
    return cast(Function, njit(**_BARE)(function))


def inner(function: Function) -> Function:
    """The same for a function that only compiled ones call: to take fifty arrays from Python is compiled for none."""
    return cast(Function, njit(**_BARE, **_INNER)(function))
