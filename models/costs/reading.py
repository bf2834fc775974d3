"""Dimensions of models from their config.json, read as data: nothing is imported, downloaded or run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaptpipe.solver import InputError
from adaptpipe.solver.core.errors import did_you_mean
from adaptpipe.solver.files.reading import read_data

from .architecture import Architecture, Experts, Latent, Vision
from .keys import Keys

Reader = Callable[[Keys], dict[str, Any]]


def read_config(path: str | Path, name: str = "") -> Architecture:
    """Dimensions of a model from its config.json.

    Parameters
    ----------
    path
        The file, or the folder that holds it.
    name
        For people; left out: the name of the file's folder.

    Raises
    ------
    InputError
        When the file cannot be read, its `model_type` is unknown, or a key is missing or wrong.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
    return from_config(read_data(file), name or file.resolve().parent.name, str(file))


def from_config(data: Mapping[str, object], name: str, place: str | None = None) -> Architecture:
    """Dimensions of a model from what is in its config.json.

    Raises
    ------
    InputError
        When its `model_type` is unknown, or a key is missing or wrong.

    Examples
    --------
    >>> keys = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12}
    >>> from_config({**keys, "vocab_size": 50257, "n_positions": 1024}, "gpt2").ffn
    3072
    """
    where = place or name
    kind = data.get("model_type")
    reader = READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        hint = did_you_mean(str(kind), READERS)
        text = data.get("text_config")
        if isinstance(text, dict) and text.get("model_type") in READERS:
            hint = f"its text_config is of type {text['model_type']}: save that as a config.json of its own; "
        raise InputError(f"{where}: model_type = {kind!r}: not known; {hint}known are {', '.join(READERS)}")
    try:
        return Architecture(name, **reader(Keys(data, where)))
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def _rotary(keys: Keys) -> dict[str, Any]:
    """What Llama and its relatives have in common."""
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    if keys.data.get("head_dim") is None and hidden % heads:
        raise InputError(
            f"{keys.place}: hidden_size = {hidden}: not a multiple of num_attention_heads = {heads}; change one or add "
            "head_dim"
        )
    return {
        "layers": keys.count("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": keys.count("num_key_value_heads", default=heads),
        "head_size": keys.count("head_dim", default=hidden // heads),
        "ffn": keys.count("intermediate_size"),
        "vocab": keys.count("vocab_size"),
        "tied": keys.switch("tie_word_embeddings", False),
    }


def _llama(keys: Keys) -> dict[str, Any]:
    bias = keys.switch("attention_bias", False)
    return _rotary(keys) | {"qkv_bias": bias, "output_bias": bias, "mlp_bias": keys.switch("mlp_bias", False)}


def _mistral(keys: Keys) -> dict[str, Any]:
    return _rotary(keys.having("num_key_value_heads")) | {"window": keys.optional("sliding_window")}


def _mixtral(keys: Keys) -> dict[str, Any]:
    base = _mistral(keys)
    return base | {
        "experts": Experts(keys.count("num_local_experts"), keys.count("num_experts_per_tok"), base["ffn"]),
    }


def _qwen2(keys: Keys) -> dict[str, Any]:
    return _rotary(keys.having("num_key_value_heads")) | {"qkv_bias": True}


def _qwen_experts(keys: Keys, shared: int) -> dict[str, Any]:
    if keys.listed("mlp_only_layers"):
        raise InputError(f"{keys.place}: mlp_only_layers: must be empty; blocks without experts cannot be listed")
    return {
        "experts": Experts(
            keys.count("num_experts"),
            keys.count("num_experts_per_tok"),
            keys.count("moe_intermediate_size"),
            shared=shared,
            shared_gate=bool(shared),
            every=keys.count("decoder_sparse_step", default=1),
        )
    }


def _qwen2_moe(keys: Keys) -> dict[str, Any]:
    return _qwen2(keys) | _qwen_experts(keys, keys.count("shared_expert_intermediate_size", least=0))


def _qwen3(keys: Keys) -> dict[str, Any]:
    return _llama(keys.having("num_key_value_heads", "head_dim")) | {"qk_norm": True}


def _qwen3_moe(keys: Keys) -> dict[str, Any]:
    return _llama(keys.having("num_key_value_heads")) | {"qk_norm": True} | _qwen_experts(keys, 0)


def _tied_llama(keys: Keys) -> dict[str, Any]:
    return _llama(keys) | {"tied": keys.switch("tie_word_embeddings", True)}


def _gemma(keys: Keys) -> dict[str, Any]:
    return _tied_llama(keys.having("num_key_value_heads", "head_dim"))


def _gemma2(keys: Keys) -> dict[str, Any]:
    return _gemma(keys) | {
        "post_norms": True,
        "window": keys.count("sliding_window", default=4096),
        "full_every": 2,
    }


def _gemma3_text(keys: Keys) -> dict[str, Any]:
    return _gemma(keys) | {
        "qk_norm": True,
        "post_norms": True,
        "window": keys.count("sliding_window", default=4096),
        "full_every": keys.count("sliding_window_pattern", "_sliding_window_pattern", default=6),
    }


def _starcoder2(keys: Keys) -> dict[str, Any]:
    bias = keys.switch("use_bias", True)
    return _mistral(keys) | {
        "gated": False,
        "tied": keys.switch("tie_word_embeddings", True),
        "layer_norm": True,
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": bias,
    }


def _gpt_neox(keys: Keys) -> dict[str, Any]:
    bias = keys.switch("attention_bias", True)
    return _rotary(keys) | {
        "gated": False,
        "layer_norm": True,
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": True,
    }


def _routed_experts(keys: Keys, bias: bool) -> Experts:
    keys.having("n_shared_experts", "first_k_dense_replace")
    one = keys.count("moe_intermediate_size")
    return Experts(
        keys.count("n_routed_experts"),
        keys.count("num_experts_per_tok"),
        one,
        shared=one * keys.count("n_shared_experts", default=0, least=0),
        first_dense=keys.count("first_k_dense_replace", default=0, least=0),
        bias=bias,
    )


def _glm4_moe(keys: Keys) -> dict[str, Any]:
    return _rotary(keys.having("num_key_value_heads")) | {
        "qkv_bias": keys.switch("attention_bias", False),
        "qk_norm": keys.switch("use_qk_norm", False),
        "experts": _routed_experts(keys, bias=True),
        "mtp": keys.count("num_nextn_predict_layers", default=0, least=0),
    }


def _gpt2(keys: Keys) -> dict[str, Any]:
    width, heads = keys.count("n_embd"), keys.count("n_head")
    if width % heads:
        raise InputError(f"{keys.place}: n_embd = {width}: not a multiple of n_head = {heads}")
    return {
        "layers": keys.count("n_layer"),
        "hidden": width,
        "heads": heads,
        "kv_heads": heads,
        "head_size": width // heads,
        "ffn": keys.count("n_inner", default=4 * width),
        "vocab": keys.count("vocab_size"),
        "gated": False,
        "tied": keys.switch("tie_word_embeddings", True),
        "layer_norm": True,
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "positions": keys.count("n_positions", "max_position_embeddings"),
    }


def _deepseek_v2(keys: Keys) -> dict[str, Any]:
    plain, rotary = keys.count("qk_nope_head_dim"), keys.count("qk_rope_head_dim")
    base = _rotary(Keys({**keys.data, "head_dim": plain + rotary}, keys.place))
    bias = keys.switch("attention_bias", False)
    if keys.count("moe_layer_freq", default=1) != 1:
        raise InputError(f"{keys.place}: moe_layer_freq: must be 1; blocks without experts can only come first")
    return base | {
        "qkv_bias": bias,
        "output_bias": bias,
        "latent": Latent(
            keys.having("q_lora_rank").optional("q_lora_rank"),
            keys.count("kv_lora_rank"),
            plain,
            rotary,
            keys.count("v_head_dim"),
        ),
        "experts": _routed_experts(keys, bias=False),
    }


def _deepseek_v3(keys: Keys) -> dict[str, Any]:
    base = _deepseek_v2(keys)
    return base | {
        "experts": replace(base["experts"], bias=True),
        "mtp": keys.count("num_nextn_predict_layers", default=0, least=0),
    }


def _qwen2_vl(keys: Keys) -> dict[str, Any]:
    tower = keys.table("vision_config")
    if tower is None:
        raise InputError(f"{keys.place}: vision_config: missing; a model of type qwen2_vl needs it")
    width = tower.count("embed_dim")
    side = tower.count("patch_size", default=14)
    patch = tower.count("in_channels", "in_chans", default=3) * tower.count("temporal_patch_size", default=2) * side**2
    vision = Vision(
        tower.count("depth"),
        width,
        tower.count("num_heads"),
        width * tower.count("mlp_ratio", default=4),
        patch,
        merged=tower.count("spatial_merge_size", default=2) ** 2,
    )
    text = keys.table("text_config") or keys
    tied = keys.switch("tie_word_embeddings", text.switch("tie_word_embeddings", False))
    return _qwen2(text) | {"tied": tied, "vision": vision}


READERS: dict[str, Reader] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen2_vl": _qwen2_vl,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3_text,
    "glm4_moe": _glm4_moe,
    "gpt_neox": _gpt_neox,
    "granite": _llama,
    "phi3": _mistral,
    "smollm3": _tied_llama,
    "starcoder2": _starcoder2,
    "gpt2": _gpt2,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
}
"""How to read a config.json, by its `model_type`."""
