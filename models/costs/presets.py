"""Models by name, from the dimensions that their makers published, in the keys of their config.json."""

from __future__ import annotations

from adaptpipe.solver import InputError
from adaptpipe.solver.core.errors import did_you_mean

from .architecture import Architecture
from .reading import from_config

Config = dict[str, object]


def _gpt3(layers: int, width: int, heads: int) -> Config:
    return {
        "model_type": "gpt2",
        "n_layer": layers,
        "n_embd": width,
        "n_head": heads,
        "vocab_size": 50257,
        "n_positions": 2048,
    }


def _rotary(kind: str, layers: int, width: int, heads: int, keys: int, ffn: int, vocab: int, **more: object) -> Config:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        **more,
    }


def _qwen2(layers: int, width: int, heads: int, keys: int, ffn: int, vocab: int, tied: bool = False) -> Config:
    return _rotary("qwen2", layers, width, heads, keys, ffn, vocab, tie_word_embeddings=tied)


def _qwen3(layers: int, width: int, heads: int, ffn: int, tied: bool = False) -> Config:
    return _rotary("qwen3", layers, width, heads, 8, ffn, 151936, head_dim=128, tie_word_embeddings=tied)


def _qwen3_moe(layers: int, width: int, heads: int, ffn: int, width_of_one: int) -> Config:
    return _rotary(
        "qwen3_moe",
        layers,
        width,
        heads,
        4,
        ffn,
        151936,
        head_dim=128,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=width_of_one,
        tie_word_embeddings=False,
    )


def _mixtral(layers: int, width: int, heads: int, ffn: int, vocab: int) -> Config:
    return _rotary("mixtral", layers, width, heads, 8, ffn, vocab, num_local_experts=8, num_experts_per_tok=2)


def _deepseek(kind: str, layers: int, width: int, heads: int, ffn: int, vocab: int, **more: object) -> Config:
    return _rotary(
        kind,
        layers,
        width,
        heads,
        heads,
        ffn,
        vocab,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        **more,
    )


