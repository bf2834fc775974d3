"""Formulas made to agree with a short profile: what was measured of one model prices others on the same device.

First the speeds of products, attention and elementwise kernels, and what each op takes whatever its size, are fitted to
all measured times at once, so that they hold at other widths and lengths. With these speeds, each op of a kind of layer
gets a factor and a fixed time of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt

from adaptpipe.solver import InputError, Measurement, Part, Profile

from ..clusters.device import Achieved, Device
from .architecture import Architecture
from .layer import Layer
from .structure import structure
from .work import FIXED_S, SINGLE, Recipe, Work, held_bytes, work_of

Vector = npt.NDArray[np.float64]

_SPEEDS = ("gemm", "attention_forward", "attention_backward", "elementwise")

_LIKE = {"attention": "block", "mlp": "block", "vision": "block", "mtp": "block"}
"""Kinds that are corrected like another, where they were not measured themselves."""


@dataclass(frozen=True, slots=True)
class Correction:
    """How one kind of layer differs from the formulas.

    Attributes
    ----------
    kind
        "block", "head", …
    factors
        Measured over computed seconds of F, I and W, what is fixed left out.
    fixed_s
        Seconds of F, I and W whatever the size.
    held
        Measured over computed bytes after F and after I.
    """

    kind: str
    factors: tuple[float, float, float]
    fixed_s: tuple[float, float, float]
    held: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a profile says of a device.

    Attributes
    ----------
    achieved
        Shares of the device's figures that kernels reach.
    op_s
        Seconds that every op of a stage takes beside its layers.
    corrections
        For each kind of layer that was measured.
    """

    achieved: Achieved
    op_s: float
    corrections: tuple[Correction, ...] = ()

    def applied(self, device: Device) -> Device:
        """The device with what was measured of it."""
        return replace(device, achieved=self.achieved, op_s=self.op_s)

    def seconds(self, kind: str, work: Sequence[Work], device: Device) -> tuple[float, float, float]:
        """Seconds of F, I and W of a layer of a kind, on the device as `applied` gives it."""
        found = self._correction(kind)
        if found is None:
            forward, backward, weight = (each.seconds(device) for each in work)
            return forward, backward, weight
        share = 0.5 if found.kind != kind and kind in ("attention", "mlp") else 1.0
        forward, backward, weight = (
            factor * replace(each, fixed_s=0.0).seconds(device) + share * fixed
            for factor, fixed, each in zip(found.factors, found.fixed_s, work, strict=True)
        )
        return forward, backward, weight

    def held(self, kind: str) -> tuple[float, float]:
        """Factors on the bytes after F and after I of a layer of a kind."""
        found = self._correction(kind)
        return (1.0, 1.0) if found is None else found.held

    def _correction(self, kind: str) -> Correction | None:
        known = {each.kind: each for each in self.corrections}
        return known.get(kind, known.get(_LIKE.get(kind, "")))


