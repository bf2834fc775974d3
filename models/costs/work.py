"""What F, I and W of a layer do on a device, in operations and bytes: all that its prices are linear in.

- A product of n tokens with a matrix takes 2 × n × inputs × outputs operations, in F, once more in I (input gradient)
  and once more in W (Narayanan et al. 2021, 2104.04473, appendix: 3 × forward).
- Attention takes 4 × width operations for each pair of tokens of which one sees the other, half of all pairs where it
  is causal; its backward 2.5 times as many, since the scores are computed again (Dao 2023, 2307.08691, section 4.1),
  all of it in I.
- Elementwise kernels read and write their operands; in I half as much again.
- A logit is read and written for 2.5 times its bytes in F and twice in I, loss included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from adaptpipe.solver import InputError

from ..clusters.device import Device
from .layer import Layer

Recompute = Literal["none", "selective", "full"]

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")

FIXED_S = (30e-6, 40e-6, 20e-6)
"""Seconds that F, I and W of a block take whatever its size: launches of its kernels; assumed."""

EXPOSED = 0.5
"""Share of the exchange between expert-parallel ranks that no computation covers; assumed."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How numbers are kept in training.

    Attributes
    ----------
    element
        Bytes of a number in activations, their gradients and messages.
    logit, logit_gradient
        Bytes of a logit from F on, and of its gradient from I on.
    weight, gradient, optimizer
        Bytes for each parameter of weights, gradients, and what the optimizer keeps.
    embedding_waits
        Whether the embedding's gradient is part of W, and touches the rows of its tokens only; otherwise it is part of
        I, and a matrix as large as the embedding is filled and added.
    """

    element: int
    logit: int
    logit_gradient: int
    weight: int
    gradient: int
    optimizer: int
    embedding_waits: bool


MIXED = Recipe(2, 4, 2, 2, 4, 12, True)
"""bf16, with gradients, master weights and Adam's moments in single precision: 18 bytes a parameter (Rajbhandari et al.
2020, 1910.02054, section 3.1, whose gradients take 2 bytes where Megatron-LM's main gradients take 4)."""

SINGLE = Recipe(4, 4, 4, 4, 4, 8, False)
"""Single precision with Adam, as `adaptpipe run` trains."""

HALF = Recipe(2, 2, 2, 2, 2, 4, False)
"""bf16 throughout, as `adaptpipe profile --layers --dtype bfloat16` measures."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """Over how many devices a layer is spread.

    Attributes
    ----------
    tp
        Devices that share every layer (tensor parallel; activations are divided along the sequence: 2205.05198,
        section 4.2).
    dp
        Replicas.
    ep
        Of the replicas, those that divide experts among them.
    zero
        1: replicas divide the optimizer's state (1910.02054, section 5.1); 0: each keeps all.
    """

    tp: int = 1
    dp: int = 1
    ep: int = 1
    zero: int = 1

    def __post_init__(self) -> None:
        for key in ("tp", "dp", "ep"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{key} = {value!r}: must be a whole number from 1")
        if self.dp % self.ep:
            raise InputError(f"ep = {self.ep}: must divide dp = {self.dp}, whose replicas share the experts")
        if self.zero not in (0, 1):
            raise InputError(
                f"zero = {self.zero!r}: must be 0 or 1; 2 and 3 divide what every micro-batch of a pipeline needs whole"
            )


ONE = Degrees()
"""One device, one replica."""


@dataclass(frozen=True, slots=True)
class Work:
    """What an op does on each of the devices that share it.

    Attributes
    ----------
    product
        Operations in matrix products.
    attention_forward, attention_backward
        Operations in attention.
    moved
        Bytes that other kernels read and write.
    exchange_s
        Seconds of exchange with the devices that share the layer.
    fixed_s
        Seconds whatever the size: launches.
    """

    product: float = 0.0
    attention_forward: float = 0.0
    attention_backward: float = 0.0
    moved: float = 0.0
    exchange_s: float = 0.0
    fixed_s: float = 0.0

    def seconds(self, device: Device) -> float:
        """Seconds, each part at the share of the device's published speed that such kernels reach."""
        achieved = device.achieved
        return (
            self.product / (device.flops * achieved.gemm)
            + self.attention_forward / (device.flops * achieved.attention_forward)
            + self.attention_backward / (device.flops * achieved.attention_backward)
            + self.moved / (device.bandwidth * achieved.elementwise)
            + self.exchange_s
            + self.fixed_s
        )


def work_of(
    layer: Layer,
    size: int,
    recipe: Recipe,
    device: Device,
    degrees: Degrees = ONE,
    busy: float = 1.0,
    again: bool = False,
) -> tuple[Work, Work, Work]:
    """Work of F, I and W.

    Parameters
    ----------
    layer, size
        Which, and the samples of its micro-batch.
    recipe, device, degrees
        Bytes of numbers; whose links; over how many devices.
    busy
        Load of the busiest of the devices that share experts over the average.
    again
        Whether I makes outputs of norms and activations again.
    """
    tp, ep = degrees.tp, degrees.ep
    tokens = size * layer.tokens / tp
    product = sum(2 * tokens * each.work * (busy if each.copies > 1 else 1.0) for each in layer.matrices)
    attention = size * layer.attention / tp
    moved = tokens * layer.moved * recipe.element
    logits = tokens * layer.logits * recipe.logit
    gathered = tokens * layer.synced * recipe.element * (tp - 1) / device.exchange(tp)
    sent = tokens * layer.sent * recipe.element * (ep - 1) / ep / device.exchange(tp * ep)
    exchange = gathered + EXPOSED * sent
    forward, backward, weight = (layer.launches * each for each in FIXED_S)
    if layer.kind == "embedding":
        if recipe.embedding_waits:
            return (
                Work(moved=moved, fixed_s=forward),
                Work(fixed_s=backward / 4),
                Work(moved=moved, fixed_s=1.5 * weight),
            )
        # Gradients are read and written to rows of a matrix that was filled with zeros, and is added: 4 times its size.
        filled = (2 * tokens * layer.message + 4 * layer.others) * recipe.element
        return Work(moved=moved, fixed_s=forward), Work(moved=filled, fixed_s=backward), Work()
    return (
        Work(product, attention, 0.0, moved + 2.5 * logits, exchange, forward),
        Work(
            product,
            0.0,
            2.5 * attention,
            1.5 * moved + 2 * logits + (3 * tokens * layer.light * recipe.element if again else 0.0),
            exchange,
            backward,
        ),
        Work(product, fixed_s=weight),
    )


def held_bytes(layer: Layer, recipe: Recipe) -> tuple[float, float]:
    """Bytes that stay after F, and after I, for each token, where nothing is made again.

    Examples
    --------
    >>> from adaptpipe.models.costs.layer import Matrix
    >>> held_bytes(Layer(1, 4, 6, (Matrix(4, 6),), held=8, stats=2), MIXED)  # two norm's figures; input and gradient
    (24, 20.0)
    """
    after_f = layer.held * recipe.element + layer.stats * 4 + layer.logits * recipe.logit
    kept = sum(matrix.kept for matrix in layer.matrices) - layer.logits
    return after_f, kept * recipe.element + layer.logits * recipe.logit_gradient
