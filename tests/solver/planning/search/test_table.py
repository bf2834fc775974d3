"""The compiled search has the prices of the problem that a split stands for."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from adaptpipe.solver import check, simulate
from adaptpipe.solver.core.placement import explicit
from adaptpipe.solver.greedy.kernel import FAR
from adaptpipe.solver.planning.search.climber import Climber, Start
from adaptpipe.solver.planning.search.kernel import lay
from adaptpipe.solver.planning.search.point import room_for
from adaptpipe.solver.planning.search.policies import policies
from adaptpipe.solver.planning.search.table import table_of
from adaptpipe.solver.planning.splits.stage_table import StageTable
from adaptpipe.solver.planning.workload import split_of

from .workloads import random_workload


@pytest.mark.parametrize("seed", range(12))
def test_prices_are_those_of_the_problem(seed: int) -> None:
    """To the tick and to the byte, at any split, placement, speeds, links, ties, and divisions into two sizes."""
    random = Random(seed)
    ranks, layers = random.randrange(1, 5), random.randrange(6, 14)
    workload = random_workload(random, ranks, layers, random.randrange(5, 12), (1, 2, 3))
    for division in workload.divisions:
        stages = random.randrange(ranks, layers + 1)
        row = random.sample(range(ranks), ranks) + random.choices(range(ranks), k=stages - ranks)
        bounds = [0, *sorted(random.sample(range(1, layers), stages - 1)), layers]
        table, count = table_of(StageTable(workload, division)), len(division)
        point = policies(explicit(ranks, row), count)[0]._replace(bounds=np.array(bounds))
        room = room_for(stages, count, ranks)
        end = lay(table, point, room)

        instance = workload.problem(split_of(bounds), explicit(ranks, row), division).instance(division)
        for name in ("rank", "forward", "backward_input", "backward_weight", "backward", "activation", "retained"):
            assert (getattr(room, name) == getattr(instance, name)).all(), name
        lag = instance.lag.reshape(3, stages, count, 2)
        assert (room.lag_forward == lag[0, :, :, 0]).all()
        assert (room.lag_backward == lag[1, :, :, 1]).all()
        limited = [r for r, limit in enumerate(workload.cluster.memory) if limit is not None]
        assert (room.room == instance.limit - instance.static)[limited].all()
        work = instance.forward + np.minimum(instance.backward, instance.backward_input + instance.backward_weight)
        # A rank's first stage can start when the first micro-batch has passed all before it.
        start = np.cumsum([0, *(instance.forward[:-1, 0] + lag[0, 1:, 0, 0])])
        assert end == max(start[row.index(r)] + work[instance.rank == r].sum() for r in range(ranks))


@pytest.mark.parametrize("seed", range(6))
def test_a_point_becomes_the_schedule_that_it_was_judged_by(seed: int) -> None:
    """Values of the compiled search are makespans of valid schedules of the workload."""
    random = Random(seed)
    ranks = random.randrange(2, 4)
    workload = random_workload(random, ranks, 9, 7, (1, 2))
    division = random.choice(workload.divisions)
    row = [*range(ranks), *reversed(range(ranks))]
    start = policies(explicit(ranks, row), len(division))[0]._replace(bounds=np.array([*range(len(row)), 9]))
    climber = Climber(
        workload, table_of(StageTable(workload, division)), Start("", division, start, 0.0), True, 0, seed
    )
    climber.level(100, 0.03)
    climber.choose(climber.policies())
    first = climber.best
    climber.run(300, 1.0, 0.0)
    assert climber.best <= first < FAR
    schedule = climber.schedule()
    problem = workload.problem(climber.split(), schedule.placement, division)
    assert simulate(problem, schedule).makespan == climber.best
    assert not check(problem, schedule)
