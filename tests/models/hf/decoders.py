"""Small decoders of every family, with what makes their masks and positions differ."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import nn

from adaptpipe.models import build_full, build_stage
from adaptpipe.models.hf import DecoderConfig, read_decoder

SEQUENCE = 12
_GPT2 = {
    "model_type": "gpt2",
    "n_embd": 16,
    "n_layer": 3,
    "n_head": 2,
    "n_positions": 20,
    "vocab_size": 23,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
_LLAMA = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 20,
    "vocab_size": 23,
    "tie_word_embeddings": False,
}
_SLIDING = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}

DECODERS: dict[str, Mapping[str, object]] = {
    "gpt2": _GPT2,
    "gpt2-eager": _GPT2 | {"attn_implementation": "eager", "scale_attn_by_inverse_layer_idx": True},
    "llama": _LLAMA,
    "llama-eager": _LLAMA | {"attn_implementation": "eager", "attention_bias": True, "mlp_bias": True},
    "llama-other-keys": _LLAMA | {"sliding_window": 4},  # which no Llama looks at
    "llama-scaled": _LLAMA
    | {
        "pad_token_id": 3,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8,
        },
    },
    "mistral": _LLAMA | {"model_type": "mistral", "sliding_window": 4},
    "qwen2": _LLAMA | {"model_type": "qwen2"},
    "qwen2-sliding": _LLAMA | {"model_type": "qwen2"} | _SLIDING,
    "qwen2-sliding-eager": _LLAMA | {"model_type": "qwen2", "attn_implementation": "eager"} | _SLIDING,
    "qwen3": _LLAMA | {"model_type": "qwen3", "head_dim": 6},
}
"""What a config.json of each would hold."""


def decoder(name: str, *, split_blocks: bool = False, **changes: object) -> DecoderConfig:
    """One of them."""
    return read_decoder(DECODERS[name], sequence=SEQUENCE, split_blocks=split_blocks, **changes)


def own_model(config: DecoderConfig) -> Any:
    """What transformers itself builds of a config."""
    return import_module("transformers").AutoModelForCausalLM.from_config(config.settings)


def stages_of(config: DecoderConfig, parts: tuple[range, ...]) -> list[nn.Module]:
    """Build the last stage first: a stage must not depend on what was built before it."""
    return [build_stage(config, 5, part) for part in reversed(parts)][::-1]


__all__ = ["DECODERS", "SEQUENCE", "build_full", "decoder", "own_model", "stages_of"]
