"""A bound for tight memory that takes its time: the optimum of a few ranks, then of more of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

from ..core.problem import Problem
from ..core.result import Objective
from . import instance_bound
from .few_ranks import LATEST, Kept, applies, in_equal_units, least
from .from_the_end import Ends, Layer, ends
from .paths import Paths, paths

MOST_LABELS = 1 << 18
"""Labels of one layer, beyond which a search is given up: a few hundred bytes each."""


def tight_bound(
    problem: Problem,
    sizes: tuple[int, ...],
    objective: Objective = "makespan",
    *,
    deadline: float,
    known: int | None = None,
) -> int:
    """Ticks that no schedule of the problem gets below; the more time there is, the more ranks are looked at together.

    Starts from `instance_bound`, and never returns less. Beyond that it works for the makespan, one direction and alike
    micro-batches.

    Parameters
    ----------
    problem
        The problem. Some schedule must respect its limits.
    sizes
        Samples of each micro-batch.
    objective
        What is minimised.
    deadline
        Moment of `time.monotonic` at which to stop.
    known
        Value of a schedule. The bound stops growing there: it is proven optimal then. Without one, the search does not
        know what to aim at, and is slower.

    Examples
    --------
    >>> problem = Problem.from_dict({
    ...     "pipeline": {"ranks": 2, "placement": "v", "stages_per_rank": 2},
    ...     "batch": {"samples": 4},
    ...     "costs": {"forward": 2, "backward_input": 2, "backward_weight": 1},
    ...     "links": {"latency": 1},
    ...     "memory": {"activation": 2, "retained": 1, "limit": 5},
    ... })
    >>> sizes = problem.default_sizes()
    >>> instance_bound(problem.instance(sizes)), tight_bound(problem, sizes, deadline=monotonic() + 9)
    (58, 66)
    """
    instance = problem.instance(sizes)
    best = instance_bound(instance, objective)
    if objective != "makespan" or not applies(instance) or (known is not None and best >= known):
        return best
    if known is None:
        # With fused backwards, one micro-batch after another is a schedule.
        ticks = int((instance.forward + instance.backward).sum() + 2 * instance.lag.sum())
        known = min(ticks, best + best // 4) + 1
    return best if known > LATEST else _Search(paths(in_equal_units(instance)), best, known, deadline).run()


ALONE, SHARE = 100, 2
"""The part of the time that is left which one search may take: one over this, for a single rank and for more."""

LOWER, AIMS = 4, 3
"""What has to be beaten is lowered to one part in so many of the way, where there are too many labels; and how many
times at most it is too high, one less for a single rank and for two."""

APART, THEN_APART = 3, 2
"""Eighths of the ranks that two kept ranks are apart, at best; and a further one from the nearest of them."""

FIRST = 8
"""What has to be beaten is at first one part in so many of the way, with three ranks or more; then twice as far each
time, as long as it is not."""

CANDIDATES, ROUND = 2, 10
"""Sets of the same number of ranks that are tried in any case; and more while less than one over this of the time that
was left is spent on that number."""


@dataclass(slots=True)
class _Search:
    """Sets of ranks of growing size: the best one so far, and one rank more."""

    paths: Paths
    best: int
    known: int
    deadline: float
    below: dict[tuple[int, ...], Ends | None] = field(default_factory=dict)
    """What each set of ranks needs from the end on, to beat the highest value asked for."""

    def run(self) -> int:
        ranks = self.paths.instance.ranks
        alone = [(*self._of((rank,), ALONE), rank) for rank in reversed(range(ranks)) if not self.over]
        kept: tuple[int, ...] = (max(alone)[2],) if alone else ()
        while 0 < len(kept) < ranks and not self.over:
            found: list[tuple[int, bool, tuple[int, ...]]] = []
            now = monotonic()
            for more in self._wider(kept):
                if self.over or (len(found) >= CANDIDATES and (monotonic() - now) * ROUND > self.deadline - now):
                    break
                found.append((*self._of(more, SHARE, kept), more))
            if not any(settled for _, settled, _ in found):
                break
            kept = max(found)[2]
        return min(self.best, self.known)

    def _wider(self, kept: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Every set of one rank more. First those whose new rank is about three eighths of the ranks from the others:
        found by trial, on V placements; near ranks tell each other little, far ones hardly meet."""
        ranks = self.paths.instance.ranks
        away = max(1, (APART if len(kept) == 1 else THEN_APART) * ranks // 8)
        others = set(range(ranks)) - set(kept)
        order = sorted(others, key=lambda rank: (abs(min(abs(rank - k) for k in kept) - away), -rank))
        return [tuple(sorted((*kept, rank))) for rank in order]

    @property
    def over(self) -> bool:
        return self.best >= self.known or monotonic() >= self.deadline

    def _of(self, ranks: tuple[int, ...], share: int, part: tuple[int, ...] = ()) -> tuple[int, bool]:
        """Best bound of a set of ranks, and whether it is their optimum or all that is asked for.

        `part` are ranks of it of which it is known what they need.
        """
        kept, proven, failures = Kept(self.paths, ranks), 0, 0
        step = self.known - self.best
        if len(ranks) > 2:
            step = max(1, step // FIRST)
        while not self.over and failures < AIMS - (len(ranks) < 3):
            aim = min(self.known, max(self.best, proven) + step)
            now = monotonic()
            tables = self._tables(part, aim)
            found = least(kept, aim, MOST_LABELS, now + (self.deadline - now) / share, tables)
            self.best, proven = max(self.best, found.bound), max(proven, found.bound)
            if found.exact or found.bound == self.known:
                return proven, True
            if found.bound == 0:
                failures, step = failures + 1, max(1, step // LOWER)
            elif failures == 0:
                step *= 2
        return proven, False

    def _tables(self, part: tuple[int, ...], aim: int) -> tuple[Ends, ...]:
        """What some ranks need from the end on, to beat the aim: found anew where it rises."""
        if len(part) < 2:
            return ()
        old = self.below.get(part)
        if part not in self.below or (old is not None and old.below < aim):
            few, layers, now = Kept(self.paths, part), list[Layer](), monotonic()
            until = now + (self.deadline - now) / SHARE
            found = least(few, aim, MOST_LABELS, until, layers=layers)
            self.below[part] = ends(few, layers, aim, MOST_LABELS, until) if found.bound else None
        table = self.below[part]
        return () if table is None else (table,)
