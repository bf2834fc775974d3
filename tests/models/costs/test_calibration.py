"""What is measured of one model prices others on the same device."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from adaptpipe.models import GPTConfig, MLPConfig
from adaptpipe.models.clusters.device import Achieved
from adaptpipe.models.costs import PROCESSOR, SINGLE, Architecture, architecture_of, calibrate, layers, parameters
from adaptpipe.solver import InputError, Measurement, Part, Profile

TRUTH = replace(PROCESSOR, achieved=Achieved(0.31, 0.17, 0.11, 0.4), op_s=3e-5)


def _gpt(width: int, sequence: int) -> Architecture:
    return architecture_of(GPTConfig(layers=2, width=width, heads=4, sequence=sequence))


def _measured(width: int, sequence: int, sizes: tuple[int, ...] = (1, 2, 4), **keys: Any) -> Profile:
    """As if on a machine that is as the formulas say, but slower in places."""
    profile, _ = layers(_gpt(width, sequence), TRUTH, sequence=sequence, sizes=sizes, recipe=SINGLE, **keys)

    def slower(part: Part, m: Measurement) -> Measurement:
        head = 1.3 if part.kind == "head" else 1.0
        return replace(
            m,
            forward_s=m.forward_s * head + 2e-4,
            backward_input_s=m.backward_input_s * head + 1e-4,
            activation=round(m.activation * 1.1),
        )

    return replace(
        profile,
        parts=tuple(replace(p, measurements=tuple(slower(p, m) for m in p.measurements)) for p in profile.parts),
    )


def test_prices_of_another_width_length_and_size() -> None:
    calibration = calibrate(
        [(_gpt(128, 64), 64, _measured(128, 64)), (_gpt(256, 128), 128, _measured(256, 128))], PROCESSOR
    )
    wanted = _measured(512, 256, (3,))
    found, _ = layers(
        _gpt(512, 256), PROCESSOR, sequence=256, sizes=(3,), recipe=SINGLE, calibration=calibration
    )  # fmt: skip
    assert found.op_s == pytest.approx(3e-5)
    for a, b in zip(found.parts, wanted.parts, strict=True):
        (x,), (y,) = a.measurements, b.measurements
        for field in ("forward_s", "backward_input_s", "backward_weight_s", "activation", "retained"):
            assert getattr(x, field) == pytest.approx(getattr(y, field), rel=0.02, abs=1e-9)


def test_a_faithful_profile_changes_nothing() -> None:
    model = _gpt(128, 64)
    profile, _ = layers(model, TRUTH, sequence=64, sizes=(1, 2), recipe=SINGLE)
    calibration = calibrate([(model, 64, profile)], PROCESSOR)
    again, _ = layers(model, PROCESSOR, sequence=64, sizes=(1, 2), recipe=SINGLE, calibration=calibration)
    for a, b in zip(again.parts, profile.parts, strict=True):
        for x, y in zip(a.measurements, b.measurements, strict=True):
            assert x.forward_s == pytest.approx(y.forward_s, rel=0.01)
            assert (x.activation, x.retained) == (y.activation, y.retained)


@pytest.mark.parametrize("seed", range(5))
def test_no_speed_and_no_fixed_time_is_below_nothing(seed: int) -> None:
    """Whatever a noisy machine measures."""
    random = Random(seed)
    profile = _measured(64, 32)

    def noisy(m: Measurement) -> Measurement:
        times = {key: getattr(m, key) * random.lognormvariate(0, 1) for key in ("forward_s", "backward_input_s")}
        return replace(m, **times)

    parts = tuple(replace(p, measurements=tuple(map(noisy, p.measurements))) for p in profile.parts)
    found = calibrate([(_gpt(64, 32), 32, replace(profile, parts=parts))], PROCESSOR)
    assert min(min((*each.factors, *each.fixed_s)) for each in found.corrections) >= 0
    assert 0 < found.achieved.elementwise <= 1


def test_halves_of_a_block_are_corrected_as_the_block_was() -> None:
    model = _gpt(128, 64)
    calibration = calibrate([(model, 64, _measured(128, 64))], PROCESSOR)
    keys: dict[str, Any] = {"sequence": 64, "sizes": (2,), "recipe": SINGLE, "calibration": calibration}
    whole = layers(model, PROCESSOR, **keys)[0].parts[1].measurements[0]
    halves = [part.measurements[0] for part in layers(model, PROCESSOR, split_layers=True, **keys)[0].parts[1:3]]
    for field in ("forward_s", "backward_input_s", "backward_weight_s", "activation"):
        assert sum(getattr(half, field) for half in halves) == pytest.approx(getattr(whole, field), rel=1e-5)


def test_one_size_is_too_few() -> None:
    with pytest.raises(InputError, match=r"one micro-batch size at one length, .*; measure two sizes at least"):
        calibrate([(_gpt(128, 64), 64, _measured(128, 64, (2,)))], PROCESSOR)


def test_a_profile_of_another_model_is_refused() -> None:
    with pytest.raises(InputError, match="the profile has 6 layers, gpt has 4, and they differ from layer 1 on"):
        calibrate([(_gpt(128, 64), 64, _measured(128, 64, split_layers=True))], PROCESSOR)


@pytest.mark.parametrize("tied", [False, True])
def test_a_gpt_of_a_run_file_has_the_parameters_that_it_says(tied: bool) -> None:
    config = GPTConfig(layers=3, width=24, heads=4, sequence=10, vocab=50, mlp_ratio=3, tied=tied)
    assert parameters(architecture_of(config)) == sum(config.layer_parameters) - (50 * 24 if tied else 0)


def test_a_decoder_of_transformers_has_the_parameters_that_it_says() -> None:
    pytest.importorskip("transformers")
    from adaptpipe.models import build

    config = build("hf", family="qwen3", sequence=16, num_hidden_layers=2, hidden_size=32, vocab_size=99)
    assert parameters(architecture_of(config)) == sum(config.layer_parameters)


def test_an_mlp_has_no_formula() -> None:
    with pytest.raises(InputError, match="MLPConfig: no decoder, so no formula prices its layers; measure them"):
        architecture_of(MLPConfig(layers=1, width=8, inputs=4))
