"""A stage has the weights, names, outputs and gradients that its layers have in transformers' own model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import backward

from adaptpipe.models import build_full, build_stage, next_byte_loss, parameter_count
from adaptpipe.models.hf import FAMILIES, DecoderConfig
from adaptpipe.solver import InputError

from .decoders import DECODERS, decoder, own_model, stages_of

PARTS = (range(0, 2), range(2, 3), range(3, 5))  # of three blocks: none but the first stage begins with the embedding
HALVES = (range(0, 2), range(2, 4), range(4, 5), range(5, 8))
"""The same with attention and MLP apart: MLP and attention of two blocks, an MLP alone, a whole block and the head."""


def tokens(length: int = 12, samples: int = 3) -> Tensor:
    return torch.randint(23, (samples, length), generator=torch.Generator().manual_seed(length))


def loaded(model: nn.Module, stages: list[nn.Module]) -> None:
    """Give stages a model's weights, by name."""
    state = model.state_dict()
    for stage in stages:
        stage.load_state_dict({key: state[key] for key in stage.state_dict()})


def chained(stages: list[nn.Module], x: Tensor) -> Any:
    for stage in stages:
        x = stage(x)
    return x


def test_every_family_is_tried() -> None:
    assert {decoder(name).family.name for name in DECODERS} == set(FAMILIES)


@pytest.mark.parametrize("halves", [False, True], ids=["blocks", "halves"])
@pytest.mark.parametrize("name", DECODERS)
def test_stages_compute_what_the_model_of_transformers_does(name: str, halves: bool) -> None:
    """Names, order of names and shapes of its state dict, which stages load; logits and gradients."""
    config = decoder(name, split_blocks=halves)
    model, stages = own_model(config), stages_of(config, HALVES if halves else PARTS)
    merged: dict[str, Tensor] = {}
    for stage in stages:
        assert merged.keys().isdisjoint(stage.state_dict())
        merged |= stage.state_dict()
    expected_shapes = [(key, value.shape) for key, value in model.state_dict().items()]
    found_shapes = [(key, value.shape) for key, value in merged.items()]
    assert found_shapes == expected_shapes or (halves and sorted(found_shapes) == sorted(expected_shapes))
    loaded(model, stages)
    for length in (12, 5, 20, 1):  # lengths that were not built for, too
        x = tokens(length)
        expected, actual = model(x, use_cache=False).logits, chained(stages, x)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
        backward(next_byte_loss(expected, x.roll(-1, 1)))
        backward(next_byte_loss(actual, x.roll(-1, 1)))
        found = {key: weight.grad for stage in stages for key, weight in stage.named_parameters()}
        for key, weight in model.named_parameters():
            torch.testing.assert_close(found[key], weight.grad, rtol=1e-4, atol=1e-6, msg=f"{key} at {length} tokens")


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3"])
def test_weights_do_not_depend_on_the_split_or_the_global_random_state(name: str) -> None:
    config = decoder(name)
    before = torch.random.get_rng_state()
    full = build_full(config, 5).state_dict()
    torch.manual_seed(1)
    merged = {key: value for stage in stages_of(config, PARTS) for key, value in stage.state_dict().items()}
    torch.random.set_rng_state(before)
    again = build_full(config, 5).state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert list(merged) == list(full)
    for key, value in full.items():
        assert torch.equal(merged[key], value), key
        assert torch.equal(again[key], value), key
    for stage in stages_of(decoder(name, split_blocks=True), HALVES):
        assert all(torch.equal(value, full[key]) for key, value in stage.state_dict().items())
    other = build_full(config, 6).state_dict()
    matrices = [value for state in (full, other) for value in state.values() if value.dim() == 2]
    for number, matrix in enumerate(matrices):  # each layer and seed has its own
        assert not any(torch.equal(matrix, before) for before in matrices[:number])


