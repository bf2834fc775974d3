"""Which makespan to ask for next: the nearer a target is to what is possible, the longer "no" takes to prove."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_EFFORT = 1.0
"""Deterministic time of each target of the first round."""

HARDER = 4.0
"""Effort of a round, compared with the one before."""

FINE = 4
"""A round ends when what may still be easy enough is less than one part in so many of what was open when it began."""


@dataclass(slots=True)
class Targets:
    """Rounds of targets between the bound and the best value, in steps.

    The first target is just below the best value: where that is refuted, all is done. One that is too hard makes the
    next be half as far from the bound, until what is left is small. The next round, with more effort for each target,
    begins with the lowest that was too hard, and where that is refuted tries the highest again. One that is reached
    makes the next be half as far from the bound, too.

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
    _begin: int | None = None
    _open: int = 0
    _halve: bool = False

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
        self._open = self._open or top - bound + 1
        if self._hard is not None and (min(top, self._hard - 1) - bound) * FINE < self._open:
            self.effort, self._begin, self._hard = HARDER * self.effort, self._hard, None
            self._open = top - bound + 1
        if self._begin is not None:
            begin, self._begin = min(self._begin, top), None
            if begin >= bound:
                return begin
        halve, self._halve = self._halve or self._hard is not None, False
        return (bound + (top if self._hard is None else min(top, self._hard - 1))) // 2 if halve else top

    def too_hard(self, target: int) -> None:
        """The effort was not enough for this target."""
        self._hard = target if self._hard is None else min(self._hard, target)

    def reached(self, target: int) -> None:
        """The model has a solution at this target, whatever its schedule is worth on the clock: no use to ask again."""
        self._reached = target if self._reached is None else min(self._reached, target)
        self._halve = True
