"""Seconds and bytes of layers: against published formulas, an assumed H100, and by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adaptpipe.models.clusters.device import DEVICES
from adaptpipe.models.costs import Architecture, layers, preset
from adaptpipe.solver import Part

H100 = replace(DEVICES["h100"], flops=989e12)

# Prices that a study assumed for one sample: microseconds of F, I, W with their fixed parts, megabytes after F and
# after I, megabytes of weights, gradients and optimizer state, bytes of the message. The study took Gemma without its
# post-norms and with 256,128 tokens.
STUDY: dict[str, tuple[str, int, dict[str, Any], dict[str, tuple[float, ...]]]] = {
    "llama2-7b": (
        "llama2-7b", 4096, {"dp": 1},
        {"embedding": (55.1, 11.7, 55.1, 0, 0, 2359.3, 33554432),
         "block": (3769.5, 4687.8, 3067.8, 538.97, 538.97, 3642.75, 33554432),
         "head": (2535.7, 2431.3, 1994.0, 557.84, 329.25, 2359.3, 0)},
    ),
    "llama3-8b": (
        "llama3-8b", 8192, {"dp": 2},
        {"embedding": (95.1, 18.4, 95.1, 0, 0, 6304.04, 67108864),
         "block": (8801.9, 12163.1, 6589.4, 1140.85, 1140.85, 2617.25, 67108864),
         "head": (20045.1, 19208.8, 15843.4, 4269.8, 2235.56, 6304.04, 0)},
    ),
    "gemma2-9b": (
        "gemma2-9b", 4096, {"dp": 2},
        {"embedding": (50.1, 10.8, 50.1, 0, 0, 11015.55, 29360128),
         "block": (3705.5, 4623.4, 3004.6, 566.23, 566.23, 2378.17, 29360128),
         "head": (18040.2, 17205.1, 13844.7, 4225.76, 2156.92, 11015.55, 0)},
    ),
    "gemma2-27b": (
        "gemma2-27b", 4096, {"dp": 4},
        {"embedding": (60.1, 12.5, 60.1, 0, 0, 10622.14, 37748736),
         "block": (9508.8, 10557.0, 8547.6, 1161.82, 1161.82, 5096.08, 37748736),
         "head": (21990.2, 21155.0, 17794.6, 4234.15, 2173.7, 10622.14, 0)},
    ),
    "llama3-70b, 8 devices": (
        "llama3-70b", 8192, {"dp": 4, "tp": 8},
        {"embedding": (35.0, 8.3, 35.0, 0, 0, 1182.01, 16777216),
         "block": (5142.7, 5989.6, 3241.5, 281.02, 281.02, 962.59, 16777216),
         "head": (4518.6, 4414.0, 3975.8, 542.11, 296.22, 1182.01, 0)},
    ),
}  # fmt: skip


def _study_model(name: str) -> Architecture:
    model = preset(name)
    return replace(model, post_norms=False, vocab=256128) if name.startswith("gemma") else model


def _first(name: str, sequence: int, keys: dict[str, Any]) -> dict[str, Part]:
    parts = layers(_study_model(name), H100, sequence=sequence, sizes=(1,), **keys)[0].parts
    return {part.kind: part for part in reversed(parts)}


@pytest.mark.parametrize("case", STUDY)
def test_prices_are_those_of_the_study(case: str) -> None:
    name, sequence, keys, wanted = STUDY[case]
    found = _first(name, sequence, keys)
    hidden_mb = sequence * preset(name).hidden * 2 / keys.get("tp", 1) / 1e6
    for kind, (forward, backward_input, weight, activation, retained, static, message) in wanted.items():
        part = found[kind]
        m = part.measurements[0]
        assert m.forward_s * 1e6 == pytest.approx(forward, rel=0.005)
        # The study's embedding takes a moment to pass its gradient on.
        assert m.backward_input_s * 1e6 == pytest.approx(
            backward_input, rel=0.005, abs=15 if kind == "embedding" else 0
        )
        assert m.backward_weight_s * 1e6 == pytest.approx(weight, rel=0.005)
        # The study's head holds one hidden state after F and two after I; in torch it is two, then one.
        slack = hidden_mb if kind == "head" else 0.0
        assert m.activation / 1e6 == pytest.approx(activation + slack, rel=0.01)
        assert m.retained / 1e6 == pytest.approx(retained - slack, rel=0.01)
        assert part.static / 1e6 == pytest.approx(static, rel=0.001)
        assert m.message == message
