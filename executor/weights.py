"""Split a backward into I and W on unmodified modules: a queue of weight gradients that run later.

While a queue is bound to a micro-batch, each `nn.Linear` of the stage returns the gradient of its input during the
backward and leaves the GEMM of its weight gradient in the queue; `WeightQueue.run` computes it. What is not
intercepted (biases, norms, embeddings, convolutions, subclasses of Linear, hooked or frozen weights, …) is computed in
the backward as usual, so the split may be smaller than hoped, and the gradients are right all the same.

With no queue bound a patched module computes exactly what it did before, which is the fused backward B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MethodType, TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from .deferred import Sinks, linear_forward, weight_gradient
from .errors import WeightQueueError

_DATA_PARALLEL = frozenset({"DistributedDataParallel", "FullyShardedDataParallel"})


@dataclass(frozen=True, slots=True)
class WeightEntry:
    """One weight gradient that waits.

    Parameters
    ----------
    run
        Computes it and adds it to the parameter's `.grad`.
    flops
        Floating-point operations that `run` costs.
    nbytes
        Size of the two tensors that it keeps alive: the layer's input and the gradient of its output.
    parameter
        The weight's name within the stage.
    tensors
        These two tensors.
    """

    run: Callable[[], None]
    flops: int
    nbytes: int
    parameter: str
    tensors: tuple[Tensor, Tensor]


_installed: WeakKeyDictionary[nn.Linear, int] = WeakKeyDictionary()
"""How many open queues need the patch of a layer; stages on one rank may share layers."""


class WeightQueue:
    """Weight gradients of one stage that wait to be computed, by micro-batch.

    Made by `install`; `close` (or leaving the `with` block) gives the modules their own forward back.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(2, 1, bias=False)
    >>> with install(layer) as queue:
    ...     with queue.bind(0):
    ...         loss = layer(torch.tensor([[1.0, 2.0]])).sum()
    ...     with queue.bind(0):
    ...         loss.backward()
    ...     print(layer.weight.grad, queue.pending_bytes())
    ...     queue.run(0)
    ...     print(layer.weight.grad, queue.pending_bytes())
    None 12
    tensor([[1., 2.]]) 0
    """

    def __init__(self, module: nn.Module, stage: int = 0) -> None:
        self.stage = stage
        self._names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._entries: dict[int, list[WeightEntry]] = {}
        self._storages: dict[int, list[int]] = {}  # address -> [entries that hold it, bytes]
        self._pending_bytes = 0
        self._layers = tuple(_deferrable_layers(module))
        for layer in self._layers:
            _patch(layer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the modules their own forward back. Entries that wait can still run. May be called twice."""
        for layer in self._layers:
            _unpatch(layer)
        self._layers = ()

    @contextmanager
    def bind(self, microbatch: int) -> Iterator[None]:
        """Send the weight gradients of forwards that run inside to this queue, as those of a micro-batch.

        Needed around the forward; an entry goes to the micro-batch that was bound then. Also needed around the
        backward, where checkpointed layers run their forward again. Not for a fused backward: without it, and without
        a bound forward, weight gradients are computed where autograd computes them.
        """
        before = Sinks.current
        Sinks.current = partial(self._add, microbatch)
        try:
            yield
        finally:
            Sinks.current = before

    def run(self, microbatch: int) -> None:
        """Compute all gradients that wait for this micro-batch, in the order in which they became ready.

        Does nothing where nothing waits, as in a stage without linear layers. Each entry frees its tensors when it is
        done.

        Raises
        ------
        RuntimeError
            If a weight, or a tensor that its gradient is made of, was changed in place since the forward.
        """
        entries = self._entries.get(microbatch, [])
        while entries:
            entry = entries.pop(0)
            self._release(entry)
            entry.run()
        self._entries.pop(microbatch, None)

    def entries(self, microbatch: int) -> tuple[WeightEntry, ...]:
        """List what waits for this micro-batch, the stage's last layer first."""
        return tuple(self._entries.get(microbatch, ()))

    def pending_bytes(self) -> int:
        """Count the bytes that waiting entries keep alive; a tensor shared by several entries counts once."""
        return self._pending_bytes

    def assert_empty(self) -> None:
        """Check that nothing waits.

        Raises
        ------
        WeightQueueError
            If something does: the schedule has no W op for it, and its gradient would be missing.
        """
        for microbatch, entries in sorted(self._entries.items()):
            names = ", ".join(sorted({entry.parameter for entry in entries}))
            raise WeightQueueError(
                f"stage {self.stage}, micro-batch {microbatch}: {len(entries)} weight gradients were never computed "
                f"({names}); the schedule must run a W for every I"
            )

    def clear(self) -> None:
        """Drop what waits, after a step that failed."""
        self._entries.clear()
        self._storages.clear()
        self._pending_bytes = 0

    def _add(self, microbatch: int, x: Tensor, gy: Tensor, weight: nn.Parameter, version: int) -> None:
        name = self._names.get(id(weight), "weight")
        entry = WeightEntry(
            run=weight_gradient(x, gy, weight, version, f"stage {self.stage}, micro-batch {microbatch}, {name}"),
            flops=2 * x.numel() * weight.shape[0],
            nbytes=x.nbytes + gy.nbytes,
            parameter=name,
            tensors=(x, gy),
        )
        for tensor in entry.tensors:
            storage = tensor.untyped_storage()
            held = self._storages.setdefault(storage.data_ptr(), [0, storage.nbytes()])
            if held[0] == 0:
                self._pending_bytes += held[1]
            held[0] += 1
        self._entries.setdefault(microbatch, []).append(entry)

    def _release(self, entry: WeightEntry) -> None:
        for tensor in entry.tensors:
            address = tensor.untyped_storage().data_ptr()
            held = self._storages[address]
            held[0] -= 1
            if held[0] == 0:
                self._pending_bytes -= held[1]
                del self._storages[address]


