"""Cut batch and target into micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from torch import Tensor

from adaptpipe.solver import InputError

from ..channels.message import Message


def cut(name: str, data: object, sizes: Sequence[int]) -> tuple[object, ...]:
    """Cut along the first dimension: micro-batch j gets `sizes[j]` rows, after those of the micro-batches before it.

    Parameters
    ----------
    name
        What to call the data in messages.
    data
        A tensor; or a tuple, list or mapping of such data, cut part by part; or None, which stays None.

    Raises
    ------
    InputError
        If it is anything else, or if a tensor has another number of rows.

    Examples
    --------
    >>> import torch
    >>> cut("batch", torch.arange(3), (1, 2))
    (tensor([0]), tensor([1, 2]))
    """
    ends = tuple(accumulate(sizes))

    def part(name: str, data: object, start: int, stop: int) -> object:
        if isinstance(data, Tensor):
            if data.dim() == 0 or data.shape[0] != ends[-1]:
                raise InputError(
                    f"{name} has shape {tuple(data.shape)}; its first dimension must be the {ends[-1]} samples of the "
                    f"micro-batches {list(sizes)}"
                )
            return data[start:stop]
        if isinstance(data, Mapping):
            return {key: part(f"{name}[{key!r}]", value, start, stop) for key, value in data.items()}
        if isinstance(data, tuple | list):
            return tuple(part(f"{name}[{place}]", value, start, stop) for place, value in enumerate(data))
        if data is None:
            return None
        raise InputError(f"{name} is a {type(data).__name__}; give tensors with one row for each sample")

    return tuple(part(name, data, stop - size, stop) for stop, size in zip(ends, sizes, strict=True))


def tensors_of(data: object) -> Iterator[Tensor]:
    """All tensors of a batch or target, as `cut` gives them.

    Examples
    --------
    >>> import torch
    >>> [x.item() for x in tensors_of({"a": torch.tensor(1), "b": (None, torch.tensor(2))})]
    [1, 2]
    """
    if isinstance(data, Tensor):
        yield data
    elif isinstance(data, Mapping | tuple | list):
        for part in data.values() if isinstance(data, Mapping) else data:
            yield from tensors_of(part)


def as_inputs(data: object) -> Message:
    """What the first stage is called with: the batch's tensor, or its tuple of tensors.

    Raises
    ------
    InputError
        If the batch is anything else.
    """
    parts = data if isinstance(data, tuple) else (data,)
    for x in parts:
        if x is not None and not isinstance(x, Tensor):
            raise InputError(f"batch holds a {type(x).__name__}; give a tensor, or a tuple or list of tensors")
    return parts


def evaluation_sizes(batch: object, sizes: Sequence[int] | None, largest: int) -> tuple[int, ...]:
    """Sizes of an evaluation's micro-batches: the given ones, or as few near-equal ones as `largest` allows.

    Raises
    ------
    InputError
        If the batch has no rows, or a size is below 1.

    Examples
    --------
    >>> import torch
    >>> evaluation_sizes(torch.zeros(7, 2), None, 3)
    (2, 2, 3)
    """
    if sizes is not None:
        for j, size in enumerate(sizes):
            if size < 1:
                raise InputError(f"sizes[{j}]: {size} is below 1")
        if not sizes:
            raise InputError("sizes: the list is empty; leave it out, or give the samples of each micro-batch")
        return tuple(sizes)
    data = batch
    while isinstance(data, tuple | list) and data:
        data = data[0]
    if not isinstance(data, Tensor) or data.dim() == 0 or not data.shape[0]:
        raise InputError("batch has no rows; give tensors with one row for each sample")
    total = data.shape[0]
    base, larger = divmod(total, -(-total // largest))
    return (base,) * (-(-total // largest) - larger) + (base + 1,) * larger
