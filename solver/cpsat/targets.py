"""Which makespan to ask for next: the nearer a target is to what is possible, the longer "no" takes to prove."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_EFFORT = 1.0
"""Deterministic time of the first tries; four times as much in each further round."""

FINE = 4
"""A round ends when the part that is not known to be too hard is this many times smaller than all that is open."""


@dataclass(slots=True)
class Targets:
    """Rounds of targets between the bound and the best value, in steps.

    A round begins just below the best value: where that is refuted, all is done. Otherwise it halves the distance to
    the bound, until what is left is small; then the next round gives each target four times the effort.

    Parameters
    ----------
    effort
        Deterministic time for each target of the round.

    Examples
    --------
    >>> targets = Targets()
    >>> targets.next(100, 200)
    199
    >>> targets.too_hard(199)
    >>> targets.next(100, 200)
    149
    >>> targets.next(150, 200)  # 149 was refuted, so the bound is 150
    174
    """

    effort: float = FIRST_EFFORT
    _reached: int | None = None
    _hard: int | None = None
    _begun: bool = False

    def next(self, bound: int, value: int) -> int | None:
        """Target to try now; None where none is open.

        Parameters
        ----------
        bound
            No schedule is below it.
        value
            Of the best schedule.
        """
        top = (value if self._reached is None else min(value, self._reached)) - 1
        if top < bound:
            return None
        high = top if self._hard is None else min(top, self._hard - 1)
        if self._hard is not None and (high - bound) * FINE < top - bound + 1:
            self.effort, self._hard, self._begun, high = 4 * self.effort, None, False, top
        if not self._begun:
            self._begun = True
            return top
        return (bound + high) // 2

    def too_hard(self, target: int) -> None:
        """The effort was not enough for this target."""
        self._hard = target if self._hard is None else min(self._hard, target)

    def reached(self, target: int) -> None:
        """The model has a solution at this target, whatever its schedule is worth on the clock: no use to ask again."""
        self._reached = target if self._reached is None else min(self._reached, target)
