"""Files of measured layers: seconds and bytes by micro-batch size, at one or several lengths of a sample.

Equal layers share one entry of `kinds`, so that a file of a hundred layers stays readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec

from ...core.errors import InputError
from ...core.profile import Measurement, Part, Profile
from ...files.reading import read_struct, write_text
from ..workload import Tie

FORMAT = "adaptpipe-profile"
VERSION = 1

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class MeasurementSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Costs of one layer at one micro-batch size; the fields of `Measurement`."""

    size: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    forward_s: Seconds
    backward_input_s: Seconds
    backward_weight_s: Seconds
    backward_s: Seconds
    activation: Bytes
    retained: Bytes
    message: Bytes
    unit_s: tuple[Seconds, ...] = ()
    unit_bytes: tuple[Bytes, ...] = ()
    transient: Bytes = 0
    spread: tuple[Share, ...] = ()


class KindSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What equal layers have in common; the fields of `Part`, but for its name."""

    kind: str
    parameters: Bytes
    static: Bytes
    measurements: Annotated[tuple[MeasurementSpec, ...], msgspec.Meta(min_length=1)]
    deferred: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    unit_work: Annotated[tuple[Annotated[int, msgspec.Meta(ge=1)], ...], msgspec.Meta(min_length=1)] = (1,)
    scatter: Share = 0.0
    uneven: Share = 0.0


class LengthSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Layers at one length of a sample: `layers` are [name, index in `kinds`], first to last."""

    sequence: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    kinds: tuple[KindSpec, ...]
    layers: Annotated[tuple[tuple[str, int], ...], msgspec.Meta(min_length=1)]
    op_s: Seconds = 0.0


class TieSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter that two layers share, by their indices, and its static bytes."""

    layers: tuple[int, int]
    static: Bytes


class ProfileSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of measured layers; `model` is the table of the run file whose model it is."""

    format: str
    version: int
    device: str
    lengths: Annotated[tuple[LengthSpec, ...], msgspec.Meta(min_length=1)]
    ties: tuple[TieSpec, ...] = ()
    model: dict[str, object] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class LayerProfile:
    """A model's layers, measured.

    Parameters
    ----------
    lengths
        By the length of a sample (tokens), the profile whose parts are the layers, first to last.
    ties
        Parameters that layers share.
    model
        Keys that describe the model, as a run file's `[model]` has them.
    """

    lengths: Mapping[int, Profile]
    ties: tuple[Tie, ...] = ()
    model: Mapping[str, object] | None = None

    def at(self, sequence: int | None = None) -> Profile:
        """The profile for samples of that length; None: of the only one.

        Raises
        ------
        InputError
            If there is none, or None and there are several.
        """
        there = ", ".join(map(str, sorted(self.lengths)))
        if sequence is None:
            if len(self.lengths) > 1:
                raise InputError(f"the profile holds sequences of {there}; choose one with --sequence")
            (sequence,) = self.lengths
        if sequence not in self.lengths:
            raise InputError(f"sequence = {sequence}: the profile holds {there}; choose one of them, or measure again")
        return self.lengths[sequence]

    def save(self, path: str | Path) -> None:
        """Write a file that `load_profile` reads.

        Raises
        ------
        InputError
            When it cannot be written.
        """
        write_text(path, msgspec.json.format(msgspec.json.encode(self.spec), indent=1).decode() + "\n")

    @property
    def spec(self) -> ProfileSpec:
        """Content of its file."""
        (device, *_) = {profile.device for profile in self.lengths.values()}
        return ProfileSpec(
            FORMAT,
            VERSION,
            device,
            tuple(_as_spec(sequence, profile) for sequence, profile in sorted(self.lengths.items())),
            tuple(TieSpec(tie.layers, tie.static) for tie in self.ties),
            dict(self.model or {}),
        )


def load_profile(path: str | Path) -> LayerProfile:
    """Read a file of measured layers.

    Raises
    ------
    InputError
        With file, key and remedy.
    """
    spec = read_struct(path, ProfileSpec)
    if spec.format != FORMAT:
        raise InputError(f"{path}: format: {spec.format!r} is not {FORMAT!r}; this is another kind of file")
    if spec.version != VERSION:
        raise InputError(f"{path}: version: {spec.version} is not {VERSION}, the one this release reads")
    lengths: dict[int, Profile] = {}
    for number, length in enumerate(spec.lengths):
        try:
            if length.sequence in lengths:
                raise InputError(f"sequence: {length.sequence} is there twice")
            lengths[length.sequence] = Profile(spec.device, _parts(length), 0.0, op_s=length.op_s)
        except InputError as error:
            raise InputError(f"{path}: lengths[{number}].{error}") from None
    counts = {len(length.layers) for length in spec.lengths}
    if len(counts) > 1:
        raise InputError(f"{path}: lengths: have {sorted(counts)} layers; all must be of one model")
    for number, tie in enumerate(spec.ties):
        if not 0 <= tie.layers[0] < tie.layers[1] < min(counts):
            raise InputError(
                f"{path}: ties[{number}].layers: {list(tie.layers)} are not two of the {min(counts)} layers, ascending"
            )
    return LayerProfile(lengths, tuple(Tie(tie.layers, tie.static) for tie in spec.ties), spec.model)


def _parts(length: LengthSpec) -> tuple[Part, ...]:
    made = []
    for number, kind in enumerate(length.kinds):
        place = f"kinds[{number}]"
        sizes = [m.size for m in kind.measurements]
        if sizes != sorted(set(sizes)):
            raise InputError(f"{place}.measurements: sizes {sizes} must be distinct and ascending")
        units = len(kind.unit_work) if len(kind.unit_work) > 1 else 0
        for at, m in enumerate(kind.measurements):
            for key, count, legal in (
                ("unit_s", len(m.unit_s), (units,)),
                ("unit_bytes", len(m.unit_bytes), (units,)),
                ("spread", len(m.spread), (0, 4)),
            ):
                if count not in legal:
                    raise InputError(f"{place}.measurements[{at}].{key}: {count} values; there must be {legal[-1]}")
            if units and sum(m.unit_bytes) != m.retained:
                raise InputError(
                    f"{place}.measurements[{at}].unit_bytes: {sum(m.unit_bytes)} in sum; must be retained, {m.retained}"
                )
        measurements = tuple(Measurement(**msgspec.structs.asdict(m)) for m in kind.measurements)
        made.append(Part(**{**msgspec.structs.asdict(kind), "name": "", "measurements": measurements}))
    for number, (_, at) in enumerate(length.layers):
        if not 0 <= at < len(made):
            raise InputError(f"layers[{number}]: kind {at} is none of 0 to {len(made) - 1}")
    return tuple(replace(made[at], name=name) for name, at in length.layers)


def _as_spec(sequence: int, profile: Profile) -> LengthSpec:
    numbers: dict[Part, int] = {}
    layers = []
    for part in profile.parts:
        number = numbers.setdefault(replace(part, name=""), len(numbers))
        layers.append((part.name, number))
    kinds = tuple(
        KindSpec(
            part.kind,
            part.parameters,
            part.static,
            tuple(msgspec.convert(msgspec.to_builtins(m), MeasurementSpec) for m in part.measurements),
            part.deferred,
            part.unit_work,
            part.scatter,
            part.uneven,
        )
        for part in numbers
    )
    return LengthSpec(sequence, kinds, tuple(layers), profile.op_s)
