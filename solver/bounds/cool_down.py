"""What filling the end of a schedule with weight gradients costs, where fused backwards would have been cheaper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.schedule import Array


@dataclass(frozen=True, slots=True)
class Filling:
    """What may be left on a rank when its way out begins: whole backwards and, or, weight gradients of others.

    A rank's work is counted as `whole` for every backward, the cheaper of fused and split. A weight gradient that is
    left makes its backward a split one, which costs what fusing would have saved. To let it wait is worth its ticks.

    Parameters
    ----------
    wholes
        Ticks of whole backwards left, for every number of them, shape (U,).
    weights
        Most ticks of weight gradients that memory lets be left beside them, shape (U,).
    net
        The same, each less by what fusing it would have saved.
    longest
        Ticks of the n longest weight gradients, shape (N + 1,).
    saves
        What the n cheapest splits cost, shape (N + 1,).
    """

    wholes: Array
    weights: Array
    net: Array
    longest: Array
    saves: Array

    def extra(self, way: int) -> int:
        """Least ticks beyond all counted work, if the way out takes `way` ticks more than what is left in any case.

        With weight gradients of n backwards left, splitting costs at least `saves[n]`, and they cover at most
        `longest[n]` of the way, and what memory lets be left. What is not covered is idle. What each covers less what
        it costs is at most `net` in sum, so that the extra is also at least what that does not cover.

        Examples
        --------
        Six weight gradients of 9 ticks would fill the way of 50; to split each costs 2. The last 5 ticks are idle, as
        to fill them costs less with a sixth.

        >>> six = np.arange(7)
        >>> zero = np.zeros(1, dtype=np.int64)
        >>> Filling(zero, zero + 54, zero + 42, 9 * six, 2 * six).extra(50)
        12
        """
        short = way - self.wholes
        # More than cover the way are of no use; where splitting is free, as many as there are.
        least = 1 + int(np.searchsorted(self.longest, way)) if self.saves[-1] > 0 else 0
        numbers = slice(0, least) if least else slice(-1, None)
        covered = np.minimum(self.longest[None, numbers], self.weights[:, None])
        costs = (self.saves[None, numbers] + np.maximum(0, short[:, None] - covered)).min(axis=1)
        return max(0, int(np.maximum(costs, short - self.net).min()))
