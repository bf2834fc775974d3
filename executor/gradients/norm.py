"""One norm for the gradients of a whole pipeline, and clipping by it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

from ..crew import Crew
from ..waiting import wait_in_time

_EPSILON = 1e-6
"""Added to the norm that is divided by, as `torch.nn.utils.clip_grad_norm_` does."""


def global_norm(parameters: Iterable[nn.Parameter], crew: Crew, device: torch.device | None, timeout_s: float) -> float:
    """Euclidean norm of the gradients of all ranks of a pipeline, the same on each of them.

    Parameters
    ----------
    parameters
        Those that count on this rank: no parameter may be among those of two ranks. Without a gradient they count 0.
    crew
        All processes of its replica call this together.
    device
        Where the ranks' sums meet.
    timeout_s
        Seconds that others may take to come.

    Raises
    ------
    Late
        If they take longer.
    """
    squares = torch.zeros(1, dtype=torch.float64, device=device)
    for parameter in parameters:
        if parameter.grad is not None:
            norm = torch.linalg.vector_norm(_values(parameter.grad), dtype=torch.float64)
            squares += norm.to(squares.device) ** 2
    late = f"not every rank has come to the gradients' norm within {timeout_s:g} s"
    wait_in_time(dist.all_reduce(squares, group=crew.group, async_op=True), timeout_s, late)
    return float(squares.sqrt())


def scale(parameters: Iterable[nn.Parameter], norm: float, max_norm: float) -> None:
    """Scale gradients down to a norm of at most `max_norm`, given that of all of them together.

    Examples
    --------
    >>> weight = nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> scale([weight], norm=5.0, max_norm=1.0)
    >>> weight.grad
    tensor([0.6000, 0.8000])
    >>> scale([weight], norm=float("nan"), max_norm=1.0)  # as torch's, it does not hide what went wrong
    >>> weight.grad
    tensor([nan, nan])
    """
    factor = norm if math.isnan(norm) else min(1.0, max_norm / (norm + _EPSILON))
    if factor != 1.0:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)


def _values(grad: torch.Tensor) -> torch.Tensor:
    """Of a sparse gradient, its values once those of one place are added up."""
    return grad if grad.layout is torch.strided else grad.coalesce().values()
