"""What becomes of a schedule whose batches follow each other without a flush.

A schedule holds the order of one batch. Where there is a flush between batches, each runs in that order, one after the
other. Where there is none, a rank fills the end of a batch, which would be its drain, with the beginning of the next:
once a batch has no forward left, each of its backwards waits until as many micro-batches are in flight as the rank ever
has in flight within a batch, and forwards of the next batch make up the number. So 1F1B goes on with one forward and
one backward for ever, with as many activations as within one batch.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from .errors import InputError
from .ops import Kind, Op
from .schedule import Schedule

BATCHES = 4
"""Batches of a stream, of which the second and the third are like all later ones: a rank begins at most one batch
before it has ended the one before."""


def stream(schedule: Schedule, batches: int) -> Schedule:
    """Several batches one after the other, without a flush between them and with one at the end.

    Parameters
    ----------
    schedule
        Order of one batch, in which every rank holds one stage.
    batches
        How many; micro-batch j of batch b has number b m + j.

    Raises
    ------
    InputError
        When the schedule flushes, or there is no batch.

    Examples
    --------
    >>> from adaptpipe.solver.core.placement import place
    >>> rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    >>> for row in stream(Schedule.parse(place("linear", 2), [1, 1], rows, updates="stash"), 2).ops:
    ...     print(" ".join(map(str, row)))
    0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3
    1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
    """
    if schedule.updates == "step":
        raise InputError("updates: 'step' flushes after every batch, so no batch runs into the next")
    if batches < 1:
        raise InputError(f"batches: {batches} is below 1")
    rows = tuple(_follow(row, batches, schedule.microbatches) for row in schedule.ops)
    return replace(schedule, sizes=schedule.sizes * batches, ops=rows)


def _follow(row: tuple[Op, ...], batches: int, microbatches: int) -> tuple[Op, ...]:
    flight = {Kind.F: 1, Kind.I: -1, Kind.B: -1, Kind.W: 0}
    most = held = 0
    for op in row:
        held += flight[op.kind]
        most = max(most, held)
    waiting = [deque(row) for _ in range(batches)]
    forwards = [sum(op.kind is Kind.F for op in row)] * batches
    ops: list[Op] = []

    def run(batch: int) -> int:
        op = waiting[batch].popleft()
        forwards[batch] -= op.kind is Kind.F
        ops.append(Op(op.stage, op.kind, op.microbatch + batch * microbatches, op.units))
        return flight[op.kind]

    held = 0
    for batch, own in enumerate(waiting):
        following = waiting[batch + 1] if batch + 1 < batches else deque()
        while own:
            if own[0].is_backward and not forwards[batch]:
                while held < most and following and following[0].kind is Kind.F:
                    held += run(batch + 1)
            held += run(batch)
    return tuple(ops)


def weight_copies(schedule: Schedule) -> tuple[int, ...]:
    """For each stage, how many copies of its weights are held at once, the newest included, in a stream of batches.

    Counted over the order of the ops, for "stash"; the least that keeps every version until its last backward. Two for
    "double", and for "newest", whose correction takes as much as a version.

    Examples
    --------
    >>> from adaptpipe.solver.core.placement import place
    >>> rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    >>> weight_copies(Schedule.parse(place("linear", 2), [1, 1], rows, updates="stash"))
    (2, 1)
    """
    if schedule.updates != "stash":
        return (1 if schedule.updates == "step" else 2,) * schedule.placement.stage_count
    return tuple(most for most, _ in _walk(schedule))


def staleness(schedule: Schedule) -> tuple[Fraction, ...]:
    """For each stage, how many updates lie between the weights of a forward and the update its gradient goes into.

    The mean over the micro-batches of one batch in the middle of a stream; 0 where gradients are of the weights that
    they change.

    Examples
    --------
    >>> from adaptpipe.solver.core.placement import place
    >>> rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    >>> for updates in ("stash", "double", "newest"):
    ...     print(*staleness(Schedule.parse(place("linear", 2), [1, 1], rows, updates=updates)))
    1 0
    1 1
    1/2 0
    """
    if schedule.updates in ("step", "double"):
        return (Fraction(schedule.updates == "double"),) * schedule.placement.stage_count
    return tuple(late for _, late in _walk(schedule))


@lru_cache(maxsize=64)
def _walk(schedule: Schedule) -> tuple[tuple[int, Fraction], ...]:
    """For each stage, the most versions that are in use at once, and the mean staleness."""
    count = schedule.microbatches
    group = 1 if schedule.updates == "stash" else count
    found: dict[int, tuple[int, Fraction]] = {}
    for rank, row in enumerate(stream(schedule, BATCHES).ops):
        left = Counter((op.microbatch // group) for op in row if op.kind is Kind.B or op.kind is Kind.W)
        version, most, late = 0, 1, 0
        read: dict[int, int] = {}  # version that the forward of each micro-batch has read
        needed: dict[int, int] = {}  # of those, the ones whose backward has not run
        for op in row:
            j = op.microbatch
            if op.kind is Kind.F:
                read[j] = needed[j] = version
            elif op.is_backward:
                del needed[j]
            if op.kind is Kind.B or op.kind is Kind.W:
                left[j // group] -= 1
                if not left[j // group]:
                    # The update of this group. Of its micro-batches those of the second batch are counted.
                    members = range(max(j // group * group, count), min((j // group + 1) * group, 2 * count))
                    late += sum(version - read[member] for member in members)
                    version += 1
            most = max(most, len({version, *needed.values()}))
        found[schedule.placement.held[rank][0][1]] = most, Fraction(late, count)
    return tuple(found[stage] for stage in sorted(found))
