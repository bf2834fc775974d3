"""What a few ranks still need, from the end: tables that cut the search of more ranks short."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from . import end_kernel, label_kernel
from .label_kernel import Counts, Links, Times

if TYPE_CHECKING:
    from .few_ranks import Kept

SPEED, LEAST_EFFORT = 10_000_000, 100_000
"""Pairs of labels that are compared in a second, rather too few; and that one step may compare in any case."""

MOST_LABELS = 1 << 22
"""Labels of all layers together, beyond which a table is given up."""


Layer = tuple[Counts, Links, Links, Times]
"""States, the first label of each, the next one of each label, and the labels."""


@dataclass(frozen=True, slots=True)
class Ends:
    """All that some ranks may have behind, in as little time as can be.

    Parameters
    ----------
    kept
        The ranks.
    below
        What has to be beaten; labels that do not are left out.
    states
        How often each op is still to be done, one row a state.
    first, following
        First label of each state, and the next one of each label; -1: no more.
    times
        The labels, on a clock that runs backwards from the end.
    """

    kept: Kept
    below: int
    states: Counts
    first: Links
    following: Links
    times: Times


def ends(kept: Kept, layers: list[Layer], below: int, most: int, deadline: float) -> Ends | None:
    """Labels of every state from the end on, or nothing where there are too many or a rank has several pools.

    Parameters
    ----------
    kept
        The ranks.
    layers
        All labels from the start, which beat `below` or a higher value.
    below
        The value that has to be beaten.
    most
        Labels of a layer, beyond which the search is given up.
    deadline
        Moment of `time.monotonic` at which it is given up.
    """
    if (kept.only < 0).any():
        return None
    n, k = len(kept.rank), len(kept.room)
    size, found = min(1 << 12, most), 1
    width = 2 * (k + kept.under_way) + 3
    layer = (
        np.zeros((1, n), np.int16),
        np.zeros(1, np.int32),
        np.full(1, -1, np.int32),
        np.zeros((1, width), np.int32),
    )
    fore = _together(layers)
    slots = np.empty(1 << (2 * len(fore[0])).bit_length(), np.int32)
    end_kernel.enter_all(fore[0], slots)
    found_layers, total = [layer], 0
    for _ in range(kept.layers):
        while True:
            new = (
                np.empty((size, n), np.int16),
                np.empty(size, np.int32),
                np.empty(size, np.int32),
                np.empty((size, width), np.int32),
            )
            found, labels = end_kernel.step_back(
                kept.count,
                below,
                kept.rank,
                kept.dur,
                kept.lag,
                kept.same,
                kept.group,
                kept.bytes,
                kept.pool_dur[kept.only],
                kept.pool_bytes[kept.only],
                kept.parts[kept.only],
                kept.only,
                kept.room,
                kept.heads,
                kept.leave,
                int(SPEED * max(0.0, deadline - monotonic())) + LEAST_EFFORT,
                fore[0],
                slots,
                fore[1],
                fore[2],
                fore[3],
                len(layer[1]),
                layer[0],
                layer[1],
                layer[2],
                layer[3],
                new[0],
                new[1],
                new[2],
                new[3],
                np.empty(2 * size, np.int32),
            )
            if found >= 0:
                break
            size *= 2
            if found == label_kernel.SPENT or size > most:
                return None
        total += labels
        if total > MOST_LABELS or monotonic() > deadline:
            return None
        if found == 0:
            break
        layer = (new[0][:found].copy(), new[1][:found].copy(), new[2][:labels].copy(), new[3][:labels].copy())
        found_layers.append(layer)
    return Ends(kept, below, *_together(found_layers))


def _together(layers: list[Layer]) -> Layer:
    """The states and labels of all layers in one."""
    starts = np.cumsum([0, *(len(layer[2]) for layer in layers)])[:-1]
    pairs = list(zip(layers, starts.tolist(), strict=True))
    return (
        np.concatenate([layer[0] for layer in layers]),
        np.concatenate([layer[1] + at for layer, at in pairs]).astype(np.int32),
        np.concatenate([np.where(layer[2] < 0, -1, layer[2] + at) for layer, at in pairs]).astype(np.int32),
        np.concatenate([layer[3] for layer in layers]),
    )


Joined = tuple[Links, Links, Links, Links, Counts, Links, Links, Links, Times]


def joined(kept: Kept, tables: tuple[Ends, ...]) -> Joined:
    """The tables of some of the kept ranks in one, as `label_kernel.step` wants them."""
    wide = max((len(table.kept.rank) for table in tables), default=1)
    ranks = max((len(table.kept.room) for table in tables), default=1)
    ops, same = np.full((len(tables), wide), -1, np.int32), np.zeros((len(tables), wide), np.int32)
    mine = np.full((len(tables), ranks), -1, np.int32)
    names, states, first, following, times = [], [], [], [], []
    width, at = max((table.times.shape[1] for table in tables), default=1), 0
    for t, table in enumerate(tables):
        n = len(table.kept.rank)
        ops[t, :n] = [kept.way.index(op) for op in table.kept.way]
        same[t, :n] = table.kept.same
        mine[t, : len(table.kept.ranks)] = [kept.ranks.index(rank) for rank in table.kept.ranks]
        names.append(np.full(len(table.states), t, np.int32))
        states.append(np.pad(table.states, ((0, 0), (0, wide - n))))
        first.append(table.first + at)
        following.append(np.where(table.following < 0, -1, table.following + at))
        times.append(np.pad(table.times, ((0, 0), (0, width - table.times.shape[1]))))
        at += len(table.following)
    all_names = np.concatenate([np.zeros(0, np.int32), *names]).astype(np.int32)
    all_states = np.concatenate([np.zeros((0, wide), np.int16), *states])
    slots = np.empty(1 << max(1, (2 * len(all_names)).bit_length()), np.int32)
    label_kernel.enter(all_names, all_states, np.array([len(table.kept.rank) for table in tables], np.int32), slots)
    return (
        ops,
        mine,
        same,
        all_names,
        all_states,
        slots,
        np.concatenate([np.zeros(0, np.int32), *first]).astype(np.int32),
        np.concatenate([np.zeros(0, np.int32), *following]).astype(np.int32),
        np.concatenate([np.zeros((0, width), np.int32), *times]).astype(np.int32),
    )
