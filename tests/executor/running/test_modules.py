"""What real stages do by themselves: halves of one layer, autocast, recomputation, compiled code."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

from adaptpipe.executor.stages.runner import StageRunner

D = 8
RANGES: dict[str, list[tuple[int, int] | None]] = {"fused": [], "split": [None], "cut": [(1, 2), (0, 1)]}
WAYS = tuple(RANGES)


@contextmanager
def running(stage: nn.Module) -> Iterator[StageRunner]:
    runner = StageRunner(0, stage, None, [(1, 1)] * 4)
    yield runner
    runner.assert_done()
    assert runner.held_bytes == 0
    runner.close()


def run(runner: StageRunner, way: str, xs: list[Tensor], autocast: bool = False) -> list[Tensor | None]:
    """All F, all I or B, then W of the later half before that of the earlier; gradients of the inputs."""
    split = way != "fused"
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        made = [
            runner.forward(j, (x,), target=None, weight=1.0, split=split, is_batch=False)[0] for j, x in enumerate(xs)
        ]
        back: list[Tensor | None] = []
        for j, y in enumerate(made):
            assert y is not None
            back += runner.backward(j, (torch.cos(y.detach()),), split=split)
        for units in RANGES[way]:
            for j in range(len(xs)):
                runner.weights(j, units)
    return back


def plain(stage: nn.Module, xs: list[Tensor], autocast: bool = False) -> None:
    """The forward alone under autocast, as PyTorch's documentation says."""
    for x in xs:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = stage(x)
        torch.autograd.backward(y, torch.cos(y.detach()))


def drawn(*shape: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(*shape, generator=draw).requires_grad_() for _ in range(3)]


def made(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


def assert_equal_gradients(
    kind: Callable[[], nn.Module], way: str, autocast: bool = False, close: float = 1e-5
) -> None:
    ours, theirs, xs, ys = made(kind), made(kind), drawn(2, 5, D), drawn(2, 5, D)
    with running(ours) as runner:
        inputs = run(runner, way, xs, autocast)
    plain(theirs, ys, autocast)
    for gradient, y in zip(inputs, ys, strict=True):
        torch.testing.assert_close(gradient, y.grad, rtol=close, atol=close)
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=close, atol=close, msg=f"{name}: {a.grad} is not {b.grad}")


class Halves(nn.Module):
    """Both halves of a layer's output are used, and have one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.a, self.b = nn.Linear(D, 2 * D), nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        u, v = self.layer(x).chunk(2, -1)
        return self.a(u) * 2 + self.b(v)  # type: ignore[no-any-return]  # modules return Any


class FusedQKV(nn.Module):
    """One layer for queries, keys and values, cut by `split`."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).split(D, -1))
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]


class First(nn.Module):
    """A module that returns more than the next one takes."""

    def __init__(self, inner: nn.Module, *more: str) -> None:
        super().__init__()
        self.inner, self.head, self.more = inner, nn.Linear(D, D), more

    def forward(self, x: Tensor) -> Tensor:
        arguments = (x, x, x) if self.more else (x,)
        return self.head(self.inner(*arguments)[0])  # type: ignore[no-any-return]


CUT: dict[str, Callable[[], nn.Module]] = {
    "chunk": Halves,
    "fused qkv": FusedQKV,
    "lstm": lambda: First(nn.LSTM(D, D, batch_first=True)),
    "gru": lambda: First(nn.GRU(D, D, batch_first=True)),
    "attention": lambda: First(nn.MultiheadAttention(D, 2, batch_first=True), "keys", "values"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CUT)
def test_nodes_with_several_outputs(name: str, way: str) -> None:
    """The split backward summed both halves of a chunk into one, silently: pytorch/pytorch#170277."""
    assert_equal_gradients(CUT[name], way)


@pytest.mark.parametrize("autocast", [False, True])
def test_a_stage_that_changes_its_input_is_told_so(autocast: bool) -> None:
    runner = StageRunner(0, nn.Sequential(nn.ReLU(inplace=True), nn.Linear(D, D)), None)
    told = pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used in an in-place")
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast), told:
        runner.forward(0, (drawn(2, D)[0],), target=None, weight=1.0, split=True, is_batch=False)
    runner.close()


