"""Problems of a shape, without prices."""

from __future__ import annotations

from collections.abc import Sequence

from .placement import Placement
from .problem import Problem


def bare_problem(placement: Placement, samples: int, sizes: Sequence[int]) -> Problem:
    """A problem of the right shape, before its prices are known: every op takes no time and holds nothing.

    Parameters
    ----------
    placement
        Stage to rank.
    samples
        Samples of a batch.
    sizes
        Micro-batch sizes that a schedule may use, ascending.

    Raises
    ------
    InputError
        When the sizes do not ascend, or do not make up the batch.

    Examples
    --------
    >>> from adaptpipe.solver import place
    >>> bare_problem(place("v", 2, 2), 6, [2]).stages
    4
    """
    return Problem.from_dict(
        {
            "pipeline": {"ranks": placement.ranks, "placement": [list(row) for row in placement.stages]},
            "batch": {"samples": samples, "microbatch_sizes": list(sizes)},
            "costs": {key: {} for key in ("forward", "backward_input", "backward_weight")},
        }
    )