def calibrate(
    measured: Sequence[tuple[Architecture, int, Profile]], device: Device, recipe: Recipe = SINGLE
) -> Calibration:
    """Fit the formulas to what was measured.

    Parameters
    ----------
    measured
        Models, the length of their samples, and a profile with a part for each layer, none of them cut. One model at
        one length will do if it was measured at several micro-batch sizes; prices of models between two that were
        measured are the better for both.
    device
        Where, with its published figures; on one of them, without tensor parallelism.
    recipe
        Bytes of numbers.

    Raises
    ------
    InputError
        When the parts are not the model's layers, or all were measured at one size and length only.
    """
    rows = [row for each in measured for row in _rows(*each, device, recipe)]
    if len({row.at for row in rows}) < 2:
        raise InputError(
            "calibration: the profile has one micro-batch size at one length, which cannot tell what is fixed from "
            "what grows; measure two sizes at least"
        )
    kinds = list(dict.fromkeys(row.kind for row in rows))
    columns = [(kind, op) for kind in kinds for op in range(3)]
    matrix = np.zeros((len(rows), len(_SPEEDS) + len(columns)))
    for at, row in enumerate(rows):
        matrix[at, : len(_SPEEDS)] = row.parts
        matrix[at, len(_SPEEDS) + columns.index((row.kind, row.op))] = FIXED_S[0]
    found = _least_squares(matrix / np.array([[row.seconds] for row in rows]))
    shares = {
        name: float(min(1.0, 1 / speed)) if speed > 0 else 1.0
        for name, speed in zip(_SPEEDS, found[: len(_SPEEDS)], strict=True)
    }
    speeds = np.array([1 / shares[name] for name in _SPEEDS])
    lines = {}
    for key in columns:
        mine = [row for row in rows if (row.kind, row.op) == key]
        line = np.array([[float(np.dot(row.parts, speeds)) / row.seconds, 1 / row.seconds] for row in mine])
        lines[key] = _least_squares(line) if mine else np.array([1.0, 0.0])
    held = _bytes(measured, recipe)
    return Calibration(
        replace(device.achieved, **shares),
        median(profile.op_s for _, _, profile in measured),
        tuple(
            Correction(
                kind,
                _three(float(lines[kind, op][0]) for op in range(3)),
                _three(float(lines[kind, op][1]) for op in range(3)),
                held[kind],
            )
            for kind in kinds
        ),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """One measured op: seconds that the parts of its work would take at the device's published figures, and took."""

    kind: str
    op: int
    at: tuple[int, int]
    parts: tuple[float, ...]
    seconds: float


def _rows(model: Architecture, sequence: int, profile: Profile, device: Device, recipe: Recipe) -> list[_Row]:
    rows = []
    seen: set[tuple[str, tuple[Measurement, ...]]] = set()
    for layer, part in _pairs(model, sequence, profile):
        if (layer.kind, part.measurements) in seen:  # equal layers share their figures
            continue
        seen.add((layer.kind, part.measurements))
        for m in part.measurements:
            took = (m.forward_s, m.backward_input_s, m.backward_weight_s)
            for op, (work, seconds) in enumerate(zip(work_of(layer, m.size, recipe, device), took, strict=True)):
                if seconds > 0:
                    parts = (
                        work.product / device.flops,
                        work.attention_forward / device.flops,
                        work.attention_backward / device.flops,
                        work.moved / device.bandwidth,
                    )
                    rows.append(_Row(layer.kind, op, (sequence, m.size), parts, seconds))
    return rows


def _bytes(measured: Sequence[tuple[Architecture, int, Profile]], recipe: Recipe) -> dict[str, tuple[float, float]]:
    """For each kind, measured over computed bytes after F and after I."""
    found: dict[str, list[tuple[float, float]]] = {}
    for model, sequence, profile in measured:
        for layer, part in _pairs(model, sequence, profile):
            for m in part.measurements:
                computed = [m.size * layer.tokens * each for each in held_bytes(layer, recipe)]
                found.setdefault(layer.kind, []).append(
                    (
                        m.activation / computed[0] if computed[0] else 1.0,
                        m.retained / computed[1] if computed[1] else 1.0,
                    )
                )
    return {kind: (median(f for f, _ in each), median(i for _, i in each)) for kind, each in found.items()}


def _pairs(model: Architecture, sequence: int, profile: Profile) -> list[tuple[Layer, Part]]:
    layers = structure(model, sequence)
    kinds, there = [layer.kind for layer in layers], [part.kind for part in profile.parts]
    if kinds != there:
        at = next(
            (i for i, (a, b) in enumerate(zip(kinds, there, strict=False)) if a != b), min(len(kinds), len(there))
        )
        raise InputError(
            f"calibration: the profile has {len(there)} layers, {model.name} has {len(kinds)}, and they differ from "
            f"layer {at} on; measure this model, its blocks uncut"
        )
    return list(zip(layers, profile.parts, strict=True))


def _least_squares(matrix: Vector) -> Vector:
    """Values not below 0 of which the rows make 1 as nearly as they can, by turns (the squares are convex)."""
    scale = matrix.max(axis=0)
    scale[scale == 0] = 1.0
    scaled = matrix / scale
    gram, wanted = scaled.T @ scaled, scaled.sum(axis=0)
    found = np.zeros(len(scale))
    for _ in range(3000):
        for column in range(len(found)):
            if gram[column, column] > 0:
                step = (wanted[column] - gram[column] @ found) / gram[column, column]
                found[column] = max(0.0, found[column] + step)
    values: Vector = found / scale
    return values


def _three(values: Iterable[float]) -> tuple[float, float, float]:
    forward, backward, weight = values
    return forward, backward, weight
