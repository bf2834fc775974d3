"""The methods, by the names that the papers and PyTorch give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from .core.errors import InputError
from .core.problem import Problem
from .core.schedule import Schedule
from .heuristics import gpipe, interleaved, one_f_one_b, one_f_one_b_split, zb_h1, zb_h2, zb_v

Heuristic = Callable[[Problem, tuple[int, ...] | None], Schedule]
"""Schedule of a problem and micro-batch sizes, by construction; sizes None: the problem's default."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to get a schedule.

    Parameters
    ----------
    name
        Name in results and tables.
    aliases
        Other names for the same; like `name`, matched without regard to case.
    description
        One line for people.
    build
        The heuristic; None for a method that searches.
    """

    name: str
    aliases: tuple[str, ...]
    description: str
    build: Heuristic | None = None


METHODS: tuple[Method, ...] = (
    Method("auto", (), "heuristics and greedy first, then the annealer and CP-SAT where they do not meet the bound"),
    Method("cpsat", ("cp-sat",), "constraint programming: proves optimality, given time"),
    Method("anneal", ("annealing",), "simulated annealing of the ranks' orders, from the best heuristic's"),
    Method("ilp", (), "integer linear programming: a reference for small problems, with HiGHS"),
    Method("greedy", (), "event-driven list scheduling over a grid of policies, within the memory limits"),
    Method("GPipe", ("ScheduleGPipe",), "all forwards, then all backwards; any one-direction placement", gpipe),
    Method(
        "1F1B",
        ("OneFOneB", "Schedule1F1B", "PipeDream-Flush", "DAPPLE"),
        "one forward, one fused backward; linear placement",
        one_f_one_b,
    ),
    Method("1F1B-split", (), "1F1B with each backward split, W right after I; linear placement", one_f_one_b_split),
    Method(
        "Interleaved1F1B",
        ("ScheduleInterleaved1F1B", "1F1B-I", "Interleaved"),
        "1F1B over several stages per rank; loop placement",
        interleaved,
    ),
    Method("ZB-H1", ("ZBH1",), "hand-made zero bubble in 1F1B's memory; linear placement", zb_h1),
    Method("ZB-H2", ("ZBH2",), "hand-made zero bubble in twice 1F1B's memory; linear placement", zb_h2),
    Method(
        "ZB-V",
        ("ZBV", "ZBVZeroBubble", "ScheduleZBVZeroBubble"),
        "hand-made zero bubble in 1F1B's memory; V placement",
        zb_v,
    ),
)
"""Every method, in the order in which tables list them."""


@cache
def _by_name() -> dict[str, Method]:
    return {name.casefold(): method for method in METHODS for name in (method.name, *method.aliases)}


def find_method(name: str) -> Method:
    """Method of a name or alias, without regard to case.

    Raises
    ------
    InputError
        When there is none; the message lists the names.

    Examples
    --------
    >>> find_method("zbvzerobubble").name
    'ZB-V'
    """
    method = _by_name().get(name.casefold())
    if method is None:
        raise InputError(f"method: {name!r} is none of {', '.join(method.name for method in METHODS)}")
    return method
