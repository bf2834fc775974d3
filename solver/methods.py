"""The methods, by the names that the papers and PyTorch give them."""

from __future__ import annotations

from functools import cache

from .core.errors import InputError
from .core.method import Method
from .heuristics import LITERATURE


def _search(
    name: str, description: str, *aliases: str, shapes: str = "every p, v and m", sliced: bool | None = None
) -> Method:
    return Method(name, aliases, description, placement="any", shapes=shapes, source="AdaptPipe", sliced=sliced)


METHODS: tuple[Method, ...] = (
    _search("auto", "heuristics and greedy first, then the annealer and CP-SAT where they do not meet the bound"),
    _search("cpsat", "constraint programming: proves optimality, given time", "cp-sat"),
    _search("anneal", "simulated annealing of the ranks' orders, from the best heuristic's", "annealing"),
    _search(
        "ilp",
        "integer linear programming: a reference for small problems, with HiGHS",
        shapes="some 100 ops",
        sliced=False,
    ),
    _search("greedy", "event-driven list scheduling over a grid of policies, within the memory limits"),
    *LITERATURE,
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
