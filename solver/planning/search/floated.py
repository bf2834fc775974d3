"""Plans without a search: a published order of forwards and backwards, and weight gradients where they fill waits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from ...core.errors import NoAnswerError
from ...core.placement import place
from ...floating import simulate_adaptive
from ...heuristics import zb_v
from ..plan import Plan
from ..rivals.rules import RULES, Anatomy, Rule
from ..splits.partition import balanced
from ..workload import Workload

FIRST_SHARES = (None, 0.25, 0.35, 0.5, 0.65)
"""Of a rank's layers, the share in the earlier of its two stages; None: as it comes."""


def floated(workload: Workload, rules: Sequence[Rule] = RULES) -> Iterator[Plan]:
    """ZB-V's forwards and backwards in their order, on V splits, with weight gradients as adaptive execution runs them.

    ZB-V is made for stages of equal costs and leaves memory unused. Where weight gradients may wait for a wait, within
    each rank's limit, its order is often within a per cent of the best that a long search finds. Splits are those of
    the rules and those that load the ranks evenly; each in every division of the batch that the workload allows.

    Yields
    ------
    Plan
        Each that fits, as it is made, without a bound; none where there are fewer layers than stages.

    Examples
    --------
    >>> from adaptpipe.solver.core.cluster import uniform_cluster
    >>> from adaptpipe.solver.core.profile import Measurement, Part, Profile
    >>> part = Part("layer", 0, (Measurement(1, 3e-3, 3e-3, 2e-3, 5e-3, 1, 1, 0),))
    >>> workload = Workload("", Profile("", (part,) * 8, 0.0), uniform_cluster("", 2, 40, 0.0, 1e9), 8, (1,))
    >>> best = min(floated(workload), key=lambda plan: plan.makespan)
    >>> best.makespan, best.timeline.problem.unit, [len(part) for part in best.split]
    (262000, 'us', [2, 2, 2, 2])
    """
    placement = place("v", workload.ranks, 2)
    if workload.layers < placement.stage_count:
        return
    began = time.monotonic()
    anatomy = Anatomy.of(workload.profile)
    for division in workload.divisions:
        even = (balanced(workload, placement, division, first_share=share) for share in FIRST_SHARES)
        for split in dict.fromkeys([*(rule.split(anatomy, placement) for rule in rules), *even]):
            if split is None:
                continue
            problem = workload.problem(split, placement, division)
            try:
                timeline = simulate_adaptive(problem, zb_v(problem, division))
            except NoAnswerError:  # a rank cannot hold what the order asks of it, even with every W done
                continue
            yield Plan(workload, split, timeline, 0, "ZB-V, floating", time.monotonic() - began)
