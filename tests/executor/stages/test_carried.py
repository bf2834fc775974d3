"""One stage, slice by slice: gradients of what slices hand on, what is counted, and what is refused."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from adaptpipe.executor.stages.randomness import RandomState
from adaptpipe.executor.stages.runner import StageRunner
from adaptpipe.models import GPTConfig, build_stage
from adaptpipe.solver import InputError

pytestmark = pytest.mark.usefixtures("one_thread")

S, T, D = 2, 12, 8
RANGES: dict[str, list[tuple[int, int] | None]] = {"fused": [], "split": [None], "cut": [(1, 2), (0, 1)]}
CUTS = ((6, 6), (3, 3, 3, 3), (8, 4), (1, 2, 9), (7, 4, 1))


class Recurrent(nn.Module):
    """Hands on the state of a GRU, a number, and what it uses in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(D, D, batch_first=True), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_slice(x, ())[0]

    def forward_slice(self, x: Tensor, past: Any) -> tuple[Tensor, Any]:
        state, sums_before, count = (past[0], past[1]["sum"], past[1]["count"]) if past else (None, 0, 0)
        y, after = self.gru(x, state)
        sums = sums_before + x.cumsum(1)
        counts = torch.arange(1, x.shape[1] + 1).reshape(1, -1, 1) + count
        y = y + self.head(sums / counts)
        return y, (after, {"sum": sums[:, -1:], "count": count + x.shape[1]})


class Recomputed(nn.Module):
    """Attention in a part that runs again in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.block = block()

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_slice(x, ())[0]

    def forward_slice(self, x: Tensor, past: Any) -> tuple[Tensor, Any]:
        made: tuple[Tensor, Any] = checkpoint(self.block.forward_slice, x, past, use_reentrant=False)
        return made


def block() -> nn.Module:
    return build_stage(GPTConfig(layers=2, width=D, heads=2, sequence=T), 0, range(1, 3))


def token_wise() -> nn.Module:
    stage = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))
    stage.token_wise = True  # type: ignore[assignment]  # no module
    return stage


STAGES: dict[str, Callable[[], nn.Module]] = {
    "attention": block,
    "recurrent": Recurrent,
    "recomputed": Recomputed,
    "token-wise": token_wise,
}


def made(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().double()


def drawn(seed: int) -> Tensor:
    return torch.randn(S, T, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def run(runner: StageRunner, way: str, texts: list[Tensor], cut: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """Slices of all texts forward, then backward, then W; outputs, and gradients of the inputs, of whole texts."""
    split, k = way != "fused", len(cut)
    xs = [x.detach().requires_grad_() for text in texts for x in torch.split(text, list(cut), 1)]
    ys: list[Tensor] = []
    for j, x in enumerate(xs):
        (y,) = runner.forward(j, (x,), target=None, weight=1.0, split=split, is_batch=False)
        assert y is not None
        ys.append(y.detach())
    for first in range(0, len(xs), k):
        for j in reversed(range(first, first + k)):
            runner.backward(j, (ys[j].cos(),), split=split)
    for units in RANGES[way]:
        for j in range(len(xs)):
            runner.weights(j, units)
    runner.assert_done()
    assert runner.held_bytes == 0

    def whole(parts: list[Tensor]) -> list[Tensor]:
        return [torch.cat(parts[first : first + k], 1) for first in range(0, len(parts), k)]

    return whole(ys), whole([x.grad for x in xs if x.grad is not None])


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("way", RANGES)
@pytest.mark.parametrize("name", STAGES)
def test_slices_are_the_whole_sequence(name: str, way: str, cut: tuple[int, ...]) -> None:
    ours, theirs, texts = made(STAGES[name]), made(STAGES[name]), [drawn(1), drawn(2)]
    runner = StageRunner(0, ours, None, [(1, 1)] * (2 * len(cut)), slices=len(cut))
    outputs, gradients = run(runner, way, texts, cut)
    runner.close()
    for text, output, gradient in zip(texts, outputs, gradients, strict=True):
        x = text.requires_grad_()
        y = theirs(x)
        torch.testing.assert_close(output, y, rtol=1e-12, atol=1e-12)
        y.backward(y.detach().cos())
        torch.testing.assert_close(gradient, x.grad, rtol=1e-11, atol=1e-11)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-11, atol=1e-11)


class Summing(nn.Module):
    """Hands on one tensor, which the backward of the slice after needs, and its own does not."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward_slice(self, x: Tensor, past: Any) -> tuple[Tensor, Any]:
        sums = x * x if not past else past[0].sin() + x * x
        return torch.tanh(sums * self.scale), (sums * 1,)


def test_bytes_of_slices() -> None:
    """Each slice keeps x, the sums and tanh's output, and all but the last what they hand on.

    The next slice's backward leaves a gradient for that.
    """
    runner = StageRunner(0, Summing(), None, slices=3)
    each = S * D * 4
    for j in range(3):
        x = torch.randn(S, D).requires_grad_()
        runner.forward(j, (x,), target=None, weight=1.0, split=False, is_batch=False)
        assert runner.held_by(j) == (4 * each if j < 2 else 3 * each)
    for j in (2, 1, 0):
        runner.backward(j, (torch.ones(S, D),), split=False)
        assert [runner.held_by(i) for i in range(j)] == [4 * each + each * (i == j - 1) for i in range(j)]
        assert runner.held_bytes == sum(map(runner.held_by, range(j)))
    runner.assert_done()
    runner.close()


