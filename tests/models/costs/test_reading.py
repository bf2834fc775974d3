"""A config.json becomes the dimensions that its model has, or a message that names the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adaptpipe.models.costs import PRESETS, READERS, Architecture, from_config, parameters, preset, read_config
from adaptpipe.solver import InputError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 160,
    "vocab_size": 300,
}
ROTARY = {key: value for key, value in LLAMA.items() if key != "model_type"}
DEEPSEEK: dict[str, Any] = {
    **ROTARY,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 48,
    "first_k_dense_replace": 1,
    "head_dim": 8,
}

# Small models of every type that is read, and of what their keys can change; counted by transformers' own modules.
SMALL: dict[str, dict[str, Any]] = {
    "llama": LLAMA | {"num_key_value_heads": 2},
    "llama, biases": LLAMA | {"attention_bias": True, "mlp_bias": True},
    "llama, tied": LLAMA | {"tie_word_embeddings": True, "head_dim": 8},
    "mistral": LLAMA | {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 16},
    "mixtral": LLAMA | {
        "model_type": "mixtral", "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2
    },
    "qwen2": LLAMA | {"model_type": "qwen2", "num_key_value_heads": 2},
    "qwen2_moe": LLAMA | {
        "model_type": "qwen2_moe", "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 48, "shared_expert_intermediate_size": 80, "decoder_sparse_step": 2,
    },
    "qwen3": LLAMA | {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 32},
    "qwen3_moe": LLAMA | {
        "model_type": "qwen3_moe", "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
    },
    "gemma": LLAMA | {"model_type": "gemma", "num_key_value_heads": 2, "head_dim": 32},
    "gemma2": LLAMA | {"model_type": "gemma2", "num_key_value_heads": 2, "head_dim": 32},
    "gemma3_text": LLAMA | {"model_type": "gemma3_text", "num_key_value_heads": 2, "head_dim": 32},
    "glm4_moe": DEEPSEEK | {"model_type": "glm4_moe", "num_key_value_heads": 2, "head_dim": 16, "use_qk_norm": True},
    "gpt_neox": LLAMA | {"model_type": "gpt_neox"},
    "granite": LLAMA | {"model_type": "granite", "attention_bias": True},
    "phi3": LLAMA | {"model_type": "phi3", "num_key_value_heads": 2, "pad_token_id": 0},
    "smollm3": LLAMA | {"model_type": "smollm3", "num_key_value_heads": 2, "pad_token_id": 0},
    "starcoder2": LLAMA | {"model_type": "starcoder2", "num_key_value_heads": 2},
    "gpt2": {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 300, "n_positions": 32},
    "deepseek_v2": DEEPSEEK | {"model_type": "deepseek_v2", "topk_method": "greedy"},
    "deepseek_v3": DEEPSEEK | {"model_type": "deepseek_v3", "q_lora_rank": 24},
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_parameters_are_those_of_transformers(name: str) -> None:
    """What transformers builds of the same keys, without memory for its weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    keys = dict(SMALL[name])
    config = transformers.AutoConfig.for_model(**keys)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    wanted = sum(parameter.numel() for parameter in model.parameters())
    # What balances DeepSeek-V3's experts is a buffer there, and in its checkpoint.
    wanted += sum(b.numel() for key, b in model.named_buffers() if key.endswith("e_score_correction_bias"))
    assert parameters(from_config(keys, name)) == wanted


def test_every_type_is_tried() -> None:
    assert {keys["model_type"] for keys in [*SMALL.values(), *PRESETS.values()]} == set(READERS)


def test_a_file_and_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "mine" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**LLAMA, "torch_dtype": "bfloat16", "architectures": ["LlamaForCausalLM"]}))
    found = read_config(path)
    assert found == read_config(path.parent)
    assert (found.name, found.kv_heads, found.head_size) == ("mine", 4, 16)


def test_windows_are_where_the_model_has_them() -> None:
    gemma = from_config(SMALL["gemma2"] | {"sliding_window": 8}, "gemma2")
    assert [gemma.window_of(block) for block in range(4)] == [8, None, 8, None]
    gemma = from_config(SMALL["gemma3_text"] | {"sliding_window": 8, "sliding_window_pattern": 3}, "gemma3")
    assert [gemma.window_of(block) for block in range(4)] == [8, 8, None, 8]
    mistral = from_config(SMALL["mistral"], "mistral")
    assert [mistral.window_of(block) for block in range(2)] == [16, 16]
    assert from_config(SMALL["qwen2"] | {"sliding_window": 8}, "qwen2").window is None


def test_experts_are_where_the_model_has_them() -> None:
    every_second = from_config(SMALL["qwen2_moe"] | {"num_hidden_layers": 4}, "qwen2_moe")
    assert [every_second.has_experts(block) for block in range(4)] == [False, True, False, True]
    after_the_first = from_config(SMALL["deepseek_v2"] | {"num_hidden_layers": 3}, "deepseek_v2")
    assert [after_the_first.has_experts(block) for block in range(3)] == [False, True, True]


