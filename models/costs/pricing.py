"""Seconds and bytes of a model's layers on a device, by formula: the `Profile` of what nobody has measured yet.

Seconds: the operations and bytes of `work`, each at the speed that such kernels reach on the device, corrected by what
has been measured there, where something has (`calibration`).

Bytes: what autograd keeps for I and W (Korthikanti et al. 2022, 2205.05198, section 4, without dropout, masks and
scores, which fused attention does not keep): for a block with gated MLP 4h + 2q + 2kv + 3f elements a token. After I
the inputs and output gradients of its matrices remain, which are as many: I frees nothing of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from adaptpipe.solver import InputError, Measurement, Part, Profile
from adaptpipe.solver.planning.workload import Tie

from ..clusters.device import Device
from .architecture import MOST, Architecture
from .calibration import Calibration
from .experts import busiest
from .layer import Layer
from .structure import structure
from .work import MIXED, RECOMPUTE, Degrees, Recipe, Recompute, held_bytes, work_of

MOST_S, MOST_BYTES = 1e8, 10**17
"""Of one micro-batch, all layers together: far beyond what anyone trains, and far within 64 bits."""


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
    calibration: Calibration | None = None,
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
        runs their F again, which is the `transient` of a fused backward.
    expert_imbalance
        Standard deviation, over the mean, of how often an expert is chosen; counts where `ep` is above 1: `busiest`.
        Its mean is in the seconds, its spread from one micro-batch to the next is the parts' `uneven`.
    recipe
        Bytes of numbers.
    calibration
        What was measured on the device, by `calibrate`.

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
        When a value is out of bounds, `tp` does not divide the heads, or a micro-batch takes more than `MOST_S` or
        `MOST_BYTES`.

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
    _check(model, sequence, sizes, degrees, recompute)
    busy, spread = (1.0, 0.0) if model.experts is None else busiest(model.experts.count, ep, expert_imbalance)
    found = structure(model, sequence, split_layers=split_layers)
    device = device if calibration is None else calibration.applied(device)
    pricing = _Pricing(
        device,
        degrees,
        recompute,
        recipe,
        busy,
        spread / busy,
        calibration or Calibration(device.achieved, device.op_s),
    )
    parts = tuple(pricing.part(layer, sorted(set(sizes))) for layer in found)
    _require_plausible(model, sequence, parts)
    name = device.name if tp == 1 else f"{tp} × {device.name}"
    return Profile(name, parts, 0.0, op_s=device.op_s), tuple(_ties(model, found, pricing))


def _check(model: Architecture, sequence: int, sizes: Sequence[int], degrees: Degrees, recompute: str) -> None:
    if recompute not in RECOMPUTE:
        raise InputError(f"recompute = {recompute!r}: must be one of {', '.join(RECOMPUTE)}")
    if not _counts(sequence):
        raise InputError(f"sequence = {sequence!r}: must be a whole number from 1 to {MOST}")
    if not sizes or not all(map(_counts, sizes)):
        raise InputError(f"sizes = {list(sizes)}: must be micro-batch sizes, whole numbers from 1 to {MOST}")
    for heads, whose in ((model.heads, ""), (model.vision.heads if model.vision else 0, "'s vision tower")):
        if heads % degrees.tp:
            raise InputError(f"tp = {degrees.tp}: does not divide the {heads} heads of {model.name}{whose}")
    if model.vision is not None and sequence < model.vision.tokens:
        raise InputError(
            f"sequence = {sequence}: the images of a sample take {model.vision.tokens} tokens; use more, or fewer "
            "patches"
        )
    count = 0 if model.experts is None else model.experts.count
    if degrees.ep > 1 and (count == 0 or count % degrees.ep):
        raise InputError(f"ep = {degrees.ep}: does not divide the {count} experts of {model.name}; leave it at 1")


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


def _require_plausible(model: Architecture, sequence: int, parts: Sequence[Part]) -> None:
    """Refuse what sums of 64 bits would not hold."""
    largest = [part.measurements[-1] for part in parts]
    seconds = sum(m.forward_s + m.backward_s for m in largest)
    held = sum(max(m.activation, m.retained, m.message) for m in largest) + sum(part.static for part in parts)
    if seconds > MOST_S or held > MOST_BYTES:
        raise InputError(
            f"{model.name}: a micro-batch of {largest[0].size} × {sequence} tokens would take {seconds:.1e} s and "
            f"{held:.1e} bytes on one device; must be at most {MOST_S:.0e} s and {MOST_BYTES:.0e} bytes: check the "
            "model's dimensions, the sequence and the micro-batch sizes"
        )


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


_KEPT = ("embedding", "head")
"""Kinds that are never computed again."""


@dataclass(frozen=True, slots=True)
class _Pricing:
    """Prices of a layer on a device."""

    device: Device
    degrees: Degrees
    recompute: Recompute
    recipe: Recipe
    busy: float
    spread: float
    calibration: Calibration

    def part(self, layer: Layer, sizes: Sequence[int]) -> Part:
        """The layer at every size."""
        kept = [max(1, round(matrix.kept)) for matrix in reversed(layer.matrices)]
        work = tuple(max(1, round(matrix.work)) for matrix in reversed(layer.matrices)) or (1,)
        deferred = sum(matrix.parameters for matrix in layer.matrices)
        if self.recipe.embedding_waits and layer.kind == "embedding":
            deferred += layer.others
        return Part(
            layer.name,
            self.static(layer.parameters, layer.expert_parameters),
            tuple(self.measurement(layer, size, kept) for size in sizes),
            deferred=deferred / layer.parameters if layer.parameters else 1.0,
            unit_work=work,
            kind=layer.kind,
            parameters=layer.parameters,
            uneven=self.uneven(layer),
        )

    def uneven(self, layer: Layer) -> float:
        """Standard deviation over the mean of the layer's time, by products of experts that are met unevenly."""
        experts = tuple(matrix for matrix in layer.matrices if matrix.copies > 1)
        if not experts or not self.spread:
            return 0.0
        whole, rest = (
            sum(
                work.seconds(self.device)
                for work in work_of(each, 1, self.recipe, self.device, self.degrees, self.busy)
            )
            for each in (layer, replace(layer, matrices=tuple(m for m in layer.matrices if m.copies == 1)))
        )
        return self.spread * (1 - rest / whole)

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
        full = self.recompute == "full" and layer.kind not in _KEPT
        again = self.recompute == "selective" and layer.kind not in _KEPT
        forward, backward, weight = self.calibration.seconds(
            layer.kind, work_of(layer, size, self.recipe, self.device, self.degrees, self.busy, again), self.device
        )
        if full:
            backward += forward
        activation, retained = self._held(layer, size)
        held = activation
        if full:
            held = self._rows(layer, size, layer.entry * self.recipe.element)
        elif again:
            held -= self._rows(layer, size, layer.light * self.recipe.element)
        return Measurement(
            size,
            forward,
            backward,
            weight,
            backward + weight,
            held,
            retained,
            self._rows(layer, size, layer.message * self.recipe.element),
            unit_bytes=_divided(retained, kept) if len(kept) > 1 else (),
            transient=activation - held,
        )

    def _rows(self, layer: Layer, size: int, width: float) -> int:
        return round(size * layer.tokens * width / self.degrees.tp)

    def _held(self, layer: Layer, size: int) -> tuple[int, int]:
        """Bytes after F and after I, where nothing is made again."""
        after_f, after_i = held_bytes(layer, self.recipe)
        more, most = self.calibration.held(layer.kind)
        return self._rows(layer, size, after_f * more), self._rows(layer, size, after_i * most)


def _divided(whole: int, shares: Sequence[int]) -> tuple[int, ...]:
    """Whole bytes in proportion to shares, the given ones in sum."""
    total, done, found = sum(shares), 0, []
    for share in shares:
        found.append(whole * (done + share) // total - whole * done // total)
        done += share
    return tuple(found)
