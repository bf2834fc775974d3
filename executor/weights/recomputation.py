"""Count the bytes that a backward recomputes: what checkpointed layers hold for a while, between two counts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import finalize, ref

import torch
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def can_be_counted() -> bool:
    """Whether no code of this process is compiled: that would run uncompiled here, and recompute other tensors."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is None or not dynamo.counters["frames"]


class Recomputation(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """While it is entered around a backward, counts what forwards make in there; slow, for measuring only.

    A backward runs its own steps without gradients, so what is made with them is made by a forward.

    Attributes
    ----------
    peak
        The most bytes that were alive at once.

    Examples
    --------
    >>> from torch.utils.checkpoint import checkpoint
    >>> x = torch.ones(4, requires_grad=True)
    >>> y = checkpoint(lambda x: x.exp().exp().exp(), x, use_reentrant=False)
    >>> with Recomputation() as seen:
    ...     y.sum().backward()
    >>> seen.peak
    48
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.peak = self._alive = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        made = func(*args, **given)
        if torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1:
            there = {x.untyped_storage()._cdata for x in tree_leaves((args, given)) if isinstance(x, Tensor)}
            for x in tree_leaves(made):
                if isinstance(x, Tensor) and x.untyped_storage()._cdata not in there:
                    self._count(x.untyped_storage())
        return made

    def _count(self, storage: UntypedStorage) -> None:
        key, size, me = storage._cdata, storage.nbytes(), ref(self)
        if key in self._seen:
            return

        def freed() -> None:
            counter = me()
            if counter is not None:
                counter._seen.discard(key)
                counter._alive -= size

        self._seen.add(key)
        self._alive += size
        self.peak = max(self.peak, self._alive)
        finalize(storage, freed).atexit = False