@pytest.mark.parametrize("name", ["gpt2", "qwen2"])
def test_initial_weights_are_spread_as_transformers_spreads_them(name: str) -> None:
    wide: dict[str, Any] = {"n_embd": 64} if name == "gpt2" else {"hidden_size": 64, "intermediate_size": 96}
    config = decoder(name, **wide)
    torch.manual_seed(0)
    model = own_model(config)
    ours = build_full(config, 5).state_dict()
    for key, weight in model.state_dict().items():
        assert ours[key].std(correction=0).item() == pytest.approx(weight.std(correction=0).item(), rel=0.15), key
        assert ours[key].mean().item() == pytest.approx(weight.mean().item(), abs=0.01), key


@pytest.mark.parametrize("halves", [False, True], ids=["blocks", "halves"])
@pytest.mark.parametrize("name", DECODERS)
def test_parameters_are_counted_right(name: str, halves: bool) -> None:
    config = decoder(name, split_blocks=halves)
    for layer, count in enumerate(config.layer_parameters):
        assert parameter_count(build_stage(config, 0, range(layer, layer + 1))) == count
    assert sum(config.layer_parameters) == parameter_count(own_model(config))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_tied_head_begins_with_the_embedding(name: str) -> None:
    config = decoder(name, tie_word_embeddings=True)
    assert config.tied
    assert not decoder(name).tied
    model, whole = own_model(config), build_full(config, 5)
    assert list(model.state_dict()) == list(whole.state_dict())
    assert parameter_count(model) == parameter_count(whole)
    stages = stages_of(config, PARTS)
    last = stages_of(decoder(name, split_blocks=True, tie_word_embeddings=True), HALVES)[-1]
    matrix = whole.state_dict()["lm_head.weight"]
    assert torch.equal(last.state_dict()["lm_head.weight"], matrix)
    first = f"{config.family.body}.{config.family.tokens}.weight"
    assert whole.get_parameter("lm_head.weight") is whole.get_parameter(first)
    assert torch.equal(stages[0].state_dict()[first], matrix)
    assert torch.equal(stages[-1].state_dict()["lm_head.weight"], matrix)
    loaded(model, [whole])
    torch.testing.assert_close(whole(tokens()), model(tokens(), use_cache=False).logits)


@pytest.mark.parametrize("name", ["llama", "qwen2-sliding-eager"])
def test_an_evaluation_in_inference_mode_leaves_nothing_that_training_cannot_use(name: str) -> None:
    stage = build_full(decoder(name), 0)
    with torch.inference_mode():
        stage(tokens(7))
    backward(stage(tokens(7)).sum())
    assert all(parameter.grad is not None for parameter in stage.parameters())


def test_tables_follow_the_hidden_state() -> None:
    stage = build_full(decoder("qwen2-sliding-eager"), 0)
    kept = [buffer.data_ptr() for buffer in stage.buffers()]
    single = stage(tokens())
    assert [buffer.data_ptr() for buffer in stage.buffers()] == kept  # at the length that it is built for
    for parameter in stage.parameters():  # and not the buffers
        parameter.data = parameter.data.bfloat16()
    half = stage(tokens())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), single, rtol=0.1, atol=0.05)


def test_attention_and_mlp_apart_are_layers_of_their_own() -> None:
    config = decoder("qwen2-sliding", split_blocks=True)
    assert config.layer_names[:3] == ("embedding", "attention 0", "mlp 0")
    assert config.layer_sorts[1:5] == ("attention", "mlp", "attention, window 4", "mlp")
    assert decoder("llama", split_blocks=True, tie_word_embeddings=True).ties[0][1] == (7, "lm_head.weight")
    with pytest.raises(InputError, match=r"model\.split_blocks = 1: must be true or false"):
        DecoderConfig(config.settings, 12, 1)  # type: ignore[arg-type]  # as a run file in Python might


def test_longer_samples_than_positions_are_refused() -> None:
    for name in ("gpt2", "llama"):
        with pytest.raises(InputError, match=r"input of 21 tokens: the model has 20 positions; cut it, or build with"):
            build_full(decoder(name), 0)(tokens(21))


@pytest.mark.parametrize("layers", [range(0), range(4, 6), range(0, 4, 2)])
def test_a_stage_is_a_contiguous_part_of_the_model(layers: range) -> None:
    with pytest.raises(InputError, match=r"layers of a stage = range.*contiguous part of range\(0, 5\)"):
        build_stage(decoder("llama"), 0, layers)
