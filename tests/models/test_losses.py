"""The loss is a mean over samples."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from adaptpipe.models import next_byte_loss
from adaptpipe.solver import InputError


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.sampled_from([(), (3,), (2, 3)]))
def test_losses_of_micro_batches_weigh_in_by_their_samples(sizes: list[int], shape: tuple[int, ...]) -> None:
    """Means of means are wrong where micro-batches differ in size (pytorch/pytorch#126600)."""
    samples = sum(sizes)
    generator = torch.Generator().manual_seed(samples)
    logits = torch.randn(samples, *shape, 5, generator=generator, dtype=torch.float64)
    target = torch.randint(5, (samples, *shape), generator=generator)
    whole = next_byte_loss(logits, target)
    parts = zip(sizes, torch.split(logits, sizes), torch.split(target, sizes), strict=True)
    torch.testing.assert_close(whole, torch.stack([n / samples * next_byte_loss(a, b) for n, a, b in parts]).sum())
    torch.testing.assert_close(whole, -F.log_softmax(logits, -1).gather(-1, target.unsqueeze(-1)).mean())


def test_shapes_that_do_not_match() -> None:
    """A shorter message in a longer buffer went into the loss unnoticed, so the loss looks at shapes."""
    with pytest.raises(InputError, match=r"logits of shape \(4, 3, 256\) and target of shape \(2, 3\).*\(4, 3\)"):
        next_byte_loss(torch.zeros(4, 3, 256), torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(InputError, match=r"target of shape \(12,\)"):
        next_byte_loss(torch.zeros(4, 3, 256), torch.zeros(12, dtype=torch.int64))
