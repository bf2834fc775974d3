"""The models of this project, and decoders of transformers, as architectures; and the processor as a device."""

from __future__ import annotations

from adaptpipe.solver import InputError

from ..clusters.device import Achieved, Device
from ..config import GPTConfig, ModelConfig
from ..hf import DecoderConfig
from .architecture import Architecture
from .reading import from_config

PROCESSOR = Device(
    "processor",
    flops=200e9,
    bandwidth=40e9,
    memory=16 * 10**9,
    inside=4e9,
    between=1e9,
    inside_latency_s=1e-4,
    between_latency_s=1e-4,
    op_s=1e-4,
    kept=0,
    achieved=Achieved(gemm=0.5, attention_forward=0.25, attention_backward=0.2, elementwise=0.25),
)
"""One core of a processor, roughly: a start for `calibrate`, no published figure."""


def architecture_of(config: ModelConfig) -> Architecture:
    """Dimensions of a model that a run file asks for.

    Raises
    ------
    InputError
        When it is no decoder, or of a family whose costs are not known.

    Examples
    --------
    >>> from adaptpipe.models.costs.structure import parameters
    >>> config = GPTConfig(layers=2, width=8, heads=2, sequence=16)
    >>> parameters(architecture_of(config)) == sum(config.layer_parameters)
    True
    """
    if isinstance(config, GPTConfig):
        return Architecture(
            "gpt",
            config.layers,
            config.width,
            config.heads,
            config.heads,
            config.width // config.heads,
            config.mlp_ratio * config.width,
            config.vocab,
            gated=False,
            tied=config.tied,
            layer_norm=True,
            qkv_bias=True,
            output_bias=True,
            mlp_bias=True,
            head_bias=True,
            positions=config.sequence,
        )
    if isinstance(config, DecoderConfig):
        return from_config(config.settings.to_dict(), config.family.name, "model")
    raise InputError(f"{type(config).__name__}: no decoder, so no formula prices its layers; measure them")
