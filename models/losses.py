"""Losses that are means over samples, so that micro-batches weigh in by their number of samples."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from adaptpipe.solver import InputError


def next_byte_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of the next byte, in nats.

    Every sample has the same number of targets, so the mean over targets is the mean over samples of each sample's
    mean. The loss of a batch is therefore the mean of its micro-batches' losses, weighted by their sizes.

    Parameters
    ----------
    logits
        Score of each byte, [samples, …, vocab].
    target
        The byte that follows, int64, [samples, …].

    Raises
    ------
    InputError
        If the shapes differ in anything but the last dimension of `logits`.

    Examples
    --------
    >>> import torch
    >>> loss = next_byte_loss(torch.zeros(2, 5, 256), torch.zeros(2, 5, dtype=torch.int64))
    >>> round(loss.item(), 4)  # all bytes alike: log(256)
    5.5452
    """
    if logits.shape[:-1] != target.shape:
        raise InputError(
            f"next_byte_loss: logits of shape {tuple(logits.shape)} and target of shape {tuple(target.shape)}; "
            f"the target must have the logits' shape without its last dimension, {tuple(logits.shape[:-1])}"
        )
    return F.cross_entropy(logits.flatten(0, -2), target.flatten())
