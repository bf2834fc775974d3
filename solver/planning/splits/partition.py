"""Splits of layers into contiguous stages that load the ranks evenly: the starts of a search for a plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.placement import Placement
from ...core.schedule import Array
from ..workload import Split, Workload, split_of
from .partition_kernel import NONE, chain, nested, settle
from .stage_table import FAR, StageTable

STRETCHES = (1.0, 1.02, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0, 3.0, 5.0)
"""Limits of a rank's load that are tried before none, as multiples of the mean load: a low one leaves few splits."""

SLACK = 0.005
"""How far above the least largest load a split with a wanted share may be, as a part of it."""


def balanced(
    workload: Workload,
    placement: Placement,
    division: Sequence[int],
    *,
    first_share: float | None = None,
    slack: float = SLACK,
    period: float | None = None,
    table: StageTable | None = None,
) -> Split | None:
    """The split with the least largest load of a rank, within every rank's memory.

    A rank's load is the time of all its ops: F and backward, in the cheaper way, of its stages for every micro-batch,
    at its speed, with what each op takes beside its layers. Its memory is what holds at least: static bytes of its
    layers, what is tied and together once, and the activations of one of the largest micro-batches; with `period`, of
    as many micro-batches as pass a stage at once in the mean (J. D. C. Little, *A proof for the queuing formula
    L = λW*, Operations Research 9, 1961): the way from the stage's F to its I, over the period.

    Exact for linear placements and for V; for others the stages are balanced by themselves first, and boundaries are
    moved while that helps.

    Parameters
    ----------
    workload
        Layers, cluster and batch.
    placement
        Rank of each stage; one direction.
    division
        Samples of each micro-batch.
    first_share
        For V: of the splits with a largest load no more than `slack` above the least, the one whose ranks have, in sum
        most closely, this share of their load in their first stage.
    slack
        See there.
    period
        Ticks from one micro-batch to the next; None: one micro-batch at a time.
    table
        Of this workload and division, where there are several calls.

    Returns
    -------
    Split or None
        None where there are fewer layers than stages, or no split within the memory: proven for linear placements and
        V, not found for others.

    Examples
    --------
    >>> from adaptpipe.solver.core.cluster import uniform_cluster
    >>> from adaptpipe.solver.core.placement import place
    >>> from adaptpipe.solver.core.profile import Measurement, Part, Profile
    >>> layers = [Part("", 0, (Measurement(1, t, t, t, 2 * t, 0, 0, 0),)) for t in (1e-3, 1e-3, 1e-3, 2e-3)]
    >>> workload = Workload("", Profile("", tuple(layers), 0.0), uniform_cluster("", 2, None, 0.0, 1e9), 4, (1,))
    >>> balanced(workload, place("linear", 2), (1, 1, 1, 1))
    (range(0, 3), range(3, 4))
    >>> balanced(workload, place("v", 2, 2), (1, 1, 1, 1))
    (range(0, 1), range(1, 2), range(2, 3), range(3, 4))
    """
    if placement.stage_count > workload.layers:
        return None
    table = table or StageTable(workload, tuple(division))
    row = placement.stages[0]
    room = np.array([table.room(rank) for rank in range(workload.ranks)], dtype=np.int64)
    need = _need(table, period)
    if len(row) == workload.ranks:
        bounds = _chain(table.work[table.of_rank[list(row)]], need, room[list(row)])
    elif row == (*range(workload.ranks), *reversed(range(workload.ranks))):
        bounds = _nested(table, need, room, first_share, slack)
    else:
        bounds = _settled(table, need, room, row)
    return None if bounds is None else split_of([int(bound) for bound in bounds])


def _need(table: StageTable, period: float | None) -> Array:
    """Bytes that layers [a, b) hold at least, shape (L + 1, L + 1)."""
    if period is None:
        return np.asarray(np.minimum(FAR, table.static + table.activation), dtype=np.int64)
    count = np.maximum(1.0, table.way / max(1.0, period))[:, None]
    held = np.minimum(float(FAR), table.static + np.ceil(count * table.activation))
    return held.astype(np.int64)


def _chain(work: Array, need: Array, room: Array) -> list[int] | None:
    """Stages in a row, each with its own loads."""
    stages, layers = len(room), need.shape[0] - 1
    value, step = np.zeros((stages + 1, layers + 1), dtype=np.int64), np.zeros((stages + 1, layers + 1), dtype=np.int16)
    chain(work, np.broadcast_to(need, work.shape), room, value, step)
    if value[stages, layers] >= NONE:
        return None
    bounds = [layers]
    for stage in range(stages, 0, -1):
        bounds.append(int(step[stage, bounds[-1]]))
    return bounds[::-1]


def _nested(table: StageTable, need: Array, room: Array, first_share: float | None, slack: float) -> list[int] | None:
    layers, ranks = table.workload.layers, table.workload.ranks
    shape = (ranks + 1, layers + 1, layers + 1)
    value = np.zeros(shape, dtype=np.float64)
    first, last = np.zeros(shape, dtype=np.int16), np.zeros(shape, dtype=np.int16)
    work = table.work[table.of_rank]
    needs = np.broadcast_to(need, work.shape)
    ties = np.array([(*tie.layers, tie.static) for tie in table.workload.ties], dtype=np.int64).reshape(-1, 3)

    def run(cap: int, share: float) -> float:
        nested(work, needs, room, ties, cap, share, value, first, last)
        return float(value[0, 0, layers])

    mean = sum(int(table.work[-1][a, a + 1]) for a in range(layers)) * table.speeds[-1]
    mean /= sum(table.workload.cluster.speed)
    caps = (*(int(mean * stretch) + 1 for stretch in STRETCHES), FAR - 1)
    best = next((best for best in (run(cap, -1.0) for cap in caps) if best < np.inf), None)
    if best is None:
        return None
    if first_share is not None:
        run(int(best * (1 + slack)), first_share)
    low, high = 0, layers
    front, back = [0], [layers]
    for rank in range(ranks):
        low, high = int(first[rank, low, high]), int(last[rank, low, high])
        front.append(low)
        back.append(high)
    return front + back[-2::-1]


def _settled(table: StageTable, need: Array, room: Array, row: tuple[int, ...]) -> list[int] | None:
    count = [row.count(rank) for rank in row]
    own = table.work[table.of_rank[list(row)]] * np.array(count)[:, None, None]
    free = np.full(len(row), FAR, dtype=np.int64)
    found = _chain(np.minimum(own, FAR), need, free)
    assert found is not None, "there are as many layers as stages"
    bounds = np.array(found, dtype=np.int64)
    work = table.work[table.of_rank]
    settle(work, np.broadcast_to(need, work.shape), room, np.array(row, dtype=np.int64), bounds)
    held = np.zeros(table.workload.ranks, dtype=np.int64)
    for stage, rank in enumerate(row):
        held[rank] += need[bounds[stage], bounds[stage + 1]]
    for tie in table.workload.ties:
        first, second = (int(np.searchsorted(bounds, layer, "right")) - 1 for layer in tie.layers)
        if first != second and row[first] == row[second]:
            held[row[first]] -= tie.static
    return [int(bound) for bound in bounds] if (held <= room).all() else None
