"""`adaptpipe methods`: the schedules of the literature and the searches, with where they exist and come from."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated

import typer

from .common import emit, json_option, pairs

if TYPE_CHECKING:
    from adaptpipe.solver.core.method import Method


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One method, in full; a name or an alias.", show_default="all")
    ] = None,
    json: json_option = False,
) -> None:
    """List every method: its placement, legal shapes, formulas and source.

    p ranks, v stages per rank in w waves, m micro-batches in k slices each; F, I, W and B = I + W are times of one
    stage, c of a message. Equal stages and, where c is not named, free messages; the bubble is idle time of the busiest
    rank, activations are those of the fullest one.
    """
    from adaptpipe.solver.methods import METHODS, find_method

    chosen = METHODS if name is None else (find_method(name),)
    if json:
        emit([_data(method) for method in chosen])
    elif name is None:
        print("\n\n".join(_entry(method) for method in chosen))
    else:
        _print(chosen[0])


def _entry(method: Method) -> str:
    """A method in a few lines: a table of formulas would not fit on any screen."""
    aliases = f" ({', '.join(method.aliases)})" if method.aliases else ""
    lines = [f"{method.name}{aliases}: {method.description}", f"placement {method.placement}; {method.shapes}"]
    if method.bubble:
        lines += [f"bubble {method.bubble}", f"activations {method.memory}"]
    return "\n    ".join([*lines, method.source])


def _data(method: Method) -> dict[str, object]:
    """All that is known of a method, and whether it searches."""
    known = {each.name: getattr(method, each.name) for each in fields(method) if each.name != "build"}
    return known | {"searches": method.build is None}


def _print(method: Method) -> None:
    from adaptpipe.solver.core.updates import MEANING

    known = {
        "name": method.name,
        "aliases": ", ".join(method.aliases),
        "what it is": method.description,
        "placement": method.placement,
        "legal shapes": method.shapes,
        "bubble": method.bubble,
        "activations": method.memory,
        "updates": "" if method.updates == "step" else f"{method.updates}: {MEANING[method.updates]}",
        "micro-batches": "cut into slices" if method.sliced else "",
        "source": method.source,
    }
    pairs([(key, value) for key, value in known.items() if value])
    told = None if method.build is None else inspect.getdoc(method.build)
    if told:
        print("\n" + re.split(r"\n\n(?:Raises|Examples)\n", told)[0])
