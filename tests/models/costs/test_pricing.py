"""Seconds and bytes of layers: against published formulas, an assumed H100, and by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adaptpipe.models.clusters.device import DEVICES
from adaptpipe.models.costs import SINGLE, Architecture, busiest, layers, parameters, preset, sample_flops
from adaptpipe.models.costs.structure import structure
from adaptpipe.solver import InputError, Measurement, Part

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
        close = 0.018 if kind == "head" else 0.005  # its norm, which the study left out
        assert m.forward_s * 1e6 == pytest.approx(forward, rel=close)
        # The study's embedding takes a moment to pass its gradient on.
        assert m.backward_input_s * 1e6 == pytest.approx(
            backward_input, rel=close, abs=15 if kind == "embedding" else 0
        )
        assert m.backward_weight_s * 1e6 == pytest.approx(weight, rel=0.005)
        # The study's head holds one hidden state after F and two after I; in torch it is two, then one.
        slack = hidden_mb if kind == "head" else 0.0
        assert m.activation / 1e6 == pytest.approx(activation + slack, rel=0.01)
        assert m.retained / 1e6 == pytest.approx(retained - slack, rel=0.01)
        assert part.static / 1e6 == pytest.approx(static, rel=0.001)
        assert m.message == message


def test_attention_and_mlp_cut_a_block_in_two() -> None:
    """The study's halves of a Llama 3 8B block; it gave attention 45 % of what is no product, whatever it was."""
    whole = _first("llama3-8b", 8192, {"dp": 2})["block"].measurements[0]
    halves = _first("llama3-8b", 8192, {"dp": 2, "split_layers": True})
    attention, mlp = (halves[kind].measurements[0] for kind in ("attention", "mlp"))
    for field in ("forward_s", "backward_input_s", "backward_weight_s", "activation", "retained"):
        assert getattr(attention, field) + getattr(mlp, field) == pytest.approx(getattr(whole, field), rel=1e-6)
    for half, (forward, backward_input, weight, activation) in (
        (attention, (3143.0, 6330.3, 1273.3, 301.99)),
        (mlp, (5658.9, 5832.9, 5316.0, 838.86)),
    ):
        assert half.forward_s * 1e6 == pytest.approx(forward, rel=0.03)
        assert half.backward_input_s * 1e6 == pytest.approx(backward_input, rel=0.03)
        assert half.backward_weight_s * 1e6 == pytest.approx(weight, rel=0.001)
        assert half.activation / 1e6 == pytest.approx(activation, rel=0.01)


TINY = Architecture("tiny", layers=2, hidden=8, heads=2, kv_heads=1, head_size=4, ffn=16, vocab=100)


def _tiny(**keys: Any) -> dict[str, Part]:
    chosen: dict[str, Any] = {"sequence": 6, "sizes": (1, 3), "recipe": SINGLE, **keys}
    return {part.name: part for part in layers(chosen.pop("model", TINY), H100, **chosen)[0].parts}


def test_a_small_block_by_hand() -> None:
    """h = 8, q = 8, kv = 4, f = 16; 18 tokens; 4 bytes a number."""
    block = _tiny()["block 0"]
    parameters_ = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 16 + 2 * 8
    assert (block.parameters, block.static) == (parameters_, 16 * parameters_)
    m = block.measurements[1]
    product = 2 * 18 * (parameters_ - 2 * 8) / (989e12 * 0.55)
    attention = 3 * 4 * 8 * (6 * 6 / 2) / 989e12
    moved = 18 * 4 * (10 * 8 + 2 * (8 + 4) + 3 * 16) / (3.35e12 * 0.75)
    assert m.forward_s == pytest.approx(30e-6 + product + attention / 0.35 + moved)
    assert m.backward_input_s == pytest.approx(40e-6 + product + 2.5 * attention / 0.30 + 1.5 * moved)
    assert m.backward_weight_s == pytest.approx(20e-6 + product)
    assert m.backward_s == m.backward_input_s + m.backward_weight_s
    held = 4 * 8 + 2 * 8 + 2 * 4 + 3 * 16
    assert m.retained == 18 * 4 * held
    assert m.activation == 18 * 4 * (held + 2 + 2)  # two norms' and two heads' figures
    assert m.message == 18 * 4 * 8
    assert sum(m.unit_bytes) == m.retained
    assert block.unit_work == (16 * 8, 8 * 16, 8 * 16, 8 * 8, 8 * 4, 8 * 4, 8 * 8)  # the last first


