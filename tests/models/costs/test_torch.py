"""Bytes by formula against those that torch keeps for the backward of our GPT."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from adaptpipe.models import GPTConfig, build_stage, next_byte_loss
from adaptpipe.models.costs import PROCESSOR, SINGLE, architecture_of, layers


def _saved(known: set[int], run: Callable[..., Tensor], *inputs: object) -> int:
    """Bytes of the tensors that autograd saves while something runs, those of `known` storages left out."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = run(*inputs)  # alive, so that no storage is used twice
    del kept
    return sum(size for pointer, size in storages.items() if pointer not in known)


def _scored(head: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    return next_byte_loss(head(x), target)


@pytest.mark.parametrize(("width", "heads", "sequence", "size"), [(32, 2, 16, 1), (64, 4, 24, 3)])
def test_what_f_keeps_is_what_torch_saves(width: int, heads: int, sequence: int, size: int) -> None:
    config = GPTConfig(layers=1, width=width, heads=heads, sequence=sequence)
    profile, _ = layers(architecture_of(config), PROCESSOR, sequence=sequence, sizes=(size,), recipe=SINGLE)
    tokens = torch.randint(0, 256, (size, sequence + 1))
    x = torch.randn(size, sequence, width, requires_grad=True)
    for index, part in enumerate(profile.parts[1:], start=1):
        layer = build_stage(config, 0, range(index, index + 1))
        known = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
        if part.kind == "head":
            target = tokens[:, 1:].contiguous()
            found = _saved(known | {target.untyped_storage().data_ptr()}, _scored, layer, x, target)
        else:
            found = _saved(known, layer, x)
        assert found == pytest.approx(part.measurements[0].activation, abs=8)  # a sum of the loss
        assert part.static == 16 * sum(parameter.numel() for parameter in layer.parameters())
        assert part.measurements[0].message == (0 if part.kind == "head" else x.nbytes)
