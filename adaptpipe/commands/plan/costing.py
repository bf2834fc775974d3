"""What a question's model costs, layer by layer: by formula, as measured, or by formulas that agree with what was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptpipe.models import build
from adaptpipe.models.clusters import Device
from adaptpipe.models.costs import (
    HALF,
    MIXED,
    RECOMPUTE,
    SINGLE,
    Architecture,
    Calibration,
    Recompute,
    architecture_of,
    calibrate,
    layers,
    preset,
    read_config,
    sample_flops,
)
from adaptpipe.models.costs import parameters as count_parameters
from adaptpipe.solver import InputError, Profile
from adaptpipe.solver.planning.files.profile_file import LayerProfile, load_profile
from adaptpipe.solver.planning.workload import Tie

from ..run_file import load_run
from .question import Question

SEQUENCE = 4096
"""Tokens of a sample where none are given; fewer where the model has fewer positions."""


@dataclass(frozen=True, slots=True)
class Costs:
    """A model's layers.

    Parameters
    ----------
    name
        For people.
    profile, ties
        Seconds and bytes of the layers, and the parameters that they share.
    sequence
        Tokens of a sample.
    parameters
        Of the model, a shared matrix once.
    flops
        Operations of a sample, nothing twice; None: unknown.
    model
        The keys of a run file's `[model]` where it is such a model; otherwise its name.
    measured
        Whether the seconds were measured, or agree with what was.
    """

    name: str
    profile: Profile
    ties: tuple[Tie, ...]
    sequence: int
    parameters: int
    flops: float | None
    model: Mapping[str, object]
    measured: bool


def costs_of(question: Question, device: Device, sizes: tuple[int, ...]) -> Costs:
    """Layers of a question's model on a device, at some micro-batch sizes.

    Raises
    ------
    InputError
        When the model is unknown, or cannot be used as asked.
    """
    measured = None if question.profile is None else load_profile(question.profile)
    if question.model is None:
        assert measured is not None
        return _as_measured(question, measured)
    if Path(question.model).suffix.lower() == ".toml":
        # A plan that it names may be the one to be made.
        table: Mapping[str, object] = load_run(question.model, ["plan=", "method=auto"]).model
        architecture, recipe = _own(table, question.sequence), SINGLE
        name, sequence = Path(question.model).stem, question.sequence or architecture.positions or SEQUENCE
    else:
        table, recipe = {"name": question.model}, MIXED
        architecture = _architecture(question.model)
        name, sequence = architecture.name, question.sequence or min(SEQUENCE, architecture.positions or SEQUENCE)
    if architecture.positions and sequence > architecture.positions:
        raise InputError(f"--sequence {sequence}: {name} has {architecture.positions} positions")
    calibration = None if measured is None else _calibration(measured, device)
    profile, ties = layers(
        architecture,
        device if calibration is None else calibration.applied(device),
        sequence=sequence,
        sizes=sizes,
        tp=question.tp,
        dp=question.dp,
        ep=question.ep,
        zero=question.zero,
        split_layers=question.split_layers,
        recompute=_recompute(question.recompute),
        recipe=recipe,
        calibration=calibration,
    )
    counted, flops = count_parameters(architecture), sample_flops(architecture, sequence)
    return Costs(name, profile, ties, sequence, counted, flops, table, calibration is not None)


def _architecture(model: str) -> Architecture:
    if Path(model).suffix.lower() == ".json":
        return read_config(model)
    if Path(model).is_dir():
        return read_config(Path(model) / "config.json")
    return preset(model)


def _own(table: Mapping[str, object], sequence: int | None = None) -> Architecture:
    """Dimensions of a run file's model, for samples of some length."""
    keys: dict[str, Any] = {**table, **({} if sequence is None else {"sequence": sequence})}
    kind = keys.pop("kind", None)
    if not isinstance(kind, str):
        raise InputError("model.kind: missing; the table needs the kind of the model and its keys")
    return architecture_of(build(kind, **keys))


def _recompute(text: str) -> Recompute:
    for each in RECOMPUTE:
        if text == each:
            return each
    raise InputError(f"--recompute {text}: must be one of {', '.join(RECOMPUTE)}")


def _as_measured(question: Question, measured: LayerProfile) -> Costs:
    for key, usual in (("tp", 1), ("ep", 1), ("recompute", "none"), ("split_layers", False)):
        if getattr(question, key) != usual:
            raise InputError(
                f"--{key.replace('_', '-')}: the layers of {question.profile} are as they were measured; leave it out, "
                "or give --model too"
            )
    profile = measured.at(question.sequence)
    (sequence,) = (each for each, found in measured.lengths.items() if found is profile)
    table, name = measured.model or {}, Path(str(question.profile)).stem
    try:
        architecture = _own(table, sequence)
    except InputError:  # no decoder, so nobody has counted its operations
        total = sum(part.parameters for part in profile.parts)
        return Costs(name, profile, measured.ties, sequence, total, None, table, True)
    counted, flops = count_parameters(architecture), sample_flops(architecture, sequence)
    return Costs(name, profile, measured.ties, sequence, counted, flops, table, True)


def _calibration(measured: LayerProfile, device: Device) -> Calibration:
    if not measured.model:
        raise InputError("--profile: says of no model that it was measured with; measure it with adaptpipe profile")
    found = [(_own(measured.model, sequence), sequence, profile) for sequence, profile in measured.lengths.items()]
    model, sequence, profile = found[0]
    first = profile.parts[0].measurements[0]
    # What leaves the embedding tells in which numbers it was measured.
    single = first.message >= 4 * first.size * sequence * model.hidden
    return calibrate(found, device, SINGLE if single else HALF)
