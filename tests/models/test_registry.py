"""Models by name: what is built, and what a refusal says."""

from __future__ import annotations

import subprocess
import sys

import pytest

import adaptpipe.models
from adaptpipe.models import GPTConfig, MLPConfig, build
from adaptpipe.solver import InputError

GPT_KEYS: dict[str, object] = {"layers": 2, "width": 8, "heads": 2, "sequence": 16}
MLP_KEYS: dict[str, object] = {"layers": 2, "width": 8, "inputs": 4}


def test_kinds() -> None:
    assert build("gpt", **GPT_KEYS) == GPTConfig(2, 8, 2, 16, vocab=256, mlp_ratio=4)
    assert build("mlp", **MLP_KEYS, activation="relu", norm=False) == MLPConfig(2, 8, 4, 256, "relu", False)


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    [
        ("gtp", GPT_KEYS, r"model.kind = 'gtp': unknown; use one of gpt, mlp"),
        (["gpt"], GPT_KEYS, r"model.kind = \['gpt'\]: unknown; use one of gpt, mlp"),
        ("gpt", {**GPT_KEYS, "layer": 3}, r"model.layer: unknown for kind \"gpt\"; did you mean layers\? legal keys: "),
        (
            "gpt",
            {**GPT_KEYS, "inputs": 3},
            r"model.inputs: unknown .*legal keys: layers, width, heads, sequence, vocab",
        ),
        ("mlp", {**MLP_KEYS, "kind": "mlp"}, r"model.kind: unknown for kind \"mlp\""),
        (
            "gpt",
            {"layers": 2, "width": 8, "sequence": 4},
            r"model.heads: missing; kind \"gpt\" needs layers, width, he",
        ),
        ("gpt", {**GPT_KEYS, "tied": 1}, r"model.tied = 1: must be true or false"),
        ("gpt", {**GPT_KEYS, "split_blocks": 1}, r"model.split_blocks = 1: must be true or false"),
        ("gpt", {**GPT_KEYS, "layers": 0}, r"model.layers = 0: must be a whole number from 1"),
        ("gpt", {**GPT_KEYS, "layers": "2"}, r"model.layers = '2': must be a whole number"),
        ("gpt", {**GPT_KEYS, "sequence": 2.0}, r"model.sequence = 2.0: must be a whole number"),
        ("gpt", {**GPT_KEYS, "vocab": True}, r"model.vocab = True: must be a whole number"),
        (
            "gpt",
            {**GPT_KEYS, "width": 9},
            r"model.width = 9: not a multiple of model.heads = 2; use a width of 8 or 10",
        ),
        ("gpt", {**GPT_KEYS, "heads": 9}, r"model.width = 8: not a multiple of model.heads = 9; use a width of 9, or"),
        ("mlp", {**MLP_KEYS, "inputs": -1}, r"model.inputs = -1: must be a whole number from 1"),
        ("mlp", {**MLP_KEYS, "activation": "gleu"}, r"model.activation = 'gleu': unknown; use one of gelu, relu, silu"),
        ("mlp", {**MLP_KEYS, "activation": ["relu"]}, r"model.activation = \['relu'\]: unknown"),
        ("mlp", {**MLP_KEYS, "norm": "no"}, r"model.norm = 'no': must be true or false"),
    ],
)
def test_refusals_name_the_key(kind: str, keys: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(kind, **keys)


def test_planning_needs_no_torch() -> None:
    code = (
        "import sys; from adaptpipe.models import build, split_layers, describe_split;"
        "config = build('gpt', layers=2, width=8, heads=2, sequence=16);"
        "describe_split(config, split_layers(4, 2)); assert 'torch' not in sys.modules, 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_public_name_resolves() -> None:
    for name in adaptpipe.models.__all__:
        assert getattr(adaptpipe.models, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        getattr(adaptpipe.models, "absent")  # noqa: B009
