"""Which plan is proposed, and whether it is recommended: judged where costs are wrong, in the time that there is."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..plan import Plan
from ..rivals.today import Today
from .robust import ERRORS, Robustness, ranked, robustness
from .wrong_costs import SOURCES, Source

ALIKE = 0.001
"""Plans that are slower than the fastest by at most this share of it may be preferred to it, where costs are wrong."""

JUDGED = 0.1
"""Relative error of the costs that a plan's gain must outlive."""

MOST_ALIKE = 4
"""Plans that are compared so."""

RIVALS = 3
"""The best of so many of today's methods are what a plan is compared with where costs are wrong."""

DRAWS, FEWER_DRAWS, FEWEST_DRAWS = 40, 10, 5
"""Draws of wrong costs: usually; at least, where they take long; at least, where those take too long, too, and only
errors of all sources together are drawn."""

TOGETHER: tuple[Source, ...] = ("all",)


@dataclass(frozen=True, slots=True)
class Jury:
    """By how many draws of wrong costs plans are judged, of which sources of error.

    Parameters
    ----------
    draws, sources
        As of `robustness`.
    each_s
        Seconds of a draw of one plan, about.
    """

    draws: int
    sources: tuple[Source, ...]
    each_s: float

    @classmethod
    def within(cls, base: Plan, seconds: float) -> Jury:
        """Usually `DRAWS` of all sources; fewer where they would take too long, and then of all sources together."""
        ranked([base], JUDGED, 1)  # loads what it runs
        began = time.monotonic()
        ranked([base], JUDGED, 2)
        each_s = (time.monotonic() - began) / 2
        jury = cls(DRAWS, SOURCES, each_s)
        for fewest, sources in ((FEWER_DRAWS, SOURCES), (FEWEST_DRAWS, TOGETHER)):
            most = int(seconds / (cls(1, sources, each_s).takes_s or 1.0))
            jury = cls(min(DRAWS, max(most, fewest)), sources, each_s)
            if jury.takes_s <= seconds:
                break
        return jury

    @property
    def takes_s(self) -> float:
        """Seconds of all, about."""
        errors = sum(error > 0 for error in ERRORS)
        return self.each_s * self.draws * ((1 + RIVALS) * len(self.sources) * errors + MOST_ALIKE)

    def preferred(self, plans: tuple[Plan, ...], seed: int) -> tuple[Plan, ...]:
        """Of those that are about as fast as the fastest, the one first that is fastest where costs are wrong."""
        alike = [plan for plan in plans if plan.makespan <= (1 + ALIKE) * plans[0].makespan][:MOST_ALIKE]
        if len(alike) > 1:
            alike = [plan for plan, _ in ranked(alike, JUDGED, self.draws, seed)]
        return (*alike, *plans[len(alike) :])

    def judged(self, plan: Plan, bases: tuple[Today, ...], seed: int) -> Robustness:
        """What a plan gains where costs are wrong."""
        return robustness(plan, bases, draws=self.draws, seed=seed, sources=self.sources)
