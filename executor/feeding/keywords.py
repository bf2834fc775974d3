"""Which keyword arguments a stage takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import Parameter, signature

from torch import nn

from adaptpipe.solver import InputError

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)

Names = frozenset[str] | None
"""Names of keywords; None stands for all."""


def keywords_of(module: nn.Module) -> Names:
    """Names that a module's forward takes; None if it takes any.

    Examples
    --------
    >>> sorted(keywords_of(nn.Bilinear(1, 1, 1)))
    ['input1', 'input2']
    """
    forward = getattr(module, "_orig_mod", module).forward  # torch.compile wraps modules
    parameters = signature(forward).parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters if parameter.kind in _BY_NAME)


def chosen(keywords: Mapping[str, object], names: Names) -> Mapping[str, object]:
    """Those of the keywords that have one of the names."""
    return keywords if names is None else {name: value for name, value in keywords.items() if name in names}


def check_keywords(given: Iterable[str], stages: Iterable[Names]) -> None:
    """Check that every keyword has a stage that takes it.

    Raises
    ------
    InputError
        If not.
    """
    known: set[str] = set()
    for names in stages:
        if names is None:
            return
        known |= names
    for name in given:
        if name not in known:
            raise InputError(f"{name}: no stage takes a keyword of this name; they take {', '.join(sorted(known))}")
