"""Names of the channels between ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WINDOW = 2
"""Messages of one route that may wait at either end: received and not yet taken, or, under a memory limit, sent and not
yet received."""


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """One directed edge between two stages on different ranks, for one kind of message.

    Parameters
    ----------
    kind
        "F" for activations, "B" for gradients.
    sender, receiver
        The stages.
    source, target
        Their ranks.
    direction
        Of the micro-batches that use it, where a placement has two.

    Examples
    --------
    >>> print(Route("F", 0, 1, 0, 1))
    F 0->1 (rank 0 to rank 1)
    """

    kind: Literal["F", "B"]
    sender: int
    receiver: int
    source: int
    target: int
    direction: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.sender}->{self.receiver} (rank {self.source} to rank {self.target})"
