"""A layer of a decoder: what it does for a token. Its matrices, attention, what it moves and what it holds.

Widths are counted in elements; what an element weighs, and how fast a device is, comes later (`pricing`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Matrix:
    """A linear layer.

    Attributes
    ----------
    inputs, outputs
        Widths.
    bias
        Whether it has one.
    fresh
        Whether no matrix before it in the layer keeps the same input.
    copies, used
        Matrices like it that there are, and those that a token meets: experts.
    rows
        Rows for each token: 1, or less where patches have been merged.
    """

    inputs: int
    outputs: int
    bias: bool = False
    fresh: bool = True
    copies: int = 1
    used: int = 1
    rows: float = 1.0

    @property
    def parameters(self) -> int:
        """Parameters of all copies."""
        return self.copies * self.outputs * (self.inputs + self.bias)

    @property
    def work(self) -> float:
        """Multiply-adds for each token."""
        return self.rows * self.used * self.inputs * self.outputs

    @property
    def kept(self) -> float:
        """Elements that W needs for each token: its input, unless another keeps it, and its output's gradient."""
        return self.rows * self.used * (self.inputs * self.fresh + self.outputs)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a decoder, for one sample.

    Attributes
    ----------
    tokens
        Rows of its hidden state in a sample.
    entry, message
        Elements that come into it, and that leave it, for each token.
    matrices
        Its linear layers, in the order in which they are applied.
    name, kind
        For people; "embedding", "block", "attention", "mlp", "head", "vision" or "mtp"; "" where it is part of one.
    others
        Parameters that are in no matrix: norms, embeddings.
    attention
        Floating-point operations of attention's two products in F, for a sample.
    moved
        Elements that kernels other than products read or write for each token in F.
    held, light
        Elements that stay from F on for each token, and those of them that are cheap to make again: outputs of norms
        and of activations.
    stats
        Single-precision numbers that stay from F to I for each token: of norms and of attention's softmax.
    logits
        For each token.
    synced
        Elements that tensor-parallel ranks gather and scatter in F for each token.
    sent
        Elements that expert-parallel ranks exchange in F for each token.
    launches
        Share of a block's fixed time.
    """

    tokens: int
    entry: int
    message: int
    matrices: tuple[Matrix, ...] = ()
    name: str = ""
    kind: str = ""
    others: int = 0
    attention: float = 0.0
    moved: float = 0.0
    held: float = 0.0
    light: float = 0.0
    stats: int = 0
    logits: int = 0
    synced: int = 0
    sent: float = 0.0
    launches: float = 1.0

    @property
    def parameters(self) -> int:
        """All of its parameters, those included that another layer shares."""
        return self.others + sum(matrix.parameters for matrix in self.matrices)

    @property
    def expert_parameters(self) -> int:
        """Parameters of matrices that expert-parallel ranks divide among them."""
        return sum(matrix.parameters for matrix in self.matrices if matrix.copies > 1)


def join(name: str, kind: str, layers: Iterable[Layer]) -> Layer:
    """Several layers, one after the other, as one."""
    first, *others = layers
    for other in others:
        first = replace(
            first,
            message=other.message,
            matrices=first.matrices + other.matrices,
            **{
                key: getattr(first, key) + getattr(other, key)
                for key in (
                    "others", "attention", "moved", "held", "light", "stats", "logits", "synced",
                    "sent", "launches",
                )
            },
        )  # fmt: skip
    return replace(first, name=name, kind=kind)


def pairs(tokens: int, window: int | None = None, causal: bool = True) -> float:
    """Pairs of a token and one that it sees.

    Examples
    --------
    >>> pairs(8), pairs(8, causal=False), pairs(8, window=2)
    (32.0, 64.0, 14.0)
    """
    if not causal:
        return float(tokens * tokens)
    seen = tokens if window is None else min(window, tokens)
    return tokens * seen - seen * seen / 2