def test_a_vision_model_of_a_newer_release_has_its_text_in_a_table() -> None:
    keys = dict(PRESETS["qwen2-vl-7b"])
    vision = keys.pop("vision_config")
    nested = {"model_type": "qwen2_vl", "vision_config": vision, "text_config": keys}
    assert from_config(nested, "qwen2-vl-7b") == preset("qwen2-vl-7b")
    assert from_config({**nested, "tie_word_embeddings": True}, "qwen2-vl-2b").tied


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("mistral", "num_key_value_heads"), ("mixtral", "num_key_value_heads"), ("qwen2", "num_key_value_heads"),
        ("qwen3", "head_dim"), ("qwen3", "num_key_value_heads"), ("qwen3_moe", "num_key_value_heads"),
        ("gemma", "head_dim"), ("gemma2", "head_dim"), ("gemma3_text", "num_key_value_heads"),
        ("glm4_moe", "num_key_value_heads"), ("starcoder2", "num_key_value_heads"), ("deepseek_v2", "q_lora_rank"),
        ("deepseek_v3", "n_shared_experts"), ("deepseek_v3", "first_k_dense_replace"),
    ],
)  # fmt: skip
def test_a_key_whose_default_is_the_types_own_must_be_there(name: str, key: str) -> None:
    """Without it transformers builds another model than one would guess; where the key is null, none is guessed."""
    keys = {each: value for each, value in SMALL[name].items() if each != key}
    with pytest.raises(InputError, match=f"here: {key}: missing; .*a model of type {name} needs it; add {key}"):
        from_config(keys, "small", "here")
    from_config({**keys, key: None}, "small", "here")


def test_a_model_around_a_known_one_is_told_apart() -> None:
    keys = {"model_type": "gemma3", "text_config": SMALL["gemma3_text"]}
    with pytest.raises(InputError, match=r"model_type = 'gemma3': not known; its text_config is of type gemma3_text"):
        from_config(keys, "small", "here")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_type": "lama"}, r"here: model_type = 'lama': not known; did you mean llama\? known are llama, "),
        ({"model_type": None}, r"here: model_type = None: not known; known are llama"),
        ({"model_type": ["llama"]}, r"here: model_type = \['llama'\]: not known"),
        ({"hidden_size": None}, r"here: hidden_size: missing; a model of type llama needs it; add hidden_size"),
        ({"hidden_size": "64"}, r"here: hidden_size = '64': must be a whole number"),
        ({"hidden_size": 64.0}, r"here: hidden_size = 64\.0: must be a whole number"),
        ({"hidden_size": True}, r"here: hidden_size = True: must be a whole number"),
        ({"hidden_size": 0}, r"here: hidden_size = 0: must be a whole number from 1"),
        ({"hidden_size": 66}, r"here: hidden_size = 66: not a multiple of num_attention_heads = 4; .*head_dim"),
        ({"hidden_size": 66, "head_dim": None}, r"here: hidden_size = 66: not a multiple"),
        ({"num_key_value_heads": 0}, r"here: num_key_value_heads = 0: must be a whole number from 1"),
        ({"num_key_value_heads": 3}, r"here: 4 heads cannot share 3 heads of keys evenly"),
        ({"num_hidden_layers": -1}, r"here: num_hidden_layers = -1: must be a whole number from 1"),
        ({"num_hidden_layers": 10**7}, r"here: layers = 10000000: must be a whole number from 1 to 10000"),
        ({"hidden_size": 2**40}, r"here: hidden = 1099511627776: must be a whole number from 1 to 1000000000"),
        ({"tie_word_embeddings": "yes"}, r"here: tie_word_embeddings = 'yes': must be true or false"),
        ({"model_type": "gpt2"}, r"here: n_embd: missing; a model of type gpt2 needs it"),
        (
            {"model_type": "gpt2", "n_embd": 10, "n_head": 4, "n_layer": 1, "n_positions": 8},
            r"here: n_embd = 10: not a multiple of n_head = 4",
        ),
        ({"model_type": "qwen2_vl"}, r"here: vision_config: missing; a model of type qwen2_vl needs it"),
        ({"model_type": "qwen2_vl", "vision_config": 3}, r"here: vision_config: must be a table of keys"),
        ({"model_type": "qwen2_vl", "vision_config": {}}, r"here: vision_config: embed_dim: missing; .* needs it"),
        (SMALL["qwen3_moe"] | {"mlp_only_layers": [0]}, r"here: mlp_only_layers: must be empty"),
        (SMALL["qwen3_moe"] | {"mlp_only_layers": 3}, r"here: mlp_only_layers = 3: must be a list"),
        (SMALL["mixtral"] | {"num_experts_per_tok": 9}, r"experts\.chosen = 9: must be at most experts\.count = 4"),
        (SMALL["deepseek_v2"] | {"moe_layer_freq": 2}, r"here: moe_layer_freq: must be 1"),
        (SMALL["deepseek_v2"] | {"kv_lora_rank": 0}, r"here: kv_lora_rank = 0: must be a whole number from 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_place_and_remedy(keys: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_config({**LLAMA, **keys}, "small", "here")


def test_a_missing_key_near_one_that_is_there() -> None:
    keys = {"hidden_sizes" if key == "hidden_size" else key: value for key, value in LLAMA.items()}
    with pytest.raises(InputError, match=r"here: hidden_size: missing; did you mean it by hidden_sizes\?"):
        from_config(keys, "small", "here")


def test_a_switch_must_be_one() -> None:
    with pytest.raises(InputError, match=r"^gated = 1: must be true or false"):
        Architecture("tiny", 1, 8, 2, 2, 4, 16, 100, gated=1)  # type: ignore[arg-type]  # as a careless caller would