def test_an_embedding_by_hand() -> None:
    """Where its gradient is part of I, a matrix as large as it is filled and added, whatever the micro-batch's size."""
    m = _tiny()["embedding"].measurements[1]
    speed = 3.35e12 * 0.75
    assert m.forward_s == pytest.approx(15e-6 + 18 * 3 * 8 * 4 / speed)
    assert m.backward_input_s == pytest.approx(20e-6 + (18 * 2 * 8 + 4 * 100 * 8) * 4 / speed)
    assert (m.backward_weight_s, m.activation, m.retained) == (0, 0, 0)


def test_learned_positions_are_no_rotary_ones() -> None:
    learned = _tiny(model=replace(TINY, positions=6))
    assert learned["embedding"].parameters == 106 * 8
    saved = _times(_tiny()["block 0"])[0] - _times(learned["block 0"])[0]
    assert saved == pytest.approx(18 * 2 * (8 + 4) * 4 / (3.35e12 * 0.75))


def test_a_tied_matrix_is_in_both_layers_and_can_be_taken_off_once() -> None:
    profile, ties = layers(replace(TINY, tied=True), H100, sequence=6, sizes=(1,), tp=2, dp=4)
    (tie,) = ties
    assert tie.layers == (0, 3)
    assert tie.static == 100 * 8 * (2 + 4 + 12 / 4) / 2 == profile.parts[0].static
    assert sum(part.parameters for part in profile.parts) - 100 * 8 == parameters(replace(TINY, tied=True))
    assert layers(TINY, H100, sequence=6, sizes=(1,))[1] == ()


def test_blocks_that_predict_further_share_embedding_and_head() -> None:
    model = preset("deepseek-v3")
    profile, ties = layers(model, H100, sequence=4096, sizes=(1,), dp=64, ep=64)
    assert [part.kind for part in profile.parts[-3:]] == ["block", "mtp", "head"]
    assert [tie.layers for tie in ties] == [(0, 62), (62, 63)]
    m = {part.kind: part.measurements[0] for part in profile.parts}
    assert m["mtp"].forward_s > m["block"].forward_s + m["head"].forward_s
    assert m["mtp"].message == m["block"].message


@pytest.mark.parametrize(
    ("sharded", "of"), [({"zero": 0, "dp": 4}, 18.0), ({"dp": 4}, 9.0), ({"dp": 1}, 18.0), ({"dp": 4, "tp": 2}, 4.5)]
)
def test_static_bytes_of_replicas(sharded: dict[str, int], of: float) -> None:
    profile, _ = layers(TINY, H100, sequence=6, sizes=(1,), **sharded)  # type: ignore[arg-type]  # mypy sees ints only
    assert [part.static for part in profile.parts] == [part.parameters * of for part in profile.parts]


def test_experts_are_divided_among_replicas() -> None:
    model = preset("mixtral-8x7b")
    one, four = (
        layers(model, H100, sequence=4096, sizes=(1,), dp=4, ep=ep, expert_imbalance=0.0)[0].parts[1] for ep in (1, 4)
    )
    experts = 8 * 3 * 4096 * 14336
    rest = one.parameters - experts
    assert one.static == rest * 9 + experts * 9
    assert four.static == rest * 9 + experts * (6 + 12) / 4
    exchanged = 0.5 * 4096 * 2 * 2 * 4096 * 2 * 3 / 4 / 350e9
    assert four.measurements[0].forward_s - one.measurements[0].forward_s == pytest.approx(exchanged)


def test_uneven_experts_cost_time_in_all_ops() -> None:
    model = preset("mixtral-8x7b")
    even, uneven = (
        layers(model, H100, sequence=4096, sizes=(1,), dp=8, ep=8, expert_imbalance=each)[0].parts[1].measurements[0]
        for each in (0.0, 0.3)
    )
    busy = 1.45  # of 8 experts that are chosen unevenly by 0.3, the busiest
    product = 2 * 4096 * 2 * 3 * 4096 * 14336 / (989e12 * 0.55)
    for field in ("forward_s", "backward_input_s", "backward_weight_s"):
        assert getattr(uneven, field) - getattr(even, field) == pytest.approx((busy - 1) * product, rel=0.05)


