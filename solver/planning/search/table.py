"""What stages cost, for every run of layers that could be one: looked up, not summed, while splits are searched."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...core.fit import exact
from ...core.instance import UNLIMITED
from ...core.schedule import Array
from ..splits.stage_table import StageTable


class Table(NamedTuple):
    """Prices of a workload divided in one way; L layers, p ranks, Z one or two sizes of micro-batches.

    A stage of the layers a..b-1 on a rank r costs what `Workload.problem` says, to the tick and to the byte.

    Parameters
    ----------
    ticks
        Of F, I, W and B of such a stage at a size, [op, speed[r], a, b, size].
    held
        Bytes after F and after I, [which, a, b, size].
    static
        Bytes of weights, gradients and optimizer state of the first layers, shape (L + 1,).
    tie_layers, tie_static
        Pairs of layers that share a parameter, shape (T, 2), and its bytes, which count once on one rank, shape (T,).
    lag
        Ticks of the message that leaves a layer, [link[r, q], layer, size].
    link, speed
        Which of the different links joins two ranks, -1 on the diagonal, shape (p, p); which of the different speeds a
        rank has, shape (p,).
    limit
        Bytes that each rank may hold for longer than one op runs, shape (p,).
    which
        Size of each micro-batch, as an index, shape (m,).
    """

    ticks: Array
    held: Array
    static: Array
    tie_layers: Array
    tie_static: Array
    lag: Array
    link: Array
    speed: Array
    limit: Array
    which: Array


def table_of(stages: StageTable) -> Table:
    """The table of a workload whose batch is divided into micro-batches of one size, or of two that differ by one."""
    workload, cluster = stages.workload, stages.workload.cluster
    sizes = sorted(stages.sizes)
    ticks = [
        [_lines(sizes, [stages.ticks(field, size, speed) for size in sizes]) for speed in stages.speeds]
        for field in ("forward", "backward_input", "backward_weight", "backward")
    ]
    prices = [workload.prices(size) for size in sizes]
    held = [_lines(sizes, [_runs(getattr(each, field)) for each in prices]) for field in ("activation", "retained")]
    pairs = [(r, q) for r in range(workload.ranks) for q in range(workload.ranks) if r != q]
    links = sorted({(cluster.latency_s[r][q], cluster.bandwidth[r][q]) for r, q in pairs})
    messages = _lines(sizes, [each.message for each in prices])
    link = np.full((workload.ranks, workload.ranks), -1, dtype=np.int64)
    for r, q in pairs:
        link[r, q] = links.index((cluster.latency_s[r][q], cluster.bandwidth[r][q]))
    return Table(
        ticks=np.ascontiguousarray(ticks, dtype=np.int64),
        held=np.ascontiguousarray(held, dtype=np.int64),
        static=np.concatenate([[0], np.cumsum(workload.static)]).astype(np.int64),
        tie_layers=np.array([tie.layers for tie in workload.ties], dtype=np.int64).reshape(-1, 2),
        tie_static=np.array([tie.static for tie in workload.ties], dtype=np.int64),
        lag=np.array([_lags(messages, *pair) for pair in links], dtype=np.int64).reshape(-1, *messages.shape),
        link=link,
        speed=stages.of_rank,
        limit=np.array(
            [UNLIMITED if cluster.memory[rank] is None else stages.room(rank) for rank in range(workload.ranks)],
            dtype=np.int64,
        ),
        which=np.array([sizes.index(size) for size in stages.division], dtype=np.int64),
    )


def _runs(values: Array) -> Array:
    """Sums over the layers a..b-1, [a, b]."""
    sums = np.concatenate([[0], np.cumsum(values)])
    return np.asarray(sums[None, :] - sums[:, None], dtype=np.int64)


def _lines(sizes: list[int], values: list[Array]) -> Array:
    """Values at each size, last axis, as the line that `Workload.problem` puts through them gives them."""
    if len(sizes) == 1:
        return values[0][..., None]
    (low, high), (first, second) = sizes, values
    slope = np.maximum(second - first, 0)
    fixed = first - slope * low
    steep = np.maximum(-(-first // low), -(-second // high))
    below = fixed < 0
    lines: Array = np.stack([np.where(below, steep * size, fixed + slope * size) for size in sizes], axis=-1)
    return lines


def _lags(messages: Array, latency_s: float, bandwidth: float) -> Array:
    """Ticks of messages over a link."""
    latency = -(-exact(latency_s) * 10**6 // 1)
    kinds, index = np.unique(messages, return_inverse=True)
    # As the problem has it: bytes per second as given, not as printed.
    values = [latency + -(-Fraction(count) * 10**6 / Fraction(bandwidth) // 1) for count in kinds.tolist()]
    return np.array([int(value) for value in values], dtype=np.int64)[index].reshape(messages.shape)
