"""What travels between stages: tuples of tensors of any dtype and shape, announced by a header.

A header of fixed size goes ahead of the tensors, so shapes may differ between micro-batches and steps, and a message
that is not the expected one is noticed; gloo by itself takes a short message for a long one without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from adaptpipe.solver import InputError

from ..errors import TransportError

Message = tuple[Tensor | None, ...]
"""None stands for 'no tensor', as the gradient of an output that nobody used."""

HEADER_WORDS = 64
"""64-bit words of the first part of a header; longer ones have a second part."""

ENVELOPE = 8 * HEADER_WORDS
"""Bytes of that part. A tensor that travels in one piece with it comes right behind."""

_ENCLOSED = 1 << 20  # bytes; to copy more into one piece costs as much as a second message

_MAGIC = 0x4144415054504950
_FIXED = 5  # words before the first tensor's
_NOTHING = -1

# The place in this list is what travels; both ends run the same version.
_DTYPES: tuple[torch.dtype, ...] = (
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
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


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


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says: number of the message in its channel, micro-batch, tensors."""

    number: int
    microbatch: int
    specs: tuple[TensorSpec | None, ...]


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
            if part.layout is not torch.strided or part.is_nested or part.dtype not in _CODES:
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


def layout(parts: Sequence[Tensor | TensorSpec | None]) -> tuple[TensorSpec, ...]:
    """What receives must be posted for a message, whether or not its tensors take part in the backward.

    Examples
    --------
    >>> layout((torch.ones(3, requires_grad=True), None, torch.ones(0)))
    (TensorSpec(dtype=torch.float32, shape=(3,), requires_grad=False, on_cpu=True),)
    """
    found = []
    for part in parts:
        if part is not None and 0 not in part.shape:
            on_cpu = part.on_cpu if isinstance(part, TensorSpec) else part.device.type == "cpu"
            found.append(TensorSpec(part.dtype, tuple(part.shape), requires_grad=False, on_cpu=on_cpu))
    return tuple(found)


def enclosed(specs: Sequence[TensorSpec]) -> int:
    """Bytes of the tensor that travels in one piece with the header, where messages are as `specs`; 0 if none does.

    Examples
    --------
    >>> enclosed(layout([torch.ones(3)])), enclosed(layout([torch.ones(3), torch.ones(3)]))
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
    >>> inside(torch.empty(ENVELOPE + 12, dtype=torch.uint8), *layout([torch.ones(3)])).untyped_storage().nbytes()
    12
    """
    storage = envelope.untyped_storage()[ENVELOPE:]
    return torch.empty(0, dtype=spec.dtype, device="cpu").set_(storage).resize_(spec.shape)


def encode(number: int, microbatch: int, message: Message) -> list[Tensor]:
    """Write the header of a message: one part of `HEADER_WORDS` words, and a second one if that is too short."""
    words = [_MAGIC, number, microbatch, 0, len(message)]
    for tensor in message:
        if tensor is None:
            words.append(_NOTHING)
        else:
            flags = tensor.requires_grad | (tensor.device.type == "cpu") << 1
            words += [_CODES[tensor.dtype], flags, tensor.dim(), *tensor.shape]
    words[3] = len(words)
    words += [0] * (HEADER_WORDS - len(words))
    # By numpy, which takes a list of integers ten times as fast.
    return [torch.from_numpy(np.array(part)) for part in (words[:HEADER_WORDS], words[HEADER_WORDS:]) if part]


def missing_words(first: Tensor) -> int:
    """Tell how many words the second part of a header has, from its first part.

    Raises
    ------
    TransportError
        If it is no header.
    """
    magic, _, _, total = (int(word) for word in first[:4].tolist())
    if magic != _MAGIC or total < _FIXED:
        raise TransportError("what arrived is not the header of a message; do all ranks run the same version?")
    return max(0, total - HEADER_WORDS)


def decode(header: Tensor) -> Header:
    """Read a header, both parts in one tensor.

    Examples
    --------
    >>> decode(torch.cat(encode(7, 2, (torch.ones(3, 1), None)))).specs[1] is None
    True
    """
    _, number, microbatch, _, count, *words = header.tolist()
    specs: list[TensorSpec | None] = []
    at = 0
    for _ in range(count):
        code = words[at]
        at += 1
        if code == _NOTHING:
            specs.append(None)
            continue
        flags, dim = words[at : at + 2]
        shape = tuple(words[at + 2 : at + 2 + dim])
        at += 2 + dim
        specs.append(TensorSpec(_DTYPES[code], shape, bool(flags & 1), bool(flags & 2)))
    return Header(number, microbatch, tuple(specs))
