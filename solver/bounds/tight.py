"""A bound for tight memory that takes its time: the optimum of a few ranks, then of more of them."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from ..core.problem import Problem
from ..core.result import Objective
from . import instance_bound
from .few_ranks import Kept, applies, least
from .paths import Paths, paths

MOST_LABELS = 1 << 20
"""Labels of one layer, beyond which a search is given up: a few hundred bytes each."""

FIRST_LABELS = 1 << 16
"""The same while ranks are still compared with each other."""


def tight_bound(
    problem: Problem,
    sizes: tuple[int, ...],
    objective: Objective = "makespan",
    *,
    deadline: float,
    known: int | None = None,
) -> int:
    """Ticks that no schedule of the problem gets below; the more time there is, the more ranks are looked at together.

    Starts from `instance_bound`, and never returns less. Beyond that it works for the makespan, one direction, alike
    micro-batches and whole weight gradients.

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
    return _Search(paths(instance), best, known, deadline).run()


SHARES = 3
"""The part of the time that is left which one search may take: one over this."""

STEPS = 8
"""The first aim is this part of the way up, the next ones twice as far each."""


@dataclass(slots=True)
class _Search:
    """Sets of ranks of growing size: the best one so far, and one rank more."""

    paths: Paths
    best: int
    known: int
    deadline: float

    def run(self) -> int:
        ranks = range(self.paths.instance.ranks)
        kept: tuple[int, ...] = ()
        while len(kept) < len(ranks) and not self.over:
            tried = []
            for rank in ranks:
                if rank not in kept and not self.over:
                    more = tuple(sorted((*kept, rank)))
                    bound, settled = self._of(more, FIRST_LABELS)
                    tried.append((bound, settled, more))
            if not tried:
                break
            bound, settled, kept = max(tried)
            if not settled:
                self._of(kept, MOST_LABELS)
        return min(self.best, self.known)

    @property
    def over(self) -> bool:
        return self.best >= self.known or monotonic() >= self.deadline

    def _of(self, ranks: tuple[int, ...], most: int) -> tuple[int, bool]:
        """Best bound of a set of ranks, and whether it is their optimum or all that is asked for.

        The higher the aim, the more labels: it is raised step by step, until there are too many.
        """
        kept, proven, step = Kept(self.paths, ranks), 0, max(1, (self.known - self.best) // STEPS)
        while not self.over:
            aim = min(self.known, max(self.best, proven) + step)
            found = least(kept, aim, most, min(self.deadline, monotonic() + (self.deadline - monotonic()) / SHARES))
            self.best, proven = max(self.best, found.bound), max(proven, found.bound)
            if found.exact or found.bound == self.known:
                return proven, True
            if found.bound == 0:
                break
            step *= 2
        return proven, False
