"""Configurations of decoders: what is read, and what a refusal says."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from adaptpipe.models import build, load_text, training_batches
from adaptpipe.models.hf import DecoderConfig, read_decoder
from adaptpipe.models.hf.families import import_transformers
from adaptpipe.solver import InputError

from .decoders import DECODERS, SEQUENCE, decoder

LLAMA: dict[str, object] = {key: value for key, value in DECODERS["llama"].items() if key != "model_type"}
KEYS: dict[str, object] = {**LLAMA, "family": "llama", "sequence": SEQUENCE}


def test_ways_to_the_same_model(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**DECODERS["llama"], "torch_dtype": "bfloat16", "nobody_knows": 1, "vocab_size": 99}))
    settings = import_module("transformers").LlamaConfig(**LLAMA)
    before = deepcopy(settings.__dict__)
    configs = [
        decoder("llama"),
        DecoderConfig(settings, SEQUENCE),
        read_decoder(path, sequence=SEQUENCE, vocab_size=23),
        build("hf", **KEYS),
        build("hf", config=str(path), sequence=SEQUENCE, vocab_size=23),
    ]
    assert settings.__dict__ == before
    for config in configs:
        assert isinstance(config, DecoderConfig)
        assert config.layer_names == ("embedding", "block 0", "block 1", "block 2", "head")
        assert config.layer_parameters == configs[0].layer_parameters
        assert (config.vocab, config.sequence, config.family.name) == (23, SEQUENCE, "llama")


def test_the_way_of_attention_is_settled() -> None:
    assert decoder("llama").settings._attn_implementation == "sdpa"
    assert decoder("llama-eager").settings._attn_implementation == "eager"


def test_aliases_are_keys_too() -> None:
    config = build("hf", family="gpt2", sequence=8, hidden_size=16, num_attention_heads=2, num_hidden_layers=1)
    assert isinstance(config, DecoderConfig)
    assert config.settings.n_embd == 16
    assert config.blocks == 1


def test_a_decoder_trains_on_bytes_if_it_knows_them() -> None:
    inputs, target = next(training_batches(decoder("llama", vocab_size=256), load_text(), samples=2, seed=0))
    assert inputs.shape == target.shape == (2, SEQUENCE)
    with pytest.raises(InputError, match=r"model.vocab_size = 23: the text has the byte \d+; use 256 for any text"):
        training_batches(decoder("llama"), load_text(), samples=2, seed=0)


def test_dropouts_are_told() -> None:
    assert decoder("llama").dropouts == {}
    assert decoder("llama", attention_dropout=0.5).dropouts == {"attention_dropout": 0.5}
    assert decoder("gpt2", resid_pdrop=0.1, attn_pdrop=0.2).dropouts == {"resid_pdrop": 0.1, "attn_pdrop": 0.2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"family": None},
            r'model: kind "hf" needs either config = "…/config.json", or family = \'gpt2\' or',
        ),
        ({"config": "config.json"}, r'model: kind "hf" needs either config'),
        ({"family": "lama"}, r"model.family = 'lama': not a family that can be split; use one of gpt2, llama, mistral"),
        ({"family": ["llama"]}, r"model.family = \['llama'\]: not a family"),
        ({"sequence": None}, r'model.sequence: missing; kind "hf" needs the tokens of a sample'),
        ({"split_blocks": "yes"}, r"model.split_blocks = 'yes': must be true or false"),
        ({"sequence": "12"}, r"model.sequence = '12': must be a whole number"),
        ({"sequence": True}, r"model.sequence = True: must be a whole number from 1 to the .*_embeddings, 20"),
        ({"sequence": 0}, r"model.sequence = 0: must be a whole number from 1 to the .*embeddings, 20"),
        ({"sequence": 21}, r"model.sequence = 21: must be a whole number from 1 to the .*max_position_embeddings, 20"),
        ({"hiden_size": 4}, r"model.hiden_size: not a key of a llama config; did you mean hidden_size\? leave it out"),
        ({"n_embd": 4}, r"model.n_embd: not a key of a llama config"),
        (
            {"hidden_size": "16"},
            r"model: transformers refuses this llama config: .*'hidden_size' expected int, got",
        ),
        (
            {"hidden_size": 18},
            r"refuses this llama config: .*hidden size \(18\) is not a multiple of the",
        ),
        ({"num_attention_heads": 0, "head_dim": None}, r"model: transformers refuses this llama config: "),
        ({"intermediate_size": -1}, r"model: transformers cannot build a llama of this config: RuntimeError: "),
        (
            {"hidden_act": "gleu"},
            r"model: transformers cannot build a llama of this config: KeyError: 'gleu'; ",
        ),
        ({"rope_parameters": {"rope_type": "none"}}, r"cannot build a llama of this config: KeyError: 'none'"),
        ({"num_hidden_layers": 0}, r"num_hidden_layers = 0: must be at least 1"),
        ({"attn_implementation": "flex_attention"}, r"attn_implementation = 'flex_attention': .* one of sdpa, eager"),
    ],
)
def test_refusals_of_a_run_files_keys(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build("hf", **{key: value for key, value in {**KEYS, **changes}.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"config.json: cannot be read: No such file"),
        ("{", r"config.json: broken JSON"),
        (
            '{"vocab_size": 3}',
            r"config.json: model_type = None: not a family that can be split; use one of gpt2, llama",
        ),
        ('{"model_type": "bert"}', r"config.json: model_type = 'bert': not a family"),
        ('{"model_type": "llama", "vocab_size": "x"}', r"config.json: transformers refuses this llama config: "),
        (
            '{"model_type": "llama", "is_causal": false}',
            r"is_causal = False: stages have causal masks; leave",
        ),
        ('{"model_type": "gpt2", "add_cross_attention": true}', r"add_cross_attention = True: a stage has no encoder"),
        (
            '{"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}}',
            r"quantization_config = .*: weights that are trained are not quantised; leave the key out",
        ),
        ('{"model_type": "mistral", "sliding_window": 0}', r"sliding_window = 0: must be at least 1, for a position"),
        (
            '{"model_type": "qwen3", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}',
            r"layer_types\[0\] = 'sliding_attention', and the config has no window; set use_sliding_window = true",
        ),
    ],
)
def test_refusals_of_a_file(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message):
        build("hf", config=str(path), sequence=4)


def test_a_config_is_a_files_name() -> None:
    with pytest.raises(InputError, match=r"model.config = 3: must be the name of a config.json"):
        build("hf", config=3, sequence=4)


def test_config_objects_of_other_families_are_refused() -> None:
    other: Any = import_module("transformers").BertConfig()
    for settings in (other, {"model_type": "llama"}):
        with pytest.raises(InputError, match=r"model_type = .*: not a family that can be split; use one of gpt2, lla"):
            DecoderConfig(settings, 4)


def test_missing_transformers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"transformers.* cannot be imported .*pip install 'adaptpipe\[hf\]'"):
        import_transformers("transformers.absent")


def test_knowing_the_families_needs_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from adaptpipe.models.hf import FAMILIES; assert 'llama' in FAMILIES;"
        "assert not {'torch', 'transformers'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
