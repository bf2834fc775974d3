"""Sequences cut into slices: which lengths, and what is said of others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.executor.feeding.sequences import SequenceCut
from adaptpipe.solver import InputError


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_slices_put_together_are_the_sequence(tokens: Sequence[int], lengths: Sequence[int]) -> None:
    """Each has its part exactly, of sequences of any length that is a multiple of what is told."""
    texts = [torch.arange(2 * sum(tokens) * n).reshape(2, -1, 1) for n in lengths]
    cut = SequenceCut(tokens)
    slices = cut.cut("batch", texts)
    given = cut.cut_keywords([{"mask": (text[..., 0], None), "causal": True} for text in texts])
    count = len(tokens)
    assert len(slices) == len(given) == count * len(texts)
    for j, (text, n) in enumerate(zip(texts, lengths, strict=True)):
        own = slice(j * count, (j + 1) * count)
        parts = [x for x in slices[own] if isinstance(x, torch.Tensor)]
        assert torch.equal(torch.cat(parts, 1), text)
        assert [x.shape[1] for x in parts] == [part * n for part in tokens]
        for x, keywords in zip(parts, given[own], strict=True):
            mask = keywords["mask"]
            assert isinstance(mask, tuple)
            assert torch.equal(mask[0], x[..., 0])
            assert mask[1] is None
            assert keywords["causal"] is True


@pytest.mark.parametrize(
    ("length", "wanted"),
    [
        (10, r"micro-batch 0: x\['a'\]\[1\] has sequences of length 10, which slices in the proportions 1:2 do not "),
        (10, r"use multiples of 3, as 9 or 12, or other slices"),
        (2, r"use multiples of 3, as 3, or other slices"),
        (0, r"sequences of length 0, .* use multiples of 3, as 3, or other"),
    ],
)
def test_lengths_that_cannot_be_cut(length: int, wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        SequenceCut((2, 4)).cut("x", [{"a": (None, torch.zeros(1, length))}])


def test_tensors_without_a_sequence() -> None:
    with pytest.raises(
        InputError, match=r"scale has shape \(3,\) and no sequence to cut.*; give it a second dimension"
    ):
        SequenceCut((1, 1)).cut_keywords([{"scale": torch.zeros(3)}])


def test_all_sequences_of_a_micro_batch_have_one_length() -> None:
    """What has features in its second dimension would else be cut by them."""
    cut = SequenceCut((1, 1))
    cut.cut("batch", [torch.zeros(1, 4), torch.zeros(1, 8)])
    with pytest.raises(InputError, match="micro-batch 1: batch has sequences of length 8, and features has 4; the sec"):
        cut.cut("features", [torch.zeros(1, 4), torch.zeros(1, 4)])
