"""The two ways a request can fail: the input is bad, or the answer is no."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class AdaptPipeError(Exception):
    """Base of every error that AdaptPipe raises for its user."""


class InputError(AdaptPipeError, ValueError):
    """The input is bad: the message gives place, value, bound and remedy. The command line exits with 2."""


class NoAnswerError(AdaptPipeError):
    """The input is fine and the answer is no: infeasible, invalid, or nothing found. The command line exits with 1."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for the message about a name that is not known, with a blank at its end; "" where none comes near.

    Examples
    --------
    >>> did_you_mean("h10", ["h100", "a100"]), did_you_mean("cat", ["h100"])
    ('did you mean h100? ', '')
    """
    close = get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]}? " if close else ""
