"""Count the bytes that a forward leaves for its backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


class Storages:
    """Distinct storages of some tensors, without those that are not to count.

    Parameters
    ----------
    ignored
        Tensors whose storages are there anyway, such as weights.

    Examples
    --------
    >>> storages, x = Storages(), torch.zeros(4)
    >>> storages.add(x)
    >>> storages.add(x[:2])
    >>> storages.nbytes()
    16
    """

    def __init__(self, ignored: Iterable[Tensor] = ()) -> None:
        self._ignored = {address for tensor in ignored if (address := address_of(tensor))}
        self._bytes: dict[int, int] = {}

    def add(self, tensor: Tensor) -> None:
        """Count the storage of a tensor, unless it has been counted."""
        address = address_of(tensor)
        if address and address not in self._ignored:
            self._bytes[address] = tensor.untyped_storage().nbytes()

    def nbytes(self) -> int:
        """Their bytes in sum."""
        return sum(self._bytes.values())


@contextmanager
def count_saved(storages: Storages, autocasting: bool = False) -> Iterator[None]:
    """Count what autograd saves inside.

    Costs some microseconds for each tensor. Autograd does not look for changes in place when tensors are saved through
    hooks, so this looks in its stead.

    Parameters
    ----------
    storages
        Takes what is saved.
    autocasting
        Whether this is inside an autocast context that goes on afterwards. Then weights that it has cast do not count,
        for it keeps one copy for all micro-batches.
    """
    without_casts = autocasting and torch.is_autocast_cache_enabled()

    def pack(tensor: Tensor) -> tuple[Tensor, int]:
        if not (without_casts and _is_cast_parameter(tensor)):
            storages.add(tensor)
        return tensor.detach(), tensor._version  # not the tensor: its own node may save it, which would be a cycle

    def unpack(packed: tuple[Tensor, int]) -> Tensor:
        tensor, version = packed
        if tensor._version != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"{tensor.type()} {list(tensor.shape)} is at version {tensor._version}; expected version {version}"
            )
        return tensor

    with saved_tensors_hooks(pack, unpack):
        yield


def _is_cast_parameter(tensor: Tensor) -> bool:
    cast = (tensor if tensor._base is None else tensor._base).grad_fn
    if cast is None or cast.name() != "ToCopyBackward0":
        return False
    return isinstance(getattr(cast.next_functions[0][0], "variable", None), nn.Parameter)


def address_of(tensor: Tensor) -> int:
    """Where a tensor's storage is; 0 where it has none, as sparse tensors and those of size 0."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0
