"""Measuring the layers of a run file's model: on every rank at the same time, at one or several sequence lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import torch
from torch import Tensor, nn

from adaptpipe.executor import LayerName, launch, measure_layers
from adaptpipe.models import AnyConfig, MLPConfig, build_stage, next_byte_loss, training_batches
from adaptpipe.models.hf import DecoderConfig
from adaptpipe.solver import InputError, Part, Profile
from adaptpipe.solver.planning.files.profile_file import LayerProfile
from adaptpipe.solver.planning.workload import Tie

from .common import table
from .planning import configure
from .run_file import RunSpec

_WEIGHT_STATE = 4
"""Bytes of weight, gradient and Adam's two moments, for each byte of a weight."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What to measure, and where.

    Parameters
    ----------
    spec
        The run file.
    sequences
        Lengths of a sample; empty: the model's own.
    device
        "cpu" or "cuda".
    dtype
        Of weights and activations, by torch's name.
    """

    spec: RunSpec
    sequences: tuple[int, ...]
    device: str
    dtype: str

    def models(self) -> dict[int, tuple[AnyConfig, bytes]]:
        """The model at each length, and the text that it is measured with.

        Raises
        ------
        InputError
            When a length does not fit the model, or the model has none.
        """
        config, _, text = configure(self.spec)
        if isinstance(config, MLPConfig):
            if self.sequences:
                raise InputError('--sequences: a model of kind "mlp" takes vectors and has no sequence; leave it out')
            return {1: (config, text)}
        found = {}
        for sequence in sorted(set(self.sequences)) or [config.sequence]:
            model = {**self.spec.model, "sequence": sequence}
            config, _, text = configure(msgspec.structs.replace(self.spec, model=model))
            found[sequence] = config, text
        return found


def profile_layers(bench: Bench) -> LayerProfile:
    """Measure the layers of a run file's model, by as many processes as it has ranks.

    Raises
    ------
    InputError
        When the model does not fit.
    """
    models = bench.models()
    config, _ = next(iter(models.values()))
    preload = config.slow_imports if isinstance(config, DecoderConfig) else ()
    lengths = launch(_measure, bench.spec.processes, bench, preload=preload)[0]
    return LayerProfile(lengths, _ties(config, bench), bench.spec.model)


def _measure(rank: int, ranks: int, bench: Bench) -> dict[int, Profile]:
    device = torch.device("cuda", rank % torch.cuda.device_count()) if bench.device == "cuda" else torch.device("cpu")
    return {sequence: _measure_one(bench, *model, device) for sequence, model in bench.models().items()}


def _measure_one(bench: Bench, config: AnyConfig, text: bytes, device: torch.device) -> Profile:
    spec, dtype = bench.spec, getattr(torch, bench.dtype)

    def make(index: int) -> nn.Module:
        return build_stage(config, spec.seed, range(index, index + 1)).to(dtype=dtype)

    def batch_of(samples: int) -> tuple[Tensor, Tensor]:
        x, target = next(training_batches(config, text, samples, spec.seed))
        return x.to(dtype) if x.is_floating_point() else x, target

    names = zip(config.layer_names, config.layer_sorts, config.layer_parameters, strict=True)
    return measure_layers(
        [LayerName(*each) for each in names],
        make,
        next_byte_loss,
        batch_of,
        spec.measured_sizes,
        units=spec.weight_units,
        device=device,
    )


def _ties(config: AnyConfig, bench: Bench) -> tuple[Tie, ...]:
    ties = []
    for (first, name), *others in config.ties:
        weight = build_stage(config, 0, range(first, first + 1)).get_parameter(name)
        count = weight.numel() * getattr(torch, bench.dtype).itemsize * _WEIGHT_STATE
        ties += [Tie((first, layer), count) for layer, _ in others]
    return tuple(ties)


def show_layers(profile: LayerProfile) -> None:
    """Print a table for each length, equal layers in one row."""
    for sequence, found in profile.lengths.items():
        names: dict[Part, list[str]] = {}
        for part in found.parts:
            names.setdefault(replace(part, name=""), []).append(part.name)
        rows = [
            [
                f"{names[part][0]} … {names[part][-1]}" if len(names[part]) > 1 else names[part][0],
                f"{part.parameters:,}",
                str(m.size),
                *(
                    f"{seconds * 1e3:.3f}"
                    for seconds in (m.forward_s, m.backward_input_s, m.backward_weight_s, m.backward_s)
                ),
                "/".join(f"{100 * spread:.0f}" for spread in m.spread) + "%",
                *(f"{count / 2**20:.3g}" for count in (m.activation, m.retained, m.message, m.transient, part.static)),
            ]
            for part in names
            for m in part.measurements
        ]
        table(_HEAD, rows, f"{found.device}; samples of {sequence} tokens")
        apart = max(part.scatter for part in names)
        print(
            f"spread: the middle half of the repeats, relative to the median; equal layers lie {apart:.1%} apart at "
            f"most; every op of a stage takes {found.op_s * 1e6:.0f} us beside its layers'"
        )
    if profile.ties:
        shared = sum(tie.static for tie in profile.ties) / 2**20
        print(f"of static, {shared:.3g} MiB are there twice where tied layers are on different ranks")


_HEAD = [
    "layer", "parameters", "size", "F ms", "I ms", "W ms", "B ms", "spread F/I/W/B", "after F MiB", "after I MiB",
    "message MiB", "while it runs MiB", "static MiB",
]  # fmt: skip
