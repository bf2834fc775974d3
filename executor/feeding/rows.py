"""Cut batch and target into micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

from adaptpipe.solver import InputError

from ..channels.message import Message


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """A batch, target or keyword that is cut already, for data whose other dimensions differ between micro-batches.

    Parameters
    ----------
    parts
        For each micro-batch of the schedule, what `cut` would give: a tensor with its rows, or a tuple or mapping of
        them. Sequences may be longer in one than in another.

    Examples
    --------
    >>> import torch
    >>> texts = MicroBatches([torch.zeros(2, 5), torch.zeros(1, 9)])
    >>> [x.shape for x in cut("batch", texts, (2, 1))]
    [torch.Size([2, 5]), torch.Size([1, 9])]
    """

    parts: Sequence[object]


def cut(name: str, data: object, sizes: Sequence[int]) -> tuple[object, ...]:
    """Cut along the first dimension: micro-batch j gets `sizes[j]` rows, after those of the micro-batches before it.

    Parameters
    ----------
    name
        What to call the data in messages.
    data
        A tensor; or a tuple, list or mapping of such data, cut part by part; or None, which stays None. Or
        `MicroBatches`, which are cut already.

    Raises
    ------
    InputError
        If it is anything else, or if a tensor has another number of rows, or if there are more or fewer micro-batches.

    Examples
    --------
    >>> import torch
    >>> cut("batch", torch.arange(3), (1, 2))
    (tensor([0]), tensor([1, 2]))
    """
    return _cut(name, data, sizes, _refuse)


def cut_keywords(keywords: Mapping[str, object], sizes: Sequence[int]) -> tuple[Mapping[str, object], ...]:
    """Cut keyword arguments as `cut` does; what has no rows (numbers, texts, functions, …) is for all micro-batches.

    Raises
    ------
    InputError
        If a tensor has another number of rows, or if there are more or fewer micro-batches.

    Examples
    --------
    >>> import torch
    >>> cut_keywords({"mask": torch.tensor([True, False]), "causal": True}, (1, 1))
    ({'mask': tensor([True]), 'causal': True}, {'mask': tensor([False]), 'causal': True})
    """
    columns = {name: _cut(name, data, sizes, lambda name, other: other) for name, data in keywords.items()}
    return tuple({name: parts[j] for name, parts in columns.items()} for j in range(len(sizes)))


def _cut(name: str, data: object, sizes: Sequence[int], other: Callable[[str, object], object]) -> tuple[object, ...]:
    """Cut data; `other` says what becomes of what is no tensor, or refuses it."""
    if isinstance(data, MicroBatches):
        if len(data.parts) != len(sizes):
            raise InputError(
                f"{name} has {len(data.parts)} micro-batches, and the schedule {len(sizes)}: {list(sizes)}"
            )
        return tuple(
            part
            for j, (rows, size) in enumerate(zip(data.parts, sizes, strict=True))
            for part in _cut(f"{name}.parts[{j}]", rows, (size,), other)
        )
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
        return None if data is None else other(name, data)

    return tuple(part(name, data, stop - size, stop) for stop, size in zip(ends, sizes, strict=True))


def _refuse(name: str, data: object) -> object:
    raise InputError(f"{name} is a {type(data).__name__}; give tensors with one row for each sample")


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
    if isinstance(batch, MicroBatches):
        return tuple(_rows(part) for part in batch.parts)
    total = _rows(batch)
    base, larger = divmod(total, -(-total // largest))
    return (base,) * (-(-total // largest) - larger) + (base + 1,) * larger


def _rows(data: object) -> int:
    """Samples of a batch, by its first tensor."""
    while isinstance(data, tuple | list) and data:
        data = data[0]
    if not isinstance(data, Tensor) or data.dim() == 0 or not data.shape[0]:
        raise InputError("batch has no rows; give tensors with one row for each sample")
    return data.shape[0]
