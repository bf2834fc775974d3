"""Versions of weights in one process: who uses which, how many there are, and what cannot be."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.optim import SGD

from adaptpipe.executor.weights.stash import WeightStash, stashes_of
from adaptpipe.solver import InputError


def stash_of(module: nn.Module) -> WeightStash:
    return WeightStash(3, module, SGD(module.parameters(), lr=0.5))


def run(stash: WeightStash, module: nn.Module, microbatch: int, x: Tensor) -> Tensor:
    stash.take(microbatch)
    with stash.using(microbatch):
        y = module(x)
    return y[0] if isinstance(y, tuple) else y  # type: ignore[no-any-return]  # modules return anything


def apply(stash: WeightStash, microbatch: int, loss: Tensor) -> None:
    with stash.using(microbatch):
        torch.autograd.backward(loss)
    stash.let_go(microbatch)
    stash.update(microbatch)


@pytest.mark.parametrize(
    "module",
    [nn.Linear(2, 2), weight_norm(nn.Linear(2, 2)), nn.LSTM(2, 2), nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))],
    ids=["linear", "parametrized", "lstm", "sequential"],
)
def test_a_backward_is_of_the_weights_of_its_forward(module: nn.Module) -> None:
    """A parametrization reads its own submodule, and an LSTM a list of its weights."""
    module = module.double()
    stash, x = stash_of(module), torch.randn(3, 2, dtype=torch.float64)
    start = {name: p.detach().clone() for name, p in module.named_parameters()}
    y = module(x)
    gradients = torch.autograd.grad((y[0] if isinstance(y, tuple) else y).square().sum(), list(module.parameters()))
    stash.begin()
    losses = [run(stash, module, j, x).square().sum() for j in range(3)]
    assert (stash.versions, stash.held_bytes) == (1, 0)
    for j, loss in enumerate(losses):
        apply(stash, j, loss)
        assert stash.versions == (2 if j < 2 else 1)
    stash.end()
    for (name, p), gradient in zip(module.named_parameters(), gradients, strict=True):
        assert torch.allclose(p, start[name] - 3 * 0.5 * gradient), name
    assert stash.most_versions == 2


def test_a_version_is_copied_only_while_somebody_uses_it() -> None:
    layer = nn.Linear(1, 1)
    stash, there = stash_of(layer), layer.weight.data_ptr()
    stash.begin()
    apply(stash, 0, run(stash, layer, 0, torch.ones(1)))
    assert layer.weight.data_ptr() == there
    loss = run(stash, layer, 1, torch.ones(1))
    run(stash, layer, 2, torch.ones(1))
    apply(stash, 1, loss)
    assert layer.weight.data_ptr() != there
    assert stash.held_bytes == layer.weight.nbytes + layer.bias.nbytes
    stash.let_go(2)
    assert (stash.versions, stash.held_bytes) == (1, 0), "what waits for W needs no weights"


def test_autocast_keeps_no_casts_of_old_versions() -> None:
    """Autocast keeps casts of weights until its context ends, which is around a whole run, or many."""
    layer = nn.Linear(2, 2)
    stash, x = stash_of(layer), torch.ones(1, 2)
    with torch.autocast("cpu", torch.bfloat16):
        before = layer(x).detach()
        stash.begin()
        loss = run(stash, layer, 0, x).sum()
        with stash.using(0):
            leaf = weakref.ref(layer.weight)
        assert leaf() is not layer.weight
        apply(stash, 0, loss)
        del loss
        assert leaf() is None
        stash.end()
        assert torch.is_autocast_cache_enabled()
        assert not torch.equal(layer(x), before)


class Alias(nn.Module):
    """Uses its weight by a reference of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.kept = [self.layer.weight]

    def forward(self, x: Tensor) -> Tensor:
        return x * self.kept[0]


def test_a_weight_used_elsewhere_than_in_its_place_is_refused() -> None:
    module = Alias()
    stash = stash_of(module)
    stash.begin()
    with pytest.raises(InputError, match=r"stage 3: layer\.weight got a gradient that is of no version of it"):
        apply(stash, 0, run(stash, module, 0, torch.ones(1)))
    stash.end()
    assert module.layer.weight.grad is None


def test_stages_need_optimizers_of_all_that_trains() -> None:
    layer = nn.Linear(2, 2)
    optimizer = SGD(layer.parameters(), lr=1)
    assert set(stashes_of({0: layer, 1: nn.ReLU()}, {0: optimizer})) == {0, 1}
    with pytest.raises(
        InputError, match=r"stage 0: weight trains, and no optimizer has it; give optimizers=.0: …. one"
    ):
        stashes_of({0: layer}, {})
    with pytest.raises(InputError, match="stage 0: bias trains, and no optimizer has it"):
        stashes_of({0: layer}, {0: SGD([layer.weight], lr=1)})
    with pytest.raises(InputError, match="has one for stage 1, and the rank has the stages \\[0\\]"):
        stashes_of({0: layer}, {0: optimizer, 1: optimizer})
    with pytest.raises(InputError, match=r"optimizers\[0\] is a list; give a torch.optim.Optimizer"):
        stashes_of({0: layer}, {0: [optimizer]})  # type: ignore[dict-item]  # the mistake
    with pytest.raises(InputError, match="optimizers is a SGD; give a mapping"):
        stashes_of({0: layer}, optimizer)  # type: ignore[arg-type]  # the mistake


def test_gradient_hooks_are_refused() -> None:
    layer = nn.Linear(2, 2)
    stash = stash_of(layer)
    handle = layer.weight.register_hook(lambda grad: grad)  # type: ignore[no-untyped-call]  # torch's
    with pytest.raises(InputError, match="stage 3: weight has a gradient hook"):
        stash.begin()
    handle.remove()
    layer.bias.register_post_accumulate_grad_hook(print)  # type: ignore[no-untyped-call]  # torch's
    with pytest.raises(InputError, match="stage 3: bias has a gradient hook"):
        stash_of(layer)
