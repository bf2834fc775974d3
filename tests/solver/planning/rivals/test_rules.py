"""Split rules against the frameworks' own examples, and what holds for every split they make."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver.core.placement import Placement, place
from adaptpipe.solver.core.profile import Part, Profile
from adaptpipe.solver.planning.rivals.rules import RULES, TUNED, Anatomy, Rule

LINEAR_8, V_8 = place("linear", 8), place("v", 8, 2)


def anatomy(*kinds: str) -> Anatomy:
    return Anatomy.of(Profile("", tuple(Part(kind, 0, (), kind=kind) for kind in kinds), 0.0))


def decoder(blocks: int) -> Anatomy:
    return anatomy("embedding", *["block"] * blocks, "head")


def lengths(rule: str, found: Anatomy, placement: Placement) -> list[int] | None:
    split = next(each for each in RULES if each.name == rule).split(found, placement)
    return None if split is None else [len(part) for part in split]


def test_torchtitan_counts_embedding_and_head_as_a_block_each() -> None:
    assert lengths("torchtitan", decoder(42), LINEAR_8) == [6, 6, 6, 6, 5, 5, 5, 5]
    assert lengths("torchtitan", decoder(30), LINEAR_8) == [4] * 8
    two = Anatomy(1, tuple(range(i, i + 1) for i in range(1, 4)), 5)
    assert [len(part) for part in TUNED[2 * 9 + 2].split(two, place("linear", 2)) or ()] == [3, 2], (
        "their example: 3 layers, 2 stages, both weights 2 leaves stages of 4 and 3, so of 2 blocks and 1"
    )


def test_torchtitan_refuses_a_weight_above_the_least_stage() -> None:
    """Their balance check: output_weight exceeds minimum layers per stage."""
    heavy = TUNED[8]
    assert heavy.name == "torchtitan, weights 0 and 8"
    assert heavy.split(decoder(42), LINEAR_8) is None
    assert heavy.split(decoder(56), LINEAR_8) is not None
    first = TUNED[2 * 9]
    assert first.name == "torchtitan, weights 2 and 0"
    assert first.split(decoder(9), LINEAR_8) is None, "though the first stage, with 2, could hold the embedding alone"
    assert first.split(decoder(14), LINEAR_8) is not None


def test_even_stages_carry_embedding_and_head_on_top() -> None:
    assert lengths("even", decoder(32), LINEAR_8) == [5, 4, 4, 4, 4, 4, 4, 5]
    assert lengths("even", decoder(42), LINEAR_8) == [7, 6, 5, 5, 5, 5, 5, 6]
    assert lengths("even", decoder(15), V_8) is None, "fewer blocks than stages"


def test_megatron_counts_embedding_or_loss_where_stages_come_out_equal() -> None:
    assert lengths("Megatron, embedding counted", decoder(31), LINEAR_8) == [4] * 7 + [5]
    assert lengths("Megatron, loss counted", decoder(31), LINEAR_8) == [5] + [4] * 7
    assert lengths("Megatron, loss counted", decoder(32), LINEAR_8) is None


def test_megatron_takes_blocks_from_both_ends_where_ranks_do_not_share_evenly() -> None:
    assert lengths("Megatron, fewer at the ends", decoder(42), LINEAR_8) == [4, 6, 6, 6, 6, 6, 6, 4]
    assert lengths("Megatron, fewer at the ends", decoder(43), LINEAR_8) == [5, 6, 6, 6, 6, 6, 6, 4]
    assert lengths("Megatron, fewer at the ends", decoder(44), place("loop", 8, 2)) == ([*[3] * 7, 2, 2, *[3] * 7])
    assert lengths("Megatron, fewer at the ends", decoder(40), LINEAR_8) is None, "even stages have nothing to give"
    assert lengths("Megatron, fewer at the ends", decoder(44), V_8) is None, "Megatron-Core has no V"
    assert lengths("Megatron, fewer at the ends", decoder(3), place("linear", 2)) is None


def test_deepseek_v3_uses_the_published_layouts() -> None:
    model = anatomy("embed", *["dense"] * 3, *["block"] * 58, "mtp", "head")
    assert lengths("DeepSeek-V3", model, place("linear", 16)) == [5] + [4] * 14 + [3]
    assert lengths("DeepSeek-V3", model, place("v", 16, 2)) == [4] + [2] * 29 + [1, 1]
    assert lengths("DeepSeek-V3", model, place("linear", 4)) == [17, 16, 16, 15]
    assert lengths("DeepSeek-V3", model, place("linear", 5)) is None
    assert lengths("DeepSeek-V3", decoder(61), place("linear", 16)) is None, "no block that predicts further"
    assert lengths("DeepSeek-V3", decoder(60), place("linear", 16)) is None


def test_a_vision_tower_gets_ranks_of_its_own() -> None:
    model = anatomy(*["vision"] * 9, "embedding", *["block"] * 11, "head")
    assert lengths("tower on 2 ranks", model, place("linear", 6)) == [5, 4, 4, 3, 3, 3]
    assert lengths("tower on 1 rank", model, place("linear", 4)) == [9, 5, 4, 4]
    assert lengths("tower on 2 ranks", model, place("linear", 2)) is None, "no rank left for the language model"
    assert lengths("tower on 2 ranks", model, place("v", 6, 2)) is None
    assert lengths("tower on 2 ranks", decoder(20), place("linear", 6)) is None


def test_no_rule_cuts_between_attention_and_mlp() -> None:
    halves = anatomy("embed", *["attn", "mlp"] * 32, "head")
    for rule in ("even", "torchtitan"):
        whole = lengths(rule, decoder(32), LINEAR_8)
        cut = lengths(rule, halves, LINEAR_8)
        assert whole is not None
        ends = [1 * (stage in (0, 7)) for stage in range(8)]
        assert cut == [2 * (count - end) + end for count, end in zip(whole, ends, strict=True)]


def test_layers_of_unknown_kinds_are_blocks() -> None:
    assert anatomy("", "", "").blocks == (range(1), range(1, 2), range(2, 3))
    assert anatomy("attention", "attention", "mlp").blocks == (range(1), range(1, 3))
    assert anatomy("mlp", "mlp").blocks == (range(1), range(1, 2))
    assert anatomy("mtp", "head").blocks == ()
    assert anatomy("mtp", "head").tail == 2


KINDS = st.sampled_from(["embedding", "block", "attention", "mlp", "vision", "mtp", "head", ""])


@given(
    st.lists(KINDS, min_size=1, max_size=70),
    st.integers(1, 6),
    st.sampled_from([("linear", 1), ("v", 2), ("loop", 2), ("loop", 3), ("wave", 4)]),
    st.sampled_from(RULES + TUNED),
)
def test_every_layer_is_in_exactly_one_stage_of_whatever_a_rule_makes(
    kinds: Sequence[str], ranks: int, shape: tuple[str, int], rule: Rule
) -> None:
    placement = place(shape[0], ranks, shape[1])
    split = rule.split(anatomy(*kinds), placement)
    if split is not None:
        assert len(split) == placement.stage_count
        assert all(part.step == 1 and part for part in split)
        assert [layer for part in split for layer in part] == list(range(len(kinds)))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_names_of_rules_are_distinct(rule: Rule) -> None:
    assert [each.name for each in RULES + TUNED].count(rule.name) == 1
