"""Cut micro-batches along their sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import gcd

from torch import Tensor

from adaptpipe.solver import InputError


class SequenceCut:
    """Cuts the data of one step along the second dimension of its tensors, the sequence.

    Parameters
    ----------
    tokens
        Tokens of each slice of a sequence, relative to each other; a single one leaves all as it is. Slices have these
        parts exactly, so that their losses weigh in by them: lengths that do not divide so are refused.

    Examples
    --------
    >>> import torch
    >>> texts = [torch.arange(6).reshape(1, 6), torch.arange(3).reshape(1, 3)]  # two micro-batches of one sample each
    >>> [x.tolist() for x in SequenceCut((2, 1)).cut("batch", texts)]
    [[[0, 1, 2, 3]], [[4, 5]], [[0, 1]], [[2]]]
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        common = gcd(*tokens)
        self._tokens = tuple(part // common for part in tokens)
        self._borders = (0, *accumulate(self._tokens))
        self._lengths: dict[int, tuple[int, str]] = {}  # of each micro-batch, and what was seen to have it

    def cut(self, name: str, parts: Sequence[object]) -> tuple[object, ...]:
        """Cut data of each micro-batch into slices.

        Parameters
        ----------
        name
            What to call the data in messages.
        parts
            For each micro-batch, its rows: a tensor, or a tuple, list or mapping of such data. What is no tensor is for
            all slices.

        Returns
        -------
        tuple
            The slices of the first micro-batch, then those of the second, and so on.

        Raises
        ------
        InputError
            If a tensor has no second dimension, or has another length than others of its micro-batch, or one that
            cannot be cut.
        """
        slices = range(len(self._tokens))
        return tuple(self._slice(name, part, j, i) for j, part in enumerate(parts) for i in slices)

    def cut_keywords(self, given: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, object], ...]:
        """Cut the keyword arguments of each micro-batch into slices, as `cut` does."""
        return tuple(
            {name: self._slice(name, data, j, i) for name, data in keywords.items()}
            for j, keywords in enumerate(given)
            for i in range(len(self._tokens))
        )

    def _slice(self, name: str, data: object, j: int, i: int) -> object:
        if len(self._tokens) == 1:
            return data
        if isinstance(data, Tensor):
            unit = self._length(name, data, j) // self._borders[-1]
            return data[:, unit * self._borders[i] : unit * self._borders[i + 1]]
        if isinstance(data, Mapping):
            return {key: self._slice(f"{name}[{key!r}]", value, j, i) for key, value in data.items()}
        if isinstance(data, tuple | list):
            return tuple(self._slice(f"{name}[{place}]", value, j, i) for place, value in enumerate(data))
        return data

    def _length(self, name: str, x: Tensor, j: int) -> int:
        """Length of the sequences of a micro-batch's tensor."""
        if x.dim() < 2:
            raise InputError(
                f"{name} has shape {tuple(x.shape)} and no sequence to cut into slices; give it a second dimension of "
                "the sequence's length, or solve without batch.slices"
            )
        length = x.shape[1]
        known, whose = self._lengths.setdefault(j, (length, name))
        if length != known:
            raise InputError(
                f"micro-batch {j}: {whose} has sequences of length {known}, and {name} has {length}; the second "
                "dimension of all tensors that are cut into slices must be the sequence's"
            )
        require_divisible(f"micro-batch {j}: {name} has sequences of length {length}", length, self._tokens)
        return length


def require_divisible(what: str, length: int, tokens: Sequence[int]) -> None:
    """Check that sequences of a length can be cut into slices whose tokens are in given proportions.

    Raises
    ------
    InputError
        If not; it begins with `what`, which has the length.
    """
    common = gcd(*tokens)
    whole = sum(tokens) // common
    if length == 0 or length % whole:
        nearest = [str(fits) for fits in (length // whole * whole, (length // whole + 1) * whole) if fits]
        raise InputError(
            f"{what}, which slices in the proportions {':'.join(str(part // common) for part in tokens)} do not "
            f"divide; use multiples of {whole}, as {' or '.join(nearest)}, or other slices"
        )