PRESETS: dict[str, Config] = {
    "gpt3-small": _gpt3(12, 768, 12),
    "gpt3-medium": _gpt3(24, 1024, 16),
    "gpt3-large": _gpt3(24, 1536, 16),
    "gpt3-xl": _gpt3(24, 2048, 16),
    "gpt3-2.7b": _gpt3(32, 2560, 32),
    "gpt3-6.7b": _gpt3(32, 4096, 32),
    "gpt3-13b": _gpt3(40, 5120, 40),
    "gpt3-175b": _gpt3(96, 12288, 96),
    "llama2-7b": _rotary("llama", 32, 4096, 32, 32, 11008, 32000),
    "llama2-13b": _rotary("llama", 40, 5120, 40, 40, 13824, 32000),
    "llama2-70b": _rotary("llama", 80, 8192, 64, 8, 28672, 32000),
    "llama3-8b": _rotary("llama", 32, 4096, 32, 8, 14336, 128256),
    "llama3-70b": _rotary("llama", 80, 8192, 64, 8, 28672, 128256),
    "llama3-405b": _rotary("llama", 126, 16384, 128, 8, 53248, 128256),
    "llama3.2-1b": _rotary("llama", 16, 2048, 32, 8, 8192, 128256, tie_word_embeddings=True),
    "llama3.2-3b": _rotary("llama", 28, 3072, 24, 8, 8192, 128256, tie_word_embeddings=True),
    "gemma2-2b": _rotary("gemma2", 26, 2304, 8, 4, 9216, 256000, head_dim=256, sliding_window=4096),
    "gemma2-9b": _rotary("gemma2", 42, 3584, 16, 8, 14336, 256000, head_dim=256, sliding_window=4096),
    "gemma2-27b": _rotary("gemma2", 46, 4608, 32, 16, 36864, 256000, head_dim=128, sliding_window=4096),
    "qwen2.5-0.5b": _qwen2(24, 896, 14, 2, 4864, 151936, tied=True),
    "qwen2.5-1.5b": _qwen2(28, 1536, 12, 2, 8960, 151936, tied=True),
    "qwen2.5-3b": _qwen2(36, 2048, 16, 2, 11008, 151936, tied=True),
    "qwen2.5-7b": _qwen2(28, 3584, 28, 4, 18944, 152064),
    "qwen2.5-14b": _qwen2(48, 5120, 40, 8, 13824, 152064),
    "qwen2.5-32b": _qwen2(64, 5120, 40, 8, 27648, 152064),
    "qwen2.5-72b": _qwen2(80, 8192, 64, 8, 29568, 152064),
    "qwen3-0.6b": _qwen3(28, 1024, 16, 3072, tied=True),
    "qwen3-1.7b": _qwen3(28, 2048, 16, 6144, tied=True),
    "qwen3-4b": _qwen3(36, 2560, 32, 9728, tied=True),
    "qwen3-8b": _qwen3(36, 4096, 32, 12288),
    "qwen3-14b": _qwen3(40, 5120, 40, 17408),
    "qwen3-32b": _qwen3(64, 5120, 64, 25600),
    "qwen3-30b-a3b": _qwen3_moe(48, 2048, 32, 6144, 768),
    "qwen3-235b-a22b": _qwen3_moe(94, 4096, 64, 12288, 1536),
    "mistral-7b": _rotary("mistral", 32, 4096, 32, 8, 14336, 32000, sliding_window=4096),
    "mixtral-8x7b": _mixtral(32, 4096, 32, 14336, 32000),
    "mixtral-8x22b": _mixtral(56, 6144, 48, 16384, 32000),
    "deepseek-v2-lite": _deepseek(
        "deepseek_v2",
        27,
        2048,
        16,
        10944,
        102400,
        q_lora_rank=None,
        n_routed_experts=64,
        num_experts_per_tok=6,
        n_shared_experts=2,
        moe_intermediate_size=1408,
        first_k_dense_replace=1,
    ),
    "deepseek-v2": _deepseek(
        "deepseek_v2",
        60,
        5120,
        128,
        12288,
        102400,
        q_lora_rank=1536,
        n_routed_experts=160,
        num_experts_per_tok=6,
        n_shared_experts=2,
        moe_intermediate_size=1536,
        first_k_dense_replace=1,
    ),
    "deepseek-v3": _deepseek(
        "deepseek_v3",
        61,
        7168,
        128,
        18432,
        129280,
        q_lora_rank=1536,
        n_routed_experts=256,
        num_experts_per_tok=8,
        n_shared_experts=1,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
        num_nextn_predict_layers=1,
    ),
    "qwen2-vl-7b": _rotary(
        "qwen2_vl",
        28,
        3584,
        28,
        4,
        18944,
        152064,
        tie_word_embeddings=False,
        vision_config={
            "depth": 32,
            "embed_dim": 1280,
            "num_heads": 16,
            "mlp_ratio": 4,
            "in_channels": 3,
            "patch_size": 14,
            "temporal_patch_size": 2,
            "spatial_merge_size": 2,
        },
    ),
}
"""Keys of each model's config.json that its costs depend on.

GPT-3: Brown et al. 2020 (2005.14165), table 2.1, whose 13B has a width of 5140, which its 40 heads of 128 do not give:
5120 here. The others: the config.json of their checkpoints.
"""

_OTHER_NAMES = {
    "llama3.1-8b": "llama3-8b",
    "llama3.1-70b": "llama3-70b",
    "llama3.1-405b": "llama3-405b",
    "llama3.3-70b": "llama3-70b",
    "gpt3": "gpt3-175b",
    "qwen2-7b": "qwen2.5-7b",
    "qwen2-72b": "qwen2.5-72b",
}


def preset(name: str) -> Architecture:
    """A model by name, without regard to case, hyphens and whose it is.

    Raises
    ------
    InputError
        When there is none, with the names that there are.

    Examples
    --------
    >>> preset("Llama3-8B").kv_heads, preset("meta-llama/Llama-3.1-8B").kv_heads
    (8, 8)
    """
    known = {_plain(key): key for key in PRESETS} | {_plain(other): key for other, key in _OTHER_NAMES.items()}
    key = known.get(_plain(name))
    if key is None:
        hint = did_you_mean(name.lower(), [*PRESETS, *_OTHER_NAMES])
        raise InputError(
            f"model {name!r}: unknown; {hint}there are {', '.join(PRESETS)}; or give the path of a config.json"
        )
    return from_config(PRESETS[key], key)


def _plain(name: str) -> str:
    return name.lower().rpartition("/")[2].replace("-", "").replace("_", "")