def install(module: nn.Module, stage: int = 0) -> WeightQueue:
    """Patch the linear layers of a stage, so that their weight gradients can wait.

    Parameters
    ----------
    module
        The stage. It keeps its type, its parameters and its state dict.
    stage
        The stage's number, for messages.

    Returns
    -------
    WeightQueue
        The queue; close it to undo the patch.

    Notes
    -----
    Patched are instances of exactly `nn.Linear` with a forward of their own class. Layers below
    `DistributedDataParallel` or `FullyShardedDataParallel` are left alone, whose hooks must see every gradient in the
    backward. Hooks that other code sets on a weight's `AccumulateGrad` node do not see gradients that wait.
    """
    return WeightQueue(module, stage)


def coverage(module: nn.Module) -> float:
    """Tell which share of a stage's trainable parameters can wait in the queue, by number of elements.

    A weight that another kind of module uses too (an embedding tied to the head) counts as one that cannot, because a
    part of its gradient is computed in I. So does everything under `torch.compile`, whose graph stays whole; that
    cannot be seen here. A stage without trainable parameters has nothing that stays in I: 1.

    Examples
    --------
    >>> coverage(nn.Linear(3, 2, bias=False)), coverage(nn.LayerNorm(3))
    (1.0, 0.0)
    """
    layers = {id(layer) for layer in _deferrable_layers(module)}
    trainable = {id(p): p.numel() for p in module.parameters() if p.requires_grad}
    kept = {
        id(parameter)
        for owner in module.modules()
        for name, parameter in owner.named_parameters(recurse=False)
        if id(owner) not in layers or name != "weight"
    }
    total = sum(trainable.values())
    return sum(size for key, size in trainable.items() if key not in kept) / total if total else 1.0


def _deferrable_layers(module: nn.Module) -> Iterator[nn.Linear]:
    wrapped = {
        id(inner)
        for wrapper in module.modules()
        if type(wrapper).__name__ in _DATA_PARALLEL
        for inner in wrapper.modules()
    }
    for layer in module.modules():
        # A parametrised Linear has another type; an old-style weight norm leaves the type and takes the parameter away.
        if type(layer) is nn.Linear and "weight" in layer._parameters and id(layer) not in wrapped:
            own = layer.__dict__.get("forward")
            if own is None or getattr(own, "__func__", None) in (linear_forward, nn.Linear.forward):
                yield layer


def _patch(layer: nn.Linear) -> None:
    _installed[layer] = _installed.get(layer, 0) + 1
    # A bound method: a deep copy of the module is then bound to the copy, and not to this module's weight.
    layer.__dict__["forward"] = MethodType(linear_forward, layer)


def _unpatch(layer: nn.Linear) -> None:
    _installed[layer] -= 1
    if _installed[layer] == 0:
        del _installed[layer]
        layer.__dict__.pop("forward", None)
