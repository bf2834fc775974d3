"""Operations of a pipeline schedule and their text form, `2F0` or `2W0[3:5]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from .errors import InputError


class Kind(IntEnum):
    """What an op computes. The letters are PyTorch's; the numbers index the arrays of `Instance`."""

    F = 0
    """Forward."""
    I = 1  # noqa: E741 - PyTorch's letter
    """Gradient with respect to the stage's input (the zero-bubble papers' B)."""
    W = 2
    """Gradient with respect to the weights."""
    B = 3
    """Fused backward: I and W in one (the zero-bubble papers' BW)."""


MOST_UNITS = 2**31
"""No range of units ends later."""

_TEXT = re.compile(r"(0|[1-9]\d*)([FIWB])(0|[1-9]\d*)(?:\[(0|[1-9]\d*):(0|[1-9]\d*)\])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Op:
    """One piece of work: a stage's F, I, W or B of one micro-batch.

    Parameters
    ----------
    stage, microbatch
        Numbers from 0.
    kind
        What is computed.
    units
        For W only: the half-open range of weight units; None is the whole weight gradient.

    Examples
    --------
    >>> str(Op(2, Kind.F, 0)), str(Op(2, Kind.W, 0, (3, 5)))
    ('2F0', '2W0[3:5]')
    """

    stage: int
    kind: Kind
    microbatch: int
    units: tuple[int, int] | None = None

    def __str__(self) -> str:
        units = "" if self.units is None else f"[{self.units[0]}:{self.units[1]}]"
        return f"{self.stage}{self.kind.name}{self.microbatch}{units}"

    @property
    def is_backward(self) -> bool:
        """Whether this op passes the gradient on: I or B."""
        return self.kind is Kind.I or self.kind is Kind.B


@lru_cache(maxsize=1 << 18)
def parse_op(text: str) -> Op:
    """Read the text form of an op.

    Raises
    ------
    InputError
        When the text is not `<stage><F|I|W|B><micro-batch>`, with `[start:stop]` allowed after a W.

    Examples
    --------
    >>> parse_op("2W0[3:5]")
    Op(stage=2, kind=<Kind.W: 2>, microbatch=0, units=(3, 5))
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r} is not an op: write <stage><F|I|W|B><micro-batch>, as 2F0, or 2W0[3:5] for units")
    stage, letter, microbatch, start, stop = match.groups()
    units = None
    if start is not None:
        units = (int(start), int(stop))
        if letter != "W":
            raise InputError(f"{text!r}: only a W is cut into units; write {stage}{letter}{microbatch}")
        if units[1] > MOST_UNITS:
            raise InputError(f"{text!r}: no weight gradient has {units[1]} units; the most is {MOST_UNITS}")
        if units[0] >= units[1]:
            raise InputError(f"{text!r}: the range of units is empty; its start must be below its stop")
    return Op(int(stage), Kind[letter], int(microbatch), units)