class PreciseHead(nn.Module):
    """Turns autocast off for its last layer, as losses and routers do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(D, D), nn.LayerNorm(D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.body(x))
        with torch.autocast("cpu", enabled=False):
            return self.head(y.float())  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", WAYS)
def test_autocast_around_the_step_is_for_forwards(way: str) -> None:
    """What ran in float32 within autocast has its backward in float32: the same gradients to the bit."""
    assert_equal_gradients(PreciseHead, way, autocast=True, close=0.0)


def test_bytes_under_autocast() -> None:
    """Counted anew where it is on; without the weight's cast, of which there is one for all micro-batches."""
    (x, *_) = drawn(2, D)
    with running(made(FusedHalf)) as runner:
        held = []
        for autocast in (False, True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                (y,) = runner.forward(0, (x,), target=None, weight=1.0, split=False, is_batch=False)
            held.append(runner.held_by(0))
            assert y is not None
            runner.backward(0, (torch.ones_like(y),), split=False)
    one = 2 * D
    assert held == [4 * one + 4 * one, 4 * one + 2 * one + 2 * one, 4 * one + 4 * one]


def test_autocast_keeps_no_input_beyond_its_backward() -> None:
    """It caches casts of leaves until its context ends, which is the end of the step."""
    seen: list[weakref.ref[Tensor]] = []

    def watch(tensor: Tensor) -> Tensor:
        seen.append(weakref.ref(tensor))
        return tensor

    with running(made(FusedHalf)) as runner, torch.autocast("cpu", torch.bfloat16):
        with torch.autograd.graph.saved_tensors_hooks(watch, lambda tensor: tensor):
            run(runner, "fused", drawn(2, D), autocast=True)
        alive = [tensor for ref in seen if (tensor := ref()) is not None]
    assert {tuple(tensor.shape) for tensor in alive} <= {(D, D)}


class FusedHalf(nn.Module):
    """A layer and an activation that is saved."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.layer(x))


class Recomputed(nn.Module):
    """Two checkpointed parts with dropout between plain layers; counts what it runs."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.a, self.b = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.reentrant, self.calls = reentrant, 0

    def part(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.b(F.dropout(torch.relu(self.a(x)), 0.5))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        for _ in range(2):
            y = checkpoint(self.part, y, use_reentrant=self.reentrant)
        return y  # type: ignore[no-any-return]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers_split_and_run_their_forward_twice(reentrant: bool, way: str, autocast: bool) -> None:
    """The split backward recomputed the stage again for W, and refused reentrant ones: pytorch/pytorch#136766."""
    ours, theirs = (made(lambda: Recomputed(reentrant)) for _ in range(2))
    assert isinstance(ours, Recomputed)
    xs, ys = drawn(2, 5, D), drawn(2, 5, D)
    with running(ours) as runner:
        torch.manual_seed(2)
        run(runner, way, xs, autocast)
    assert ours.calls == 2 * 2 * len(xs)
    torch.manual_seed(2)
    plain(theirs, ys, autocast)
    close = 0.02 if autocast else 1e-5
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=close, atol=close)


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpointed_stage_holds(reentrant: bool) -> None:
    """After F what its parts are called with; after I what the weight gradients need, which recomputing made."""
    stage = made(lambda: Recomputed(reentrant))
    (x, *_) = drawn(2, D)
    one = 4 * 2 * D
    with running(stage) as runner:
        (y,) = runner.forward(0, (x,), target=None, weight=1.0, split=True, is_batch=False)
        assert runner.held_by(0) - 3 * one < 256  # three inputs, and the random states if they count
        assert y is not None
        runner.backward(0, (torch.ones_like(y),), split=True)
        assert runner.held_by(0) == 2 * 5 * one
        runner.weights(0)


class Compiled:
    """Compiles, and counts the graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        self.graphs += 1
        return graph.forward


def blocks() -> nn.Sequential:
    return nn.Sequential(nn.Linear(D, D), FusedQKV(), nn.Linear(D, D))


@pytest.mark.parametrize(("backend", "way"), [("counting", "fused"), ("counting", "split"), ("aot_eager", "cut")])
def test_a_compiled_stage_is_one_graph_for_all_micro_batches(backend: str, way: str) -> None:
    """Its whole backward is I; W has nothing to do."""
    torch.compiler.reset()
    counters.clear()
    counting = Compiled()
    ours, theirs, xs, ys = made(blocks), made(blocks), drawn(2, 5, D), drawn(2, 5, D)
    compiled: Any = torch.compile(ours, backend=counting if backend == "counting" else backend, fullgraph=True)
    with running(compiled) as runner:
        for _ in range(2):
            run(runner, way, xs)
            plain(theirs, ys)
            assert runner.weight_groups() == ()
    assert counters["stats"]["unique_graphs"] == 1
    assert counting.graphs == (backend == "counting")
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-5)


def test_compiled_parts_of_a_stage_stay_whole_and_the_rest_splits() -> None:
    torch.compiler.reset()
    counters.clear()
    ours, theirs, xs, ys = made(blocks), made(blocks), drawn(2, 5, D), drawn(2, 5, D)
    ours.get_submodule("1").compile(backend="aot_eager")
    with running(ours) as runner:
        (y,) = runner.forward(3, (xs[0],), target=None, weight=1.0, split=True, is_batch=False)
        assert y is not None
        runner.backward(3, (torch.cos(y.detach()),), split=True)
        assert [entry.parameter for entry in runner._queue.entries(3)] == ["2.weight", "0.weight"]
        runner.weights(3)
        run(runner, "cut", xs[1:])
    plain(theirs, ys)
    assert counters["stats"]["unique_graphs"] == 1
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-5)


def test_recomputed_bytes_are_not_looked_for_in_compiled_code() -> None:
    """It would run uncompiled, and PyTorch would find other tensors recomputed than it had saved."""
    torch.compiler.reset()
    counters.clear()
    stage, (x, *_) = made(lambda: Recomputed(reentrant=False)), drawn(2, D)
    seen = []
    for backend in (None, "aot_eager"):
        if backend is not None:
            stage.get_submodule("a").compile(backend=backend)
        with running(stage) as runner:
            runner.watched = True
            (y,) = runner.forward(0, (x,), target=None, weight=1.0, split=False, is_batch=False)
            assert y is not None
            runner.backward(0, (torch.ones_like(y),), split=False)
            seen.append(runner.recomputed_bytes)
    assert seen[0] > 0
    assert seen[1] == 0
