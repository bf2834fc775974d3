"""Memory limits by threshold clauses, where a rank has one stage, and all pass it in order."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model_helper

from .variables import Variables

Literal = cp_model_helper.Literal


def threshold_applies(v: Variables, rank: int) -> bool:
    """Whether a rank has one stage, one class that passes in order, and backwards whose I does not swell, whose W is
    never cut, and which are never fused."""
    instance = v.prices.instance
    stages = np.flatnonzero((instance.rank == rank).any(axis=1)).tolist()
    if not v.fifo or len(stages) > 1 or int(v.prices.group.max()) > 0:
        return False
    swells = bool((instance.retained[stages] > instance.activation[stages]).any())
    return v.all_whole(stages[0]) and not swells


def threshold(v: Variables, rank: int, room: int) -> None:
    """F number j starts after b backwards and w weight gradients, for some pair (b, w) that frees enough.

    Everything passes in order, so "b backwards are done" is "backward number b - 1 has ended". The pairs that matter
    are those of which neither number can be lowered; one literal each, one clause over them. `_work_before` adds what
    follows from a pair, which the solver would not see.
    """
    instance = v.prices.instance
    s = int(np.flatnonzero((instance.rank == rank).any(axis=1))[0])
    (members,) = v.classes()
    held, kept = int(instance.activation[s, 0]), int(instance.retained[s, 0])
    for n, j in enumerate(members):
        short = held * (n + 1) - room
        if short <= 0:
            continue
        start, pairs = v.forward_start(s, j), _pairs(short, held - kept, kept, n)
        options = []
        for b, w in pairs:
            ends = [v.backward_finish(s, members[b - 1])] + ([v.done_finish(s, members[w - 1])] if w else [])
            if len(pairs) == 1:
                for end in ends:
                    v.model.add(start[0] >= end[0])
                _work_before(v, s, n, b, w, room // held, None)
                continue
            value = None if v.hint is None else all(start[1] >= end[1] for end in ends)
            option = v.literal(value)
            for end in ends:
                v.model.add(start[0] >= end[0]).only_enforce_if(option)
            _work_before(v, s, n, b, w, room // held, option)
            options.append(option)
        if len(pairs) != 1:
            v.model.add_bool_or(options)


LOOK_BACK = 8
"""From how many backwards the work before an F is counted."""


def _work_before(v: Variables, s: int, n: int, b: int, w: int, window: int, option: Literal | None) -> None:
    """F number n starts no sooner than the work that comes before it allows, where b backwards and w W's do.

    All of it is on one rank: from the start of F number 0 on, n F's, b backwards and w weight gradients. From the start
    of backward number i < b on: b - i backwards, w - i weight gradients (W number x comes after backward number x), and
    the F's from number i + window on: until backward number i ends, i micro-batches at most free memory, and no more
    than `window` others have room. It says nothing new, but the solver proves much sooner with it: linear p = 8,
    m = 24 at half of 1F1B's memory in seconds, and without it not in a minute.
    """
    (members,), prices = v.classes(), v.prices
    forward, short, weight = (
        int(row[s, members[0]]) for row in (prices.forward, prices.backward_input, prices.backward_weight)
    )
    start = v.forward[s][members[n]]
    needs = [start >= v.forward[s][members[0]] + n * forward + b * short + w * weight]
    for i in range(max(0, b - min(window, LOOK_BACK)), b):
        work = (b - i) * short + max(0, w - i) * weight + max(0, n - i - window) * forward
        needs.append(start >= v.backward[s][members[i]] + work)
    for need in needs:
        added = v.model.add(need)
        if option is not None:
            added.only_enforce_if(option)


def _pairs(short: int, freed: int, kept: int, limit: int) -> list[tuple[int, int]]:
    """Pairs (b, w), w <= b <= limit, with freed * b + kept * w >= short, of which neither can be lowered."""
    pairs: list[tuple[int, int]] = []
    for b in range(1, limit + 1):
        rest = short - freed * b
        w = 0 if rest <= 0 else -(-rest // kept) if kept else limit + 1
        if w <= b and (not pairs or w < pairs[-1][1]):
            pairs.append((b, w))
        if w == 0:
            break
    return pairs
