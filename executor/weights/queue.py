"""Split a backward into I and W on unmodified modules: a queue of weight gradients that run later.

While a queue is bound to a micro-batch, each `nn.Linear` of the stage, and each `Conv1D` of transformers' GPT-2, gives
the gradient of its input during the backward and leaves the GEMM of its weight gradient in the queue; `WeightQueue.run`
computes it, with all others of the micro-batch or in units, a range at a time. What is not intercepted (biases, norms,
embeddings, convolutions, subclasses of Linear, hooked or frozen weights, …) is computed in the backward as usual, so
the split may be smaller than hoped, and the gradients are right all the same.

With no queue bound a patched module computes exactly what it did before, which is the fused backward B.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import MethodType, TracebackType
from typing import Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..errors import WeightQueueError
from .activations import Storages, address_of
from .deferred import Sinks, WeightGradient, stand_in
from .pending import Pending, WeightEntry

_DATA_PARALLEL = frozenset({"DistributedDataParallel", "FullyShardedDataParallel"})


_installed: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
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
        self._pending: dict[int, Pending] = {}
        self._ignored: set[int] = set()
        self._last: Pending | None = None  # the last one whose gradients are all done
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

    def run(self, microbatch: int, units: tuple[int, int] | None = None, times: Sequence[int] = (1,)) -> None:
        """Compute gradients that wait for this micro-batch, in the order in which they became ready.

        Does nothing where nothing waits, as in a stage without linear layers. Each entry frees its tensors when its
        last row is done.

        Parameters
        ----------
        microbatch
            Its number.
        units
            The half-open range of units to compute, each of them once and in any order; None: all that there is.
        times
            What each unit takes, in any one measure: unit u gets that share of the floating-point operations. The same
            at every call for a micro-batch.

        Raises
        ------
        RuntimeError
            If a weight, or a tensor that its gradient is made of, was changed in place since the forward.

        Examples
        --------
        >>> import torch
        >>> layer = torch.nn.Linear(1, 4, bias=False)
        >>> with install(layer) as queue:
        ...     with queue.bind(0):
        ...         layer(torch.ones(2, 1)).sum().backward()
        ...     queue.run(0, (1, 2), times=(3, 1))
        ...     print(layer.weight.grad.flatten())
        ...     queue.run(0, (0, 1), times=(3, 1))
        ...     print(layer.weight.grad.flatten())
        tensor([0., 0., 0., 2.])
        tensor([2., 2., 2., 2.])
        """
        pending = self._pending.get(microbatch)
        if pending is None:
            return
        with torch.no_grad():
            pending.run(units, times)
        if not pending.entries:
            self._last = self._pending.pop(microbatch)

    def ignore(self, tensors: Iterable[Tensor]) -> None:
        """Do not count the storages of these in `held_by`, until `clear`: they are there anyway, as the batch is."""
        self._ignored.update(map(address_of, tensors))

    def entries(self, microbatch: int) -> tuple[WeightEntry, ...]:
        """List what waits for this micro-batch, the stage's last layer first."""
        pending = self._pending.get(microbatch)
        return () if pending is None else pending.entries

    def groups(self) -> tuple[int, ...]:
        """Floating-point operations of each piece of the last W that shares no tensor with the others.

        A weight gradient that is cut between them frees with each unit all that the unit needed, in whatever order the
        units run. Empty before the first W, and where W has nothing to do.
        """
        return () if self._last is None else self._last.groups()

    def waits(self, microbatch: int) -> bool:
        """Tell whether a weight gradient waits for this micro-batch."""
        return microbatch in self._pending

    def held_by(self, microbatch: int) -> int:
        """Count the bytes that entries waiting for a micro-batch keep alive; a shared tensor counts once."""
        pending = self._pending.get(microbatch)
        return 0 if pending is None else pending.nbytes

    def pending_bytes(self) -> int:
        """Count the bytes that all waiting entries keep alive; a tensor shared by several entries counts once."""
        storages = Storages()
        for pending in self._pending.values():
            for entry in pending.entries:
                for tensor in entry.tensors:
                    storages.add(tensor)
        return storages.nbytes()

    def assert_empty(self) -> None:
        """Check that nothing waits.

        Raises
        ------
        WeightQueueError
            If something does: the schedule has no W op for it, or not for all of its units, and its gradient would be
            missing.
        """
        for microbatch, pending in sorted(self._pending.items()):
            names = ", ".join(sorted({entry.parameter for entry in pending.entries}))
            missing = ", ".join(str(unit) for unit in pending.waiting)
            left = f"; of its units {missing} did not run, and" if missing else ";"
            raise WeightQueueError(
                f"stage {self.stage}, micro-batch {microbatch}: {len(pending.entries)} weight gradients were never "
                f"computed ({names}){left} the schedule must run a W for every I"
            )

    def clear(self) -> None:
        """Forget the step: what waits, if it failed, and what does not count."""
        self._pending.clear()
        self._ignored.clear()

    def _add(self, microbatch: int, x: Tensor, gy: Tensor, weight: nn.Parameter, version: int) -> None:
        x = x.detach()  # its graph would keep the stage's input
        name = self._names.get(id(weight), "weight")
        entry = WeightEntry(
            run=WeightGradient(x, gy, weight, version, self.stage, microbatch, name).run,
            rows=weight.shape[0],
            flops=2 * x.numel() * weight.shape[0],
            nbytes=x.nbytes + gy.nbytes,
            parameter=name,
            tensors=(x, gy),
        )
        pending = self._pending.get(microbatch)
        if pending is None:
            pending = self._pending[microbatch] = Pending(self._ignored)
        pending.add(entry)


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
    Patched are instances of exactly `nn.Linear`, or transformers' `Conv1D`, with a forward of their own class. Layers
    below `DistributedDataParallel` or `FullyShardedDataParallel` are left alone, whose hooks must see every gradient in
    the backward. Hooks that other code sets on a weight's `AccumulateGrad` node do not see gradients that wait.
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


def _deferrable_layers(module: nn.Module) -> Iterator[nn.Module]:
    wrapped = {
        id(inner)
        for wrapper in module.modules()
        if type(wrapper).__name__ in _DATA_PARALLEL
        for inner in wrapper.modules()
    }
    for layer in module.modules():
        # An old-style weight norm leaves the type and takes the parameter away.
        other = stand_in(layer)
        if other is not None and "weight" in layer._parameters and id(layer) not in wrapped:
            own = layer.__dict__.get("forward")
            if own is None or getattr(own, "__func__", None) in (other, type(layer).forward):
                yield layer


def _patch(layer: nn.Module) -> None:
    _installed[layer] = _installed.get(layer, 0) + 1
    other = stand_in(layer)
    assert other is not None, "only layers that can be deferred are patched"
    # A bound method: a deep copy of the module is then bound to the copy, and not to this module's weight.
    layer.__dict__["forward"] = MethodType(other, layer)


def _unpatch(layer: nn.Module) -> None:
    _installed[layer] -= 1
    if _installed[layer] == 0:
        del _installed[layer]
        layer.__dict__.pop("forward", None)
