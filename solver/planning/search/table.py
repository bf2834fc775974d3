"""What stages cost, for every run of layers that could be one: looked up, not summed, while splits are searched."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...core.fit import exact
from ...core.instance import UNLIMITED
from ...core.schedule import Array
from ..workload import PER_TICK, Workload

FAST = 2**62
"""Products of times and speeds above this do not fit in the integers of numpy."""


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
        Bytes that each rank may hold, shape (p,).
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


def table_of(workload: Workload, division: tuple[int, ...]) -> Table:
    """The table of a workload whose batch is divided into micro-batches of one size, or of two that differ by one."""
    sizes = sorted(set(division))
    prices = [workload.prices(size) for size in sizes]
    cluster = workload.cluster
    speeds = sorted(set(cluster.speed))
    fields = ("forward", "backward_input", "backward_weight", "backward")
    ticks = [
        [_lines(sizes, [_ticks(_runs(getattr(each, field)) + each.op, speed) for each in prices]) for speed in speeds]
        for field in fields
    ]
    held = [_lines(sizes, [_runs(getattr(each, field)) for each in prices]) for field in ("activation", "retained")]
    links = {
        (cluster.latency_s[r][q], cluster.bandwidth[r][q]): (r, q)
        for r in range(workload.ranks)
        for q in range(workload.ranks)
        if r != q
    }
    number = {pair: index for index, pair in enumerate(links)}
    messages = _lines(sizes, [each.message for each in prices])
    return Table(
        np.ascontiguousarray(ticks, dtype=np.int64),
        np.ascontiguousarray(held, dtype=np.int64),
        np.concatenate([[0], np.cumsum(workload.static)]).astype(np.int64),
        np.array([tie.layers for tie in workload.ties], dtype=np.int64).reshape(-1, 2),
        np.array([tie.static for tie in workload.ties], dtype=np.int64),
        np.array([_lags(messages, *pair) for pair in links], dtype=np.int64).reshape(-1, *messages.shape),
        np.array(
            [
                [
                    -1 if r == q else number[cluster.latency_s[r][q], cluster.bandwidth[r][q]]
                    for q in range(cluster.ranks)
                ]
                for r in range(cluster.ranks)
            ],
            dtype=np.int64,
        ),
        np.array([speeds.index(speed) for speed in cluster.speed], dtype=np.int64),
        np.array([UNLIMITED if limit is None else limit for limit in cluster.memory], dtype=np.int64),
        np.array([sizes.index(size) for size in division], dtype=np.int64),
    )


def _runs(values: Array) -> Array:
    """Sums over the layers a..b-1, [a, b]; 0 where there are none."""
    sums = np.concatenate([[0], np.cumsum(values)])
    runs: Array = np.maximum(sums[None, :] - sums[:, None], 0)
    return runs


def _ticks(thousandths: Array, speed: float) -> Array:
    """`workload.stage_ticks` of each."""
    value = exact(speed)
    up, down = value.denominator, value.numerator * PER_TICK
    if int(thousandths.max()) < (FAST - down) // up:
        return np.array(-(-thousandths * up // down), dtype=np.int64)
    return np.array(-(-thousandths.astype(object) * up // down), dtype=np.int64)


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
