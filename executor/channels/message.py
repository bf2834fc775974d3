"""What travels between stages: tuples of tensors of any dtype and shape, announced by a header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from adaptpipe.solver import InputError

Message = tuple[Tensor | None, ...]
"""None stands for 'no tensor', as the gradient of an output that nobody used."""

ENVELOPE = 512
"""Bytes of the first part of a header. A tensor that travels in one piece with it comes right behind."""

_ENCLOSED = 1 << 20  # bytes; to copy more into one piece costs as much as a second message

DTYPES: tuple[torch.dtype, ...] = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)
"""What a message may be made of."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Dtype and shape of a tensor to come, whether it takes part in the backward, and whether it is on the CPU."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    requires_grad: bool
    on_cpu: bool

    @property
    def travels(self) -> bool:
        """Whether there is anything to send beside what the header says."""
        return 0 not in self.shape


def as_message(stage: int, output: object) -> Message:
    """Make a message of what a stage returned: a tensor, or a tuple or list of tensors and None.

    Raises
    ------
    InputError
        If it is anything else, or if a tensor is sparse, nested or quantised.

    Examples
    --------
    >>> len(as_message(0, [torch.zeros(2), None]))
    2
    """
    parts = tuple(output) if isinstance(output, tuple | list) else (output,)
    for place, part in enumerate(parts):
        what = f"stage {stage}: output {place}" if isinstance(output, tuple | list) else f"stage {stage}: the output"
        if isinstance(part, Tensor):
            if part.layout is not torch.strided or part.is_nested or part.dtype not in DTYPES:
                raise InputError(
                    f"{what} is a tensor of layout {part.layout} and dtype {part.dtype}; "
                    "stages pass on dense tensors of plain dtypes"
                )
        elif part is not None or not isinstance(output, tuple | list):
            raise InputError(
                f"{what} is a {type(part).__name__}; a stage returns a tensor, or a tuple or list of tensors and None"
            )
    return tuple(part if isinstance(part, Tensor) else None for part in parts)


def nbytes(message: Sequence[Tensor | None]) -> int:
    """Add up the sizes of the tensors, in bytes."""
    return sum(tensor.nbytes for tensor in message if tensor is not None)


def specs_of(message: Message) -> tuple[TensorSpec | None, ...]:
    """Say what a message is made of."""
    return tuple(
        None if part is None else TensorSpec(part.dtype, tuple(part.shape), part.requires_grad, part.is_cpu)
        for part in message
    )


@lru_cache(maxsize=1024)
def layout(specs: tuple[TensorSpec | None, ...]) -> tuple[TensorSpec, ...]:
    """What receives must be posted for a message, whether or not its tensors take part in the backward.

    Examples
    --------
    >>> layout(specs_of((torch.ones(3, requires_grad=True), None, torch.ones(0))))
    (TensorSpec(dtype=torch.float32, shape=(3,), requires_grad=False, on_cpu=True),)
    """
    return tuple(replace(spec, requires_grad=False) for spec in specs if spec is not None and spec.travels)


def enclosed(specs: Sequence[TensorSpec]) -> int:
    """Bytes of the tensor that travels in one piece with the header, where receives are `specs`; 0 if none does.

    Examples
    --------
    >>> one, two = specs_of((torch.ones(3),)), specs_of((torch.ones(3), torch.ones(3)))
    >>> enclosed(layout(one)), enclosed(layout(two))
    (12, 0)
    """
    if len(specs) != 1:
        return 0
    size = specs[0].dtype.itemsize * prod(specs[0].shape)
    return size if size <= _ENCLOSED else 0


def inside(envelope: Tensor, spec: TensorSpec) -> Tensor:
    """The tensor behind the header in one piece of memory, which lives as long as it; its storage ends where it does.

    Examples
    --------
    >>> spec, envelope = TensorSpec(torch.float32, (3,), False, True), torch.empty(ENVELOPE + 12, dtype=torch.uint8)
    >>> inside(envelope, spec).untyped_storage().nbytes()
    12
    """
    storage = envelope.untyped_storage()[ENVELOPE:]
    return torch.empty(0, dtype=spec.dtype, device="cpu").set_(storage).resize_(spec.shape)