def test_uneven_experts_are_noise_too() -> None:
    mixed, _ = layers(preset("mixtral-8x7b"), H100, sequence=4096, sizes=(1,), dp=8, ep=8, expert_imbalance=0.3)
    _, spread = busiest(8, 8, 0.3)
    assert [part.uneven for part in mixed.parts if part.kind != "block"] == [0.0, 0.0]
    assert 0.5 * spread < mixed.parts[1].uneven < spread  # attention, norms and exchange are even
    for keys in ({"dp": 8, "ep": 8, "expert_imbalance": 0.0}, {"dp": 8}):
        profile, _ = layers(preset("mixtral-8x7b"), H100, sequence=4096, sizes=(1,), **keys)
        assert {part.uneven for part in profile.parts} == {0.0}


@pytest.mark.parametrize(
    "model", ["llama3-8b", "gemma2-9b", "deepseek-v2-lite", "mixtral-8x7b", "qwen2-vl-7b", "gpt3-xl"]
)
def test_recomputing_trades_bytes_for_time(model: str) -> None:
    none, selective, full = (
        {part.name: part for part in layers(preset(model), H100, sequence=2048, sizes=(1,), recompute=how)[0].parts}
        for how in ("none", "selective", "full")
    )
    for name, part in none.items():
        a, b, c = (each[name].measurements[0] for each in (none, selective, full))
        if part.kind in ("embedding", "head"):
            assert a == b == c
            continue
        assert a.activation > b.activation > c.activation > 0
        assert a.backward_input_s < b.backward_input_s < c.backward_input_s == a.backward_input_s + a.forward_s
        assert a.retained == b.retained == c.retained
        assert (a.transient, b.transient, c.transient) == (0, a.activation - b.activation, a.activation - c.activation)
        if part.kind == "block":
            assert c.activation == c.message  # its input only


def _times(part: Part) -> tuple[float, ...]:
    m: Measurement = part.measurements[-1]
    return m.forward_s, m.backward_input_s, m.backward_weight_s


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": 16}, {"ffn": 32}, {"heads": 4}, {"head_size": 8}, {"vocab": 200}, {"layer_norm": True},
        {"gated": False, "ffn": 32}, {"qk_norm": True}, {"post_norms": True}, {"kv_heads": 2},
    ],
)  # fmt: skip
def test_a_larger_model_costs_no_less(change: dict[str, Any]) -> None:
    small, large = _tiny(), _tiny(model=replace(TINY, **change))
    for name, part in small.items():
        assert all(a <= b for a, b in zip(_times(part), _times(large[name]), strict=True))
        assert part.static <= large[name].static
        assert part.measurements[-1].activation <= large[name].measurements[-1].activation
    assert sum(part.static for part in small.values()) < sum(part.static for part in large.values())


def test_a_window_saves_attention_where_it_is_and_nowhere_else() -> None:
    plain, windowed = _tiny(sequence=64), _tiny(sequence=64, model=replace(TINY, window=16, full_every=2))
    assert _times(windowed["block 0"]) < _times(plain["block 0"])
    assert windowed["block 1"] == plain["block 1"]
    assert _tiny(sequence=8, model=replace(TINY, window=16)) == _tiny(sequence=8)


def test_more_devices_share_a_layer_and_pay_for_it() -> None:
    one, four = (_first("llama3-8b", 8192, {"tp": tp})["block"] for tp in (1, 4))
    assert four.static == pytest.approx(one.static / 4, rel=1e-6)
    a, b = one.measurements[0], four.measurements[0]
    assert b.activation == pytest.approx(a.activation / 4, rel=1e-6)
    gathered = 4 * 8192 * 4096 * 2 * (3 / 4) / 350e9
    assert b.forward_s == pytest.approx((a.forward_s - 30e-6) / 4 + 30e-6 + gathered)
    assert b.backward_weight_s == pytest.approx((a.backward_weight_s - 20e-6) / 4 + 20e-6)


def test_a_mesh_is_as_fast_as_the_links_that_a_group_uses() -> None:
    """Of the 7 links of an MI300X, 2 devices use one each, 8 devices all."""
    two, eight = (
        layers(preset("llama3-8b"), DEVICES["mi300x"], sequence=8192, sizes=(1,), tp=tp)[0].parts[1].measurements[0]
        for tp in (2, 8)
    )
    one = layers(preset("llama3-8b"), DEVICES["mi300x"], sequence=8192, sizes=(1,))[0].parts[1].measurements[0]
    for found, tp, links in ((two, 2, 1), (eight, 8, 7)):
        gathered = 4 * 8192 * 4096 * 2 * (tp - 1) / tp / (links * 64e9 * 350 / 450)
        assert found.forward_s == pytest.approx((one.forward_s - 30e-6) / tp + 30e-6 + gathered)


