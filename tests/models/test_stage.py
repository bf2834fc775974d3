"""A stage has the weights, names, outputs and gradients that its layers have in the unsplit model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import backward

from adaptpipe.models import (
    GPTConfig,
    MLPConfig,
    ModelConfig,
    build_full,
    build_stage,
    next_byte_loss,
    parameter_count,
    split_layers,
    static_bytes,
    tied_copies,
)
from adaptpipe.models.layer import Past
from adaptpipe.models.stage import SequenceStage
from adaptpipe.solver import InputError

GPT = GPTConfig(layers=4, width=16, heads=2, sequence=12)
MLP = MLPConfig(layers=4, width=16, inputs=5, outputs=7)
CONFIGS = [
    pytest.param(GPT, id="gpt"),
    pytest.param(GPTConfig(layers=4, width=6, heads=3, sequence=12, vocab=11, mlp_ratio=1), id="gpt-odd"),
    pytest.param(GPTConfig(layers=2, width=16, heads=2, sequence=12, split_blocks=True), id="gpt-halves"),
    pytest.param(MLP, id="mlp"),
    pytest.param(MLPConfig(layers=4, width=3, inputs=5, outputs=7, activation="tanh", norm=False), id="mlp-no-norm"),
]
SPLITS = [
    pytest.param(parts, id="-".join(str(len(part)) for part in parts))
    for parts in [split_layers(6, 2), split_layers(6, 4), split_layers(6, 6), (range(1), range(1, 5), range(5, 6))]
]


def batch_for(config: ModelConfig, samples: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    if isinstance(config, GPTConfig):
        tokens = torch.randint(config.vocab, (2, samples, config.sequence), generator=generator)
        return tokens[0], tokens[1]
    assert isinstance(config, MLPConfig)
    vectors = torch.randn(samples, config.inputs, generator=generator)
    return vectors, torch.randint(config.outputs, (samples,), generator=generator)


def stages_of(config: ModelConfig, parts: tuple[range, ...]) -> list[nn.Module]:
    # Last stage first: a stage must not depend on what was built before it.
    return [build_stage(config, 5, part) for part in reversed(parts)][::-1]


@pytest.mark.parametrize("parts", SPLITS)
@pytest.mark.parametrize("config", CONFIGS)
def test_stages_hold_the_unsplit_models_weights(config: ModelConfig, parts: tuple[range, ...]) -> None:
    full = build_full(config, 5).state_dict()
    merged: dict[str, Tensor] = {}
    for stage in stages_of(config, parts):
        assert merged.keys().isdisjoint(stage.state_dict())
        merged |= stage.state_dict()
    assert list(merged) == list(full)
    assert all(torch.equal(merged[key], full[key]) for key in full)


@pytest.mark.parametrize("parts", SPLITS)
@pytest.mark.parametrize("config", CONFIGS)
def test_chained_stages_give_the_unsplit_outputs_and_gradients(config: ModelConfig, parts: tuple[range, ...]) -> None:
    inputs, target = batch_for(config)
    full, stages = build_full(config, 5), stages_of(config, parts)
    expected = full(inputs)
    backward(next_byte_loss(expected, target))

    sent: list[tuple[Tensor, Tensor]] = []  # each boundary's tensor as its sender and its receiver have it
    x = inputs
    for stage in stages[:-1]:
        out = stage(x)
        x = out.detach().requires_grad_()
        sent.append((out, x))
    actual = stages[-1](x)
    backward(next_byte_loss(actual, target))
    for out, received in reversed(sent):
        backward(out, received.grad)

    assert torch.equal(actual, expected)
    found = {key: weight.grad for stage in stages for key, weight in stage.named_parameters()}
    for key, weight in full.named_parameters():
        grad = found[key]
        assert grad is not None, key
        assert weight.grad is not None, key
        assert torch.equal(grad, weight.grad), key
        assert weight.grad.abs().sum() > 0, f"{key} has no part in the output"


@pytest.mark.parametrize("parts", SPLITS)
@pytest.mark.parametrize("config", CONFIGS)
def test_parameters_of_the_stages_sum_to_the_models(config: ModelConfig, parts: tuple[range, ...]) -> None:
    """A model whose layers do not divide evenly was cut short in silence (NVIDIA/Megatron-LM#1304)."""
    stages = stages_of(config, parts)
    assert sum(map(parameter_count, stages)) == parameter_count(build_full(config, 5)) == sum(config.layer_parameters)
    for part, stage in zip(parts, stages, strict=True):
        assert parameter_count(stage) == sum(config.layer_parameters[part.start : part.stop])
        assert parameter_count(stage) == sum(weight.numel() for weight in stage.state_dict().values())


@pytest.mark.parametrize("tied", [False, True])
def test_attention_and_mlp_apart_are_the_same_model(tied: bool) -> None:
    whole = replace(GPT, tied=tied)
    halves = replace(whole, split_blocks=True)
    assert halves.layer_names[:4] == ("embedding", "attention 0", "mlp 0", "attention 1")
    assert halves.layer_sorts[2:4] == ("mlp", "attention")
    expected, found = build_full(whole, 5).state_dict(), build_full(halves, 5).state_dict()
    assert list(found) == list(expected)
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    half = build_stage(halves, 5, range(4, 6)).state_dict()  # MLP of one block, attention of the next
    assert {key.rpartition(".")[0] for key in half} == {
        f"layers.{name}" for name in ("2.norm2", "2.fc1", "2.fc2", "3.norm1", "3.qkv", "3.proj")
    }
    assert all(torch.equal(half[key], expected[key]) for key in half)
    parts = (range(2), range(2, 9), range(9, 10))
    assert tied_copies(halves, parts) == (
        (((0, "layers.0.tokens.weight"), (2, "layers.5.logits.weight")),) if tied else ()
    )
    last = build_stage(halves, 5, parts[2]).state_dict()
    assert torch.equal(last["layers.5.logits.weight"], expected["layers.5.logits.weight"])


def test_seeds_and_layers_differ() -> None:
    weights = [build_full(GPT, seed).state_dict()["layers.2.fc1.weight"] for seed in (0, 1, 2**32, -1)]
    weights.append(build_full(GPT, 0).state_dict()["layers.3.fc1.weight"])
    for i, weight in enumerate(weights):
        assert not any(torch.equal(weight, other) for other in weights[:i])


def test_initial_weights_have_the_stated_scale() -> None:
    config = GPTConfig(layers=8, width=64, heads=4, sequence=64)
    state = build_stage(config, 0, range(0, 2)).state_dict()
    assert state["layers.0.positions"].std().item() == pytest.approx(0.02, rel=0.1)
    assert state["layers.1.fc1.weight"].std().item() == pytest.approx(0.02, rel=0.1)
    assert state["layers.1.fc2.weight"].std().item() == pytest.approx(0.005, rel=0.1)
    assert state["layers.1.fc2.bias"].abs().max() == 0
    mlp = build_stage(MLPConfig(layers=1, width=100, inputs=25), 0, range(2)).state_dict()
    assert mlp["layers.0.fc.weight"].std().item() == pytest.approx(0.2, rel=0.1)
    assert mlp["layers.1.fc.weight"].std().item() == pytest.approx(0.1, rel=0.1)


def test_building_leaves_the_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    build_full(GPT, 5)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("layers", [range(0), range(3, 3), range(4, 7), range(-1, 2), range(0, 4, 2), range(3, 0, -1)])
def test_a_stage_is_a_contiguous_part_of_the_model(layers: range) -> None:
    with pytest.raises(InputError, match=r"layers of a stage = range.*contiguous part of range\(0, 6\)"):
        build_stage(GPT, 0, layers)


def test_later_bytes_do_not_change_earlier_logits() -> None:
    model = build_full(GPT, 0)
    inputs, _ = batch_for(GPT)
    changed = inputs.clone()
    changed[:, 8:] = (changed[:, 8:] + 1) % 256
    with torch.no_grad():
        torch.testing.assert_close(model(inputs)[:, :8], model(changed)[:, :8])
        assert not torch.allclose(model(inputs)[:, 8:], model(changed)[:, 8:])


def test_shorter_sequences_pass_and_longer_ones_are_refused() -> None:
    model = build_full(GPT, 0)
    assert model(torch.zeros(1, 5, dtype=torch.int64)).shape == (1, 5, 256)
    with pytest.raises(InputError, match=r"input of 13 bytes: the model has 12 positions; cut it, or .*sequence = 13"):
        model(torch.zeros(1, 13, dtype=torch.int64))


@pytest.mark.parametrize("cut", [[6, 6], [1, 4, 7], [11, 1]])
@pytest.mark.parametrize("config", CONFIGS[:3])
def test_slices_of_a_sequence_give_the_outputs_of_the_whole(config: GPTConfig, cut: list[int]) -> None:
    stages = [build_stage(config, 5, part).double() for part in split_layers(6, 2)]
    text = torch.randint(config.vocab, (2, 12), generator=torch.Generator().manual_seed(1))
    pasts: list[Past] = [()] * len(stages)
    outputs = []
    for x in torch.split(text, cut, 1):
        for number, stage in enumerate(stages):
            assert isinstance(stage, SequenceStage)
            x, pasts[number] = stage.forward_slice(x, pasts[number])
        outputs.append(x)
    torch.testing.assert_close(torch.cat(outputs, 1), nn.Sequential(*stages)(text))
    with pytest.raises(InputError, match="input of 13 bytes: the model has 12 positions"):
        build_full(config, 5).get_submodule("layers.0").forward_slice(text[:, :1], (12,))  # type: ignore[operator]


def test_layers_that_know_no_sequence_take_no_slices() -> None:
    assert not isinstance(build_full(MLP, 5), SequenceStage)


def test_norm_can_be_left_out_and_activations_differ() -> None:
    inputs, _ = batch_for(MLP)
    outputs = []
    for activation in ("gelu", "relu", "silu", "tanh"):
        config = MLPConfig(layers=1, width=16, inputs=5, outputs=7, activation=activation, norm=False)
        model = build_full(config, 0)
        assert not any("norm" in key for key in model.state_dict())
        outputs.append(model(inputs))
    assert not any(torch.equal(a, b) for i, a in enumerate(outputs) for b in outputs[:i])


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("config", CONFIGS)
def test_static_bytes_are_what_a_training_step_leaves(
    config: ModelConfig, optimizer: type[torch.optim.Adam] | type[torch.optim.AdamW]
) -> None:
    model = build_full(config, 0)
    for weight in model.get_submodule("layers.2").parameters():
        weight.requires_grad_(False)
    model.register_buffer("steps", torch.zeros(3))
    adam = optimizer(model.parameters())
    inputs, target = batch_for(config)
    backward(next_byte_loss(model(inputs), target))
    adam.step()
    held = [*model.parameters(), *model.buffers()]
    held += [weight.grad for weight in model.parameters() if weight.grad is not None]
    held += [value for state in adam.state.values() for value in state.values()]
    assert static_bytes(model) == sum(tensor.nbytes for tensor in held)


def test_static_bytes_count_a_shared_weight_once_and_follow_the_type() -> None:
    shared = nn.Linear(4, 4, bias=False)
    assert static_bytes(nn.Sequential(shared, shared)) == static_bytes(shared) == 4 * 64 + 4
    assert static_bytes(nn.Linear(4, 4, bias=False, dtype=torch.bfloat16)) == 4 * 32 + 4
    assert static_bytes(nn.ReLU()) == 0


@pytest.mark.parametrize("parts", [split_layers(4, 1), split_layers(4, 3)])
def test_tied_layers_share_one_matrix_or_have_equal_ones(parts: tuple[range, ...]) -> None:
    config = replace(GPT, layers=2, tied=True)
    names = tuple(name for _, name in config.ties[0])
    stages = stages_of(config, parts)
    copies = {name: stages[stage].get_parameter(name) for stage, name in tied_copies(config, parts)[0]}
    assert tuple(copies) == names
    first, second = copies.values()
    assert (first is second) == (len(parts) == 1)
    assert torch.equal(first, second)
    assert torch.equal(first, build_stage(GPT, 5, range(1)).get_parameter(names[0])), "the embedding's values"
    full = build_full(config, 5)
    assert set(full.state_dict()) == set(build_full(replace(config, tied=False), 5).state_dict())
    assert parameter_count(full) == sum(config.layer_parameters) - first.numel()