def test_nothing_outlives_its_backward() -> None:
    runner = StageRunner(0, made(block), None, slices=2)
    xs = [drawn(1)[:, :6].clone().requires_grad_(), drawn(1)[:, 6:].clone().requires_grad_()]
    made_by = [
        runner.forward(j, (x,), target=None, weight=1.0, split=True, is_batch=False)[0] for j, x in enumerate(xs)
    ]
    handed = [weakref.ref(x) for x in runner._carried.given_by(0)]
    assert len(handed) == 4  # keys and values of two blocks
    assert not runner._carried.given_by(1)
    gradients = [torch.ones_like(y) for y in made_by if y is not None]
    del made_by
    for j in (1, 0):
        runner.backward(j, (gradients[j],), split=True)
    assert not any(ref() is not None for ref in handed)
    for j in (0, 1):
        runner.weights(j)
    runner.assert_done()
    runner.close()


class Lagging(nn.Module):
    """Multiplies what the slice before has handed on, which keeps a cast of that very tensor for the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D, D))

    def forward_slice(self, x: Tensor, past: Any) -> tuple[Tensor, Any]:
        return torch.bmm(past[0] if past else x, self.weight.expand(S, D, D)), (x * 1,)


def test_autocast_keeps_nothing_that_is_handed_on_beyond_its_backward() -> None:
    """It caches casts of leaves until its context ends, which is the end of the step."""
    seen: list[weakref.ref[Tensor]] = []

    def watch(tensor: Tensor) -> Tensor:
        seen.append(weakref.ref(tensor))
        return tensor

    runner = StageRunner(0, Lagging(), None, slices=3)
    with torch.autocast("cpu", torch.bfloat16):
        with torch.autograd.graph.saved_tensors_hooks(watch, lambda tensor: tensor):
            run(runner, "fused", [drawn(1).float(), drawn(2).float()], (4, 4, 4))  # the first are counted
        assert seen
        assert not any(ref() is not None for ref in seen)
    runner.close()


def test_gradients_under_autocast_are_those_of_the_whole() -> None:
    ours, theirs, text = made(Recurrent).float(), made(Recurrent).float(), drawn(3).float()
    runner = StageRunner(0, ours, None, slices=3)
    with torch.autocast("cpu", torch.bfloat16):
        run(runner, "split", [text], (4, 4, 4))
        y = theirs(text)
    y.backward(y.detach().cos())
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=5e-2, atol=5e-2)
    runner.close()


def test_evaluation_takes_whole_sequences() -> None:
    stage = made(block)
    runner = StageRunner(0, stage, None, slices=2)
    with torch.no_grad():
        (y,) = runner.outputs(0, (drawn(1),), None, 1.0)
    torch.testing.assert_close(y, stage(drawn(1)))
    runner.close()


class Odd(nn.Module):
    """Returns what it is told to."""

    def __init__(self, returned: object) -> None:
        super().__init__()
        self.returned = returned

    def forward_slice(self, x: Tensor, past: Any) -> Any:
        return self.returned


@pytest.mark.parametrize(
    ("stage", "wanted"),
    [
        (Odd(torch.ones(1)), r"stage 3: forward_slice returned a Tensor; it must return the output, and what it"),
        (Odd((torch.ones(1), ({1},))), r"stage 3: forward_slice hands a set on; only tensors, numbers, texts and None"),
    ],
)
def test_what_slices_cannot_return(stage: nn.Module, wanted: str) -> None:
    runner = StageRunner(3, stage, None, slices=2)
    with pytest.raises(InputError, match=wanted):
        runner.forward(0, (torch.ones(1, 2),), target=None, weight=1.0, split=False, is_batch=False)
    runner.close()


def test_a_stage_that_does_not_say_how_it_takes_slices_is_refused() -> None:
    """Attention over each slice alone would give gradients, and wrong ones."""
    stage = nn.TransformerEncoderLayer(D, 2, batch_first=True)
    wanted = (
        r"stage 5 is a TransformerEncoderLayer, which takes whole sequences only.*forward_slice\(x, past\).*token_wise"
    )
    with pytest.raises(InputError, match=wanted):
        StageRunner(5, stage, None, slices=2)
    StageRunner(5, stage, None).close()


def test_dropout_draws_other_masks_for_each_slice() -> None:
    stage = nn.Dropout(0.5)
    stage.token_wise = True  # type: ignore[assignment]  # no module
    x = torch.ones(1, 64)

    def masks() -> list[Tensor]:
        runner = StageRunner(0, stage, None, random=RandomState(1), slices=2)
        made = [runner.forward(j, (x,), target=None, weight=1.0, split=False, is_batch=True)[0] for j in (1, 0)]
        runner.close()
        return [y for y in made if y is not None]

    first, again = masks(), masks()
    assert not torch.equal(first[0], first[1])
    assert all(map(torch.equal, first, again))


def test_a_loss_weighs_in_by_what_it_is_told() -> None:
    stage = token_wise()
    runner = StageRunner(1, stage, F.mse_loss, slices=2)
    x, target = torch.ones(1, 2, D), torch.zeros(1, 2, D)
    (loss,) = runner.forward(0, (x,), target=target, weight=0.25, split=False, is_batch=True)
    assert loss is not None
    torch.testing.assert_close(loss, F.mse_loss(stage(x), target) / 4)
    runner.close()