def test_groups_larger_than_a_node_exchange_at_the_speed_between_nodes() -> None:
    eight, sixteen = (_first("llama3-70b", 8192, {"tp": tp})["block"].measurements[0].forward_s for tp in (8, 16))
    assert sixteen > eight  # half the work, at a ninth of the speed
    nodes_of_four = replace(H100, per_node=4)
    model = preset("llama3-70b")
    across = layers(model, nodes_of_four, sequence=8192, sizes=(1,), tp=8)[0].parts[1].measurements[0].forward_s
    assert across - eight == pytest.approx(4 * 8192 * 8192 * 2 * 7 / 8 * (1 / 40e9 - 1 / 350e9))


def test_a_vision_tower_comes_first_and_passes_on_tokens() -> None:
    model = preset("qwen2-vl-7b")
    profile, _ = layers(model, H100, sequence=4096, sizes=(1,))
    kinds = [part.kind for part in profile.parts]
    assert kinds == ["vision"] * 32 + ["embedding"] + ["block"] * 28 + ["head"]
    assert sum(part.parameters for part in profile.parts) == parameters(model)
    messages = [part.measurements[0].message for part in profile.parts]
    assert messages[30:33] == [4096 * 1280 * 2, 1024 * 3584 * 2, 4096 * 3584 * 2]
    widths = {layer.name: layer.tokens for layer in structure(model, 4096)}
    assert (widths["vision 0"], widths["block 0"]) == (4096, 4096)


def test_operations_of_a_sample_are_six_for_each_parameter_and_token_and_attention() -> None:
    """Narayanan et al. 2021, 2104.04473, equation 3, without its recomputation and attention halved by the mask."""
    model = preset("gpt3-175b")
    s, n, h, v = 2048, 96, 12288, 50257
    wanted = 72 * s * n * h**2 * (1 + s / (12 * h) + v / (12 * n * h))
    assert sample_flops(model, s) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sequence": 0}, "sequence = 0: must be a whole number from 1 to 1000000000"),
        ({"sequence": "8"}, "sequence = '8': must be a whole number"),
        (
            {"sequence": 10**9, "sizes": (10**6,)},
            r"tiny: a micro-batch of 1000000 × 1000000000 tokens",
        ),
        ({"sizes": ()}, r"sizes = \[\]: must be micro-batch sizes, whole numbers from 1 to"),
        ({"sizes": (0, 1)}, r"sizes = \[0, 1\]: must be micro-batch sizes"),
        ({"sizes": (1.5,)}, r"sizes = \[1.5\]: must be micro-batch sizes"),
        ({"tp": 3}, "tp = 3: does not divide the 2 heads of tiny"),
        ({"tp": 0}, "tp = 0: must be a whole number from 1"),
        ({"dp": True}, "dp = True: must be a whole number from 1"),
        ({"ep": 2}, "ep = 2: must divide dp = 1"),
        ({"ep": 2, "dp": 2}, "ep = 2: does not divide the 0 experts of tiny; leave it at 1"),
        (
            {"model": preset("qwen2-vl-7b"), "sequence": 1000},
            "sequence = 1000: the images of a sample take 1024 tokens",
        ),
        (
            {"model": preset("qwen2-vl-7b"), "tp": 28, "sequence": 2048},
            "tp = 28: does not divide the 16 heads of .* tower",
        ),
        ({"zero": 2}, "zero = 2: must be 0 or 1; 2 and 3 divide"),
        ({"recompute": "some"}, "recompute = 'some': must be one of none, selective, full"),
        ({"model": preset("mixtral-8x7b"), "ep": 2, "dp": 2, "expert_imbalance": -1}, "expert_imbalance = -1: must be"),
        (
            {"model": preset("mixtral-8x7b"), "ep": 2, "dp": 2, "expert_imbalance": 4},
            "expert_imbalance = 4: must be a number from 0 to 3",
        ),
    ],
)
def test_what_cannot_be_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _tiny(**keys)
