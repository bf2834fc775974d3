"""The header of a message: numbers that say what comes with it, or after it.

Its first part has a fixed size, so shapes may differ between micro-batches and steps, and a message that is not the
expected one is noticed; gloo by itself takes a short message for a long one without a word. Messages alike are sent
again and again, so what is the same in their headers is worked out once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..errors import TransportError
from .message import DTYPES, ENVELOPE, TensorSpec

HEADER_WORDS = ENVELOPE // 8
"""64-bit words of the first part of a header; longer ones have a second part."""

_MAGIC = 0x4144415054504950
_OWN = slice(2, 4)  # the words of one message; what is before and behind depends on its tensors alone
_FIXED = 5  # words before the first tensor's
_NOTHING = -1

_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}  # what travels; both ends run the same version

Words = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says: number of the message in its channel, micro-batch, tensors."""

    number: int
    microbatch: int
    specs: tuple[TensorSpec | None, ...]


def encode(header: Header) -> Words:
    """Write a header: `HEADER_WORDS` words, or more.

    Examples
    --------
    >>> decode(encode(Header(7, 2, (None,))).tolist())
    Header(number=7, microbatch=2, specs=(None,))
    """
    words = _written(header.specs).copy()
    words[_OWN] = header.number, header.microbatch
    return words


def missing_words(first: Sequence[int]) -> int:
    """Tell how many words the second part of a header has, from its first part.

    Raises
    ------
    TransportError
        If it is no header.
    """
    magic, total = first[:2]
    if magic != _MAGIC or total < _FIXED:
        raise TransportError("what arrived is not the header of a message; do all ranks run the same version?")
    return max(0, total - HEADER_WORDS)


def decode(words: Sequence[int]) -> Header:
    """Read a header, both parts in one."""
    total, number, microbatch = words[1 : _OWN.stop]
    return Header(number, microbatch, _read(tuple(words[_OWN.stop : total])))


def words_of(part: Tensor) -> list[int]:
    """The words at the beginning of what has arrived, at most those of the first part."""
    return part.numpy()[:ENVELOPE].view(np.int64).tolist()  # type: ignore[no-any-return]  # numpy's


@lru_cache(maxsize=1024)
def _written(specs: tuple[TensorSpec | None, ...]) -> Words:
    words = [_MAGIC, 0, 0, 0, len(specs)]
    for spec in specs:
        if spec is None:
            words.append(_NOTHING)
        else:
            words += [_CODES[spec.dtype], spec.requires_grad | spec.on_cpu << 1, len(spec.shape), *spec.shape]
    words[1] = len(words)
    return np.array(words + [0] * (HEADER_WORDS - len(words)))


@lru_cache(maxsize=1024)
def _read(words: tuple[int, ...]) -> tuple[TensorSpec | None, ...]:
    specs: list[TensorSpec | None] = []
    at = 1
    for _ in range(words[0]):
        code = words[at]
        at += 1
        if code == _NOTHING:
            specs.append(None)
            continue
        flags, dim = words[at : at + 2]
        specs.append(TensorSpec(DTYPES[code], words[at + 2 : at + 2 + dim], bool(flags & 1), bool(flags & 2)))
        at += 2 + dim
    return tuple(specs)
