"""What a cell of PyTorch's schedule CSV says, and its text form: `2F0`, `2SEND_F0`, `2REDUCE_GRAD`.

The letters of ops are PyTorch's, so an op is an `Op`; the other cells are what `torch.distributed.pipelining` (2.13)
does around ops. Its own parser reads as much of a cell as it understands and drops the rest: `0BW0` becomes a B of no
micro-batch, `0W0.1` the whole W, `0F-1` an F of no micro-batch. Here a cell is read whole or refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from ..core.errors import InputError
from ..core.ops import Kind, Op

Way = Literal["SEND_F", "RECV_F", "SEND_B", "RECV_B"]
Chore = Literal["UNSHARD", "RESHARD", "REDUCE_GRAD"]

_NUMBER = r"(0|[1-9]\d{0,8})"
_OP = re.compile(rf"{_NUMBER}([FIWB]){_NUMBER}", re.ASCII)
_TRANSFER = re.compile(rf"{_NUMBER}(SEND_F|RECV_F|SEND_B|RECV_B){_NUMBER}", re.ASCII)
_UPKEEP = re.compile(rf"{_NUMBER}(UNSHARD|RESHARD|REDUCE_GRAD)", re.ASCII)
_PAIR = re.compile(r"\(([^()]*)\)OVERLAP_F_B", re.ASCII)


@dataclass(frozen=True, slots=True)
class Transfer:
    """One end of a message: the stage sends, or receives, an activation (`_F`) or a gradient (`_B`).

    Parameters
    ----------
    stage
        The stage that sends, or that receives.
    way
        What it does.
    microbatch
        Number from 0.

    Examples
    --------
    >>> print(Transfer(2, "SEND_B", 0), Transfer(2, "SEND_B", 0).other_end)
    2SEND_B0 1RECV_B0
    """

    stage: int
    way: Way
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.way}{self.microbatch}"

    @property
    def sends(self) -> bool:
        """Whether this is the sending end."""
        return self.way.startswith("SEND")

    @property
    def forward(self) -> bool:
        """Whether an activation is sent, not a gradient."""
        return self.way.endswith("F")

    @property
    def other_stage(self) -> int:
        """The stage at the other end; may be one that does not exist."""
        return self.stage + (1 if self.sends == self.forward else -1)

    @property
    def other_end(self) -> Transfer:
        """The same message where it is received, or sent."""
        way = f"{'RECV' if self.sends else 'SEND'}_{'F' if self.forward else 'B'}"
        return Transfer(self.other_stage, cast(Way, way), self.microbatch)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What is done for a whole stage: gather or drop its sharded weights (FSDP), finish its gradients."""

    stage: int
    chore: Chore

    def __str__(self) -> str:
        return f"{self.stage}{self.chore}"


Action = Op | Transfer | Upkeep


def parse_cell(text: str) -> tuple[Action, ...]:
    """Read one cell, blanks around it allowed; an empty one, a bubble, is no action.

    An overlapped pair, `(0F2;3B0)OVERLAP_F_B`, is its ops in order: so runs PyTorch's own runtime it, unless the user
    registers a function that does better.

    Raises
    ------
    InputError
        When the text is none of PyTorch's cells.

    Examples
    --------
    >>> [str(action) for action in parse_cell(" (0F2;3B0)OVERLAP_F_B ")]
    ['0F2', '3B0']
    """
    text = text.strip()
    if not text:
        return ()
    pair = _PAIR.fullmatch(text)
    if pair is None:
        return (_parse_action(text),)
    parts = [_parse_action(part.strip()) for part in pair[1].split(";")]
    ops = [part for part in parts if isinstance(part, Op)]
    if len(ops) < len(parts) or len(ops) < 2:
        raise InputError(f"{text!r}: overlapped are two ops or more, as in (0F2;3B0)OVERLAP_F_B")
    return tuple(ops)


def _parse_action(text: str) -> Action:
    if match := _OP.fullmatch(text):
        return Op(int(match[1]), Kind[match[2]], int(match[3]))
    if match := _TRANSFER.fullmatch(text):
        return Transfer(int(match[1]), cast(Way, match[2]), int(match[3]))
    if match := _UPKEEP.fullmatch(text):
        return Upkeep(int(match[1]), cast(Chore, match[2]))
    raise InputError(
        f"{text!r} is no cell of PyTorch's schedules: write <stage><F|I|W|B><micro-batch>, as 2F0 (B is the whole "
        "backward, I the gradient of the input); <stage><SEND_F|RECV_F|SEND_B|RECV_B><micro-batch>; "
        "<stage><UNSHARD|RESHARD|REDUCE_GRAD>; (0F2;3B0)OVERLAP_F_B; or nothing, for a bubble"
    )
