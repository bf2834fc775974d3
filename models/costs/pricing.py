"""Seconds and bytes of a model's layers on a device, by formula: the `Profile` of what nobody has measured yet.

Times are sums of matrix products, attention and elementwise kernels, each at the share of the device's published speed
that such kernels reach:

- a product of n tokens with a matrix takes 2 × n × inputs × outputs operations, in F, once more in I (input gradient)
  and once more in W (Narayanan et al. 2021, 2104.04473, appendix: 3 × forward);
- attention takes 4 × width operations for each pair of tokens of which one sees the other, half of all pairs where it
  is causal; its backward 2.5 times as many, since the scores are computed again (Dao 2023, 2307.08691, section 4.1),
  all of it in I;
- elementwise kernels take the time to read and write their operands; in I half as much again;
- a logit is read and written for 10 bytes in F and 8 in I (loss included).

Bytes: what autograd keeps for I and W (Korthikanti et al. 2022, 2205.05198, section 4, without dropout, masks and
scores, which fused attention does not keep): for a block with gated MLP 4h + 2q + 2kv + 3f elements a token. After I
the inputs and output gradients of its matrices remain, which are as many: I frees nothing of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from adaptpipe.solver import InputError, Measurement, Part, Profile
from adaptpipe.solver.planning.workload import Tie

from ..clusters.device import Device
from .architecture import Architecture
from .experts import busiest
from .layer import Layer
from .structure import structure

Recompute = Literal["none", "selective", "full"]

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")

FIXED_S = (30e-6, 40e-6, 20e-6)
"""Seconds that F, I and W of a block take whatever its size: launches of its kernels; assumed."""

NODE = 8
"""Devices that are linked as within a node; groups of more exchange at the speed between nodes."""

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
        Whether the embedding's gradient is part of W; otherwise of I.
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


def layers(
    model: Architecture,
    device: Device,
    *,
    sequence: int,
    sizes: Sequence[int],
    tp: int = 1,
    dp: int = 1,
    ep: int = 1,
    zero: int = 1,
    split_layers: bool = False,
    recompute: Recompute = "none",
    expert_imbalance: float = 0.2,
    recipe: Recipe = MIXED,
) -> tuple[Profile, tuple[Tie, ...]]:
    """Price the layers of a model.

    Parameters
    ----------
    model, device
        What, and on what. The profile is of `tp` such devices, which share each layer.
    sequence
        Tokens of a sample.
    sizes
        Micro-batch sizes, in samples.
    tp, dp, ep, zero
        As of `Degrees`. The replicas' exchange of gradients is no part of a layer's time.
    split_layers
        Whether attention and MLP are layers of their own.
    recompute
        "selective": outputs of norms and activations are made again in I; "full": blocks keep their input only, and I
        runs their F again. What a fused backward makes again for one layer at a time is left to the memory's reserve.
    expert_imbalance
        Standard deviation, over the mean, of how often an expert is chosen; counts where `ep` is above 1: `busiest`.
    recipe
        Bytes of numbers.

    Returns
    -------
    Profile
        A part for each layer, with its kind, its parameters (all of them, whatever the degrees; a shared matrix in each
        layer that shares it), and a unit of W for each matrix, last first.
    tuple of Tie
        Matrices that layers share: the embedding's and the head's where they are tied, and both with a block that
        predicts further tokens.

    Raises
    ------
    InputError
        When a value is out of bounds, or `tp` does not divide the heads.

    Examples
    --------
    >>> from adaptpipe.models.clusters.device import DEVICES
    >>> from adaptpipe.models.costs.presets import preset
    >>> profile, ties = layers(preset("llama3-8b"), DEVICES["h100"], sequence=8192, sizes=(1,), dp=2)
    >>> part = profile.parts[1]
    >>> part.kind, round(part.measurements[0].forward_s * 1e6), part.measurements[0].activation
    ('block', 8802, 1141964800)
    """
    degrees = Degrees(tp, dp, ep, zero)
    if recompute not in RECOMPUTE:
        raise InputError(f"recompute = {recompute!r}: must be one of {', '.join(RECOMPUTE)}")
    if sequence < 1:
        raise InputError(f"sequence = {sequence}: must be at least 1")
    if not sizes or min(sizes) < 1:
        raise InputError(f"sizes = {list(sizes)}: must be micro-batch sizes of at least 1 sample")
    if model.heads % tp:
        raise InputError(f"tp = {tp}: does not divide the {model.heads} heads of {model.name}")
    if ep > 1 and (model.experts is None or model.experts.count % ep):
        count = 0 if model.experts is None else model.experts.count
        raise InputError(f"ep = {ep}: does not divide the {count} experts of {model.name}; leave it at 1")
    busy = 1.0
    if model.experts is not None:
        busy, _ = busiest(model.experts.count, ep, expert_imbalance)
    found = structure(model, sequence, split_layers=split_layers)
    pricing = _Pricing(device, degrees, recompute, recipe, busy)
    parts = tuple(pricing.part(layer, sorted(set(sizes))) for layer in found)
    name = device.name if tp == 1 else f"{tp} × {device.name}"
    return Profile(name, parts, 0.0, op_s=device.op_s), tuple(_ties(model, found, pricing))


def sample_flops(model: Architecture, sequence: int) -> float:
    """Operations that one sample takes in training, nothing of it twice: what a device's use (MFU) counts.

    Three times the forward's products and attention (Chowdhery et al. 2022, 2204.02311, appendix B); attention as much
    as it is causal.

    Examples
    --------
    >>> from adaptpipe.models.costs.presets import preset
    >>> round(sample_flops(preset("llama2-7b"), 4096) / 4096 / 6_738_415_616, 2)
    6.36
    """
    return sum(
        3 * (2 * layer.tokens * sum(matrix.work for matrix in layer.matrices) + layer.attention)
        for layer in structure(model, sequence)
    )


def _ties(model: Architecture, found: Sequence[Layer], pricing: _Pricing) -> list[Tie]:
    first = next(index for index, layer in enumerate(found) if layer.kind == "embedding")
    last = len(found) - 1
    matrix = pricing.static(model.vocab * model.hidden, 0)
    ties = [Tie((first, last), matrix)] if model.tied else []
    for index, layer in enumerate(found):
        if layer.kind == "mtp":
            ties += [Tie((first, index), matrix), Tie((index, last), matrix)]
    return ties


@dataclass(frozen=True, slots=True)
class _Pricing:
    """Prices of a layer on a device."""

    device: Device
    degrees: Degrees
    recompute: Recompute
    recipe: Recipe
    busy: float

    def part(self, layer: Layer, sizes: Sequence[int]) -> Part:
        """The layer at every size."""
        kept = [max(1, round(matrix.kept)) for matrix in reversed(layer.matrices)]
        work = tuple(max(1, round(matrix.work)) for matrix in reversed(layer.matrices)) or (1,)
        deferred = sum(matrix.parameters for matrix in layer.matrices)
        if self.recipe.embedding_waits and layer.moved_weight:
            deferred += layer.others
        return Part(
            layer.name,
            self.static(layer.parameters, layer.expert_parameters),
            tuple(self.measurement(layer, size, kept) for size in sizes),
            deferred=deferred / layer.parameters if layer.parameters else 1.0,
            unit_work=work,
            kind=layer.kind,
            parameters=layer.parameters,
        )

    def static(self, parameters: int, experts: int) -> int:
        """Bytes of weights, gradients and optimizer state on one device."""
        recipe, (tp, dp, ep) = self.recipe, (self.degrees.tp, self.degrees.dp, self.degrees.ep)
        copies = dp if self.degrees.zero else 1
        held = recipe.weight + recipe.gradient
        shared = (parameters - experts) * (held + recipe.optimizer / copies)
        divided = experts * (held + recipe.optimizer / max(1, copies // ep)) / ep
        return ceil((shared + divided) / tp)

    def measurement(self, layer: Layer, size: int, kept: Sequence[int]) -> Measurement:
        """The layer at one size."""
        forward, backward_input, weight = self._seconds(layer, size)
        activation, retained = self._held(layer, size)
        redone = self.recompute == "full" and layer.kind not in ("embedding", "head")
        return Measurement(
            size,
            forward,
            backward_input + (forward if redone else 0.0),
            weight,
            backward_input + weight + (forward if redone else 0.0),
            activation,
            retained,
            self._rows(layer, size, layer.message * self.recipe.element),
            unit_bytes=_divided(retained, kept) if len(kept) > 1 else (),
        )

    def _rows(self, layer: Layer, size: int, width: float) -> int:
        return round(size * layer.tokens * width / self.degrees.tp)

    def _seconds(self, layer: Layer, size: int) -> tuple[float, float, float]:
        """Seconds of F, I and W, nothing made again but what is cheap."""
        device, achieved, recipe = self.device, self.device.achieved, self.recipe
        tokens = size * layer.tokens
        tp, ep = self.degrees.tp, self.degrees.ep
        speed = device.flops * achieved.gemm * tp
        product = sum(
            2 * tokens * matrix.work * (self.busy if matrix.copies > 1 else 1.0) for matrix in layer.matrices
        ) / speed  # fmt: skip
        attention = size * layer.attention / (device.flops * tp)
        bandwidth = device.bandwidth * achieved.elementwise * tp

        def moving(elements: float) -> float:
            return tokens * elements * recipe.element / bandwidth

        logits = tokens * layer.logits * recipe.logit / bandwidth
        exchange = tokens * layer.synced * recipe.element * (tp - 1) / tp / self._link(tp)
        exchange += EXPOSED * tokens * layer.sent * recipe.element / tp * (ep - 1) / ep / self._link(tp * ep)
        fixed = tuple(layer.launches * each for each in FIXED_S)
        if layer.kind == "embedding":
            fixed = (fixed[0], fixed[1] / 4, fixed[2] * 1.5)
        again = moving(3 * layer.light) if self.recompute == "selective" and layer.kind not in _KEPT else 0.0
        waits = moving(layer.moved_weight)
        embedding = layer.kind == "embedding"
        return (
            fixed[0] + product + attention / achieved.attention_forward + moving(layer.moved) + 2.5 * logits + exchange,
            fixed[1]
            + (0.0 if embedding else product + 1.5 * moving(layer.moved))
            + 2.5 * attention / achieved.attention_backward
            + 2 * logits
            + exchange
            + again
            + (0.0 if recipe.embedding_waits else waits),
            fixed[2] + product + (waits if recipe.embedding_waits else 0.0),
        )

    def _link(self, devices: int) -> float:
        """Bytes per second between devices of a group."""
        device = self.device
        if devices <= NODE:
            return device.inside * device.achieved.inside
        return device.between * device.achieved.between

    def _held(self, layer: Layer, size: int) -> tuple[int, int]:
        """Bytes after F and after I."""
        recipe = self.recipe
        activation = layer.held * recipe.element + layer.stats * 4 + layer.logits * recipe.logit
        kept = sum(matrix.kept for matrix in layer.matrices) - layer.logits
        retained = kept * recipe.element + layer.logits * recipe.logit_gradient
        if layer.kind not in _KEPT:
            if self.recompute == "selective":
                activation -= layer.light * recipe.element
            elif self.recompute == "full":
                activation = layer.entry * recipe.element
        return self._rows(layer, size, activation), self._rows(layer, size, retained)


_KEPT = ("embedding", "head")
"""Kinds that are never computed again."""


def _divided(whole: int, shares: Sequence[int]) -> tuple[int, ...]:
    """Whole bytes in proportion to shares, the given ones in sum."""
    total, done, found = sum(shares), 0, []
    for share in shares:
        found.append(whole * (done + share) // total - whole * done // total)
        done += share
    return tuple(found)
