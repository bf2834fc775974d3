"""The least makespan of any plan where there are few layers and ranks: every split with every placement."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, count, product
from time import monotonic

import numpy as np

from ...anneal import anneal
from ...bounds import infeasible, instance_bound
from ...bounds.few_ranks import LATEST, Kept, applies, least
from ...bounds.paths import paths
from ...core.cluster import Cluster
from ...core.instance import Instance
from ...core.placement import Placement
from ...core.problem import Problem
from ...core.schedule import Schedule
from ...evaluate.simulate import simulate
from ...greedy import greedy
from ..splits.stage_table import FAR, StageTable
from ..workload import Workload, split_of
from .every_plan_kernel import rate

MOST_LAYERS, MOST_RANKS, MOST_MICROBATCHES = 8, 3, 8
"""Up to here every plan is looked at."""

MOST_LABELS = 1 << 17
"""Labels of one layer of the search through orders, beyond which CP-SAT takes over."""


LABELS_S, GREEDY_S, ANNEAL_S = 0.2, 0.05, 0.2
"""Seconds for one look at a plan, by a search through orders, greedy policies, and annealing."""


@dataclass(slots=True)
class _Plan:
    """A split, a placement and a division, and how far its bound has been worked out."""

    division: int
    bounds: tuple[int, ...]
    row: tuple[int, ...]
    level: int = 0
    start: Schedule | None = None
    step: int = 1
    seconds: float = 1.0


def few(workload: Workload) -> bool:
    """Whether there are so few layers, ranks and micro-batches that every plan is looked at."""
    return (
        workload.layers <= MOST_LAYERS
        and workload.ranks <= MOST_RANKS
        and max(map(len, workload.divisions)) <= MOST_MICROBATCHES
    )


def least_of_all(workload: Workload, deadline: float, workers: int = 2) -> tuple[int, bool]:
    """Ticks that no plan gets below, and whether one gets there.

    Best first: of all plans the one with the least bound is looked at more closely, until the least bound is the
    makespan of a schedule. A plan's bound is at first one of paths and work, for all at once; then that of its problem;
    then what a search through its orders proves, and CP-SAT. Few plans need more than the first.

    Parameters
    ----------
    workload
        One for which `few` is true.
    deadline
        Moment of `time.monotonic` after which what is proven by then is returned. Another call goes on from there.
    workers
        Of CP-SAT.

    Returns
    -------
    tuple
        0 and False where no plan fits into memory.
    """
    search = _search(workload)
    search.deadline, search.workers = deadline, workers
    return search.run()


@lru_cache(maxsize=4)
def _search(workload: Workload) -> _Search:
    """The search of a workload, which goes on where it stopped."""
    return _Search(workload)


class _Search:
    deadline, workers = 0.0, 1

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.best = FAR
        """The least makespan of a plan that is known."""
        number = count()
        self.number = number
        self.heap: list[tuple[int, int, int, _Plan]] = [
            (bound, 0, next(number), plan) for bound, plan in _every(workload) if bound < FAR
        ]
        heapq.heapify(self.heap)

    def run(self) -> tuple[int, bool]:
        while self.heap and self.heap[0][0] < self.best:
            if monotonic() >= self.deadline:
                return self.heap[0][0], False
            bound, _, _, plan = self.heap[0]  # which stays until its better bound is there, in case of Ctrl-C
            better = max(bound, self._look(plan, bound))
            if better < min(self.best, FAR):
                heapq.heapreplace(self.heap, (better, -plan.level, next(self.number), plan))
            else:
                heapq.heappop(self.heap)
        return (self.best, True) if self.best < FAR else (0, False)

    def _look(self, plan: _Plan, bound: int) -> int:
        """A better bound of a plan, by the next of the ways."""
        division = self.workload.divisions[plan.division]
        placement = Placement(self.workload.ranks, (plan.row,))
        problem = self.workload.problem(split_of(plan.bounds), placement, division)
        plan.level += 1
        if plan.level == 1:
            return FAR if infeasible(problem, division) else instance_bound(problem.instance(division))
        if plan.level == 2:
            return self._labels(problem.instance(division), plan, bound)
        if plan.level == 3:
            return self._better(problem, division, plan, bound)
        return self._cpsat(problem, division, plan)

    def _better(self, problem: Problem, division: tuple[int, ...], plan: _Plan, bound: int) -> int:
        """Look for a short schedule: one that meets the bound ends the search."""
        start = greedy(problem, division, deadline=monotonic() + GREEDY_S, target=bound)
        assert start is not None, "one micro-batch at a time fits"
        end = min(self.deadline, monotonic() + ANNEAL_S)
        plan.start = anneal(problem, start, deadline=end, target=bound)
        self.best = min(self.best, simulate(problem, plan.start).makespan)
        return 0

    def _labels(self, instance: Instance, plan: _Plan, bound: int) -> int:
        """Prove a little more in a search of all orders, or the optimum; then once more."""
        plan.step *= 2
        aim = min(self.best, bound + plan.step)
        if not applies(instance) or aim > LATEST:
            return 0
        now = monotonic()
        kept = Kept(paths(instance), tuple(range(instance.ranks)))
        found = least(kept, aim, MOST_LABELS, now + min(LABELS_S, self.deadline - now))
        if found.bound == 0:
            return 0
        if found.exact and _plain(instance):
            self.best = min(self.best, found.bound)
        elif not found.exact:
            plan.level -= 1
        return found.bound

    def _cpsat(self, problem: Problem, division: tuple[int, ...], plan: _Plan) -> int:
        """The optimum of a plan with CP-SAT, in slices of growing time."""
        from ...cpsat import solve_cpsat

        plan.seconds *= 2
        end = min(self.deadline, monotonic() + plan.seconds)
        schedule, bound, _ = solve_cpsat(problem, "makespan", plan.start, 0, end, self.workers, sizes=division)
        assert schedule is not None, "the hint is one"
        plan.start = schedule
        self.best = min(self.best, simulate(problem, schedule).makespan)
        return bound


def _every(workload: Workload) -> Iterator[tuple[int, _Plan]]:
    """Every plan that may fit into memory, but for names of ranks that are alike, with a quick bound."""
    alike = _alike(workload.cluster)
    saved = sum(tie.static for tie in workload.ties)
    for d, division in enumerate(workload.divisions):
        table = StageTable(workload, division)
        room = np.array([table.room(rank) for rank in range(workload.ranks)], dtype=np.int64)
        tables = (table.forward, table.passed, table.work, table.backwards)
        need = np.minimum(FAR, table.activation + table.static - saved)
        for stages in range(workload.ranks, workload.layers + 1):
            cuts = combinations(range(1, workload.layers), stages - 1)
            bounds = np.array([(0, *cut, workload.layers) for cut in cuts], dtype=np.int64)
            rows = np.array(list(_rows(workload.ranks, stages, alike)), dtype=np.int64)
            found = np.zeros((len(bounds), len(rows)), dtype=np.int64)
            rate(bounds, rows, table.of_rank, *tables, table.hops, need, room, FAR, found)
            for a, b in zip(*np.nonzero(found < FAR), strict=True):
                yield int(found[a, b]), _Plan(d, tuple(bounds[a].tolist()), tuple(rows[b].tolist()))


def _alike(cluster: Cluster) -> list[int]:
    """For each rank, the first one that may change places with it."""
    found: list[int] = []
    for rank in range(cluster.ranks):
        found.append(next((first for first in sorted(set(found)) if _swappable(cluster, first, rank)), rank))
    return found


def _swappable(cluster: Cluster, one: int, other: int) -> bool:
    def seen(order: list[int]) -> list[object]:
        links = [(cluster.latency_s[r][q], cluster.bandwidth[r][q]) if r != q else None for r in order for q in order]
        return [*(cluster.speed[rank] for rank in order), *(cluster.memory[rank] for rank in order), *links]

    order = list(range(cluster.ranks))
    order[one], order[other] = other, one
    return seen(order) == seen(list(range(cluster.ranks)))


def _rows(ranks: int, stages: int, alike: list[int]) -> Iterator[tuple[int, ...]]:
    """Placements of stages on all ranks; of those that differ in the names of alike ranks, one."""
    for row in product(range(ranks), repeat=stages):
        if len(set(row)) < ranks:
            continue
        first = [row.index(rank) for rank in range(ranks)]
        if all(first[r] < first[q] for r in range(ranks) for q in range(r + 1, ranks) if alike[r] == alike[q]):
            yield row


def _plain(instance: Instance) -> bool:
    """Whether fusing saves nothing and I does not swell: then the search of labels leaves nothing out."""
    split = instance.backward_input + instance.backward_weight
    return bool((instance.backward >= split).all() and (instance.retained <= instance.activation).all())
