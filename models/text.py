"""Real English text as bytes, and deterministic batches of it.

Without a file of the user's, the text is CPython's own documentation of the language, which ships with every
CPython as `pydoc_data.topics` (what `help("if")` shows): about 460 kB. It differs between versions of Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from adaptpipe.solver import InputError

from .config import GPTConfig, MLPConfig
from .layer import generator_for
from .registry import AnyConfig


def load_text(path: str | Path | None = None) -> bytes:
    """Bytes of a text file, or of the documentation inside CPython.

    Parameters
    ----------
    path
        The file, in any encoding; None: CPython's documentation topics, in the order of their names.

    Raises
    ------
    InputError
        If the file cannot be read or is empty, or this Python comes without its documentation.

    Examples
    --------
    >>> b"The \\"if\\" statement is used for conditional execution" in load_text()
    True
    """
    if path is None:
        try:
            from pydoc_data.topics import topics
        except ImportError as error:
            raise InputError("data: this Python has no pydoc_data.topics; give a text file, data = FILE") from error
        return "\n".join(topics[name] for name in sorted(topics)).encode()
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"data = {str(path)!r}: cannot be read ({reason}); give a text file") from error
    if not data:
        raise InputError(f"data = {str(path)!r}: the file is empty; give a text file")
    return data


def split_text(data: bytes, sequence: int, share: float = 0.1) -> tuple[bytes, bytes]:
    """Cut text into a part to train on and a last part to validate with.

    Parameters
    ----------
    data
        The text.
    sequence
        Bytes of a sample; each part holds at least one sample and the byte after it.
    share
        The validation part's share of the text, between 0 and 1, neither included.

    Returns
    -------
    tuple of bytes
        Training part, validation part. Where the share of a short text is less than one sample, validation gets one.

    Raises
    ------
    InputError
        If the text is too short for both parts, or the share is out of bounds.

    Examples
    --------
    >>> train, validation = split_text(bytes(1000), sequence=10)
    >>> len(train), len(validation)
    (900, 100)
    """
    if not 0 < share < 1:
        raise InputError(f"validation share = {share}: must be between 0 and 1, neither included")
    need = sequence + 1
    validation = max(round(len(data) * share), need)
    if len(data) - validation < need:
        raise InputError(
            f"data: {len(data)} bytes are too short to train on and to validate with {share:.0%} of them at "
            f"sequence = {sequence}; each part needs {need} bytes: give a longer text, or a shorter sequence"
        )
    return data[:-validation], data[-validation:]


def batches(data: bytes, sequence: int, samples: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of text and of the bytes that follow, at random places.

    Parameters
    ----------
    data
        The text.
    sequence
        Bytes of a sample.
    samples
        Samples of a batch.
    seed
        The same seed gives the same batches, on every rank.

    Yields
    ------
    tuple of Tensor
        Inputs and targets, int64, [samples, sequence]; targets are the inputs moved on by one byte.

    Raises
    ------
    InputError
        At the call, if `data` is shorter than one sample and the byte after it, or a size is below 1.

    Examples
    --------
    >>> inputs, targets = next(batches(bytes(range(100)), sequence=4, samples=2, seed=0))
    >>> inputs.shape, torch.equal(targets, inputs + 1)
    (torch.Size([2, 4]), True)
    """
    windows = _windows(data, sequence, samples, seed)
    return ((window[:, :-1], window[:, 1:]) for window in windows)


def training_batches(config: AnyConfig, data: bytes, samples: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of text in the form that a model takes; `next_byte_loss` is the loss of all kinds.

    A GPT and a decoder of transformers get `batches`. An MLP gets the `inputs` bytes before a byte, scaled to -1…1, as
    a vector float32 [samples, inputs], and that byte as a target int64 [samples].

    Raises
    ------
    InputError
        If the text is too short, or the model knows fewer than 256 bytes.

    Examples
    --------
    >>> config = MLPConfig(layers=1, width=8, inputs=4)
    >>> vectors, targets = next(training_batches(config, load_text(), samples=2, seed=0))
    >>> vectors.shape, targets.shape
    (torch.Size([2, 4]), torch.Size([2]))
    """
    if isinstance(config, MLPConfig):
        key, known = "outputs", config.outputs
    else:
        key, known = "vocab" if isinstance(config, GPTConfig) else "vocab_size", config.vocab
    largest = max(data, default=0)
    if largest >= known:
        raise InputError(f"model.{key} = {known}: the text has the byte {largest}; use 256 for any text")
    if not isinstance(config, MLPConfig):
        return batches(data, config.sequence, samples, seed)
    windows = _windows(data, config.inputs, samples, seed)
    return ((window[:, :-1].float() / 127.5 - 1, window[:, -1]) for window in windows)


def _windows(data: bytes, length: int, samples: int, seed: int) -> Iterator[Tensor]:
    """Endless random windows of `length` bytes and the byte after, int64 [samples, length + 1]."""
    for key, value in (("sequence", length), ("samples", samples)):
        if value < 1:
            raise InputError(f"{key} = {value}: must be at least 1")
    places = len(data) - length
    if places < 1:
        raise InputError(
            f"data: {len(data)} bytes are too short for samples of {length} bytes and the byte after; "
            f"give at least {length + 1} bytes, or use shorter samples"
        )
    text = torch.frombuffer(bytearray(data), dtype=torch.uint8)  # a copy, since torch wants to be able to write
    generator = generator_for(seed, "text")
    offsets = torch.arange(length + 1)

    def draw() -> Iterator[Tensor]:
        while True:
            starts = torch.randint(places, (samples, 1), generator=generator)
            yield text[starts + offsets].long()

    return draw()
