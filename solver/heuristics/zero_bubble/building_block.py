"""Schedules from a building block: the passes of one micro-batch over a V, repeated and then squeezed."""

from __future__ import annotations

from bisect import insort
from collections import deque

from ...core.ops import Kind

INTERVAL = 6
"""Slots from one micro-batch to the next: F, I and W of both stages of a rank take one each."""

Block = tuple[tuple[int, int, int, int], ...]
"""For each rank the slots of one micro-batch's passes, in the order of the data: F of the rank's first stage and of its
second, I of the second and of the first."""

_FREE, _WEIGHT = -1, 4
"""In a slot: nothing, or a W; 0 to 3 are the passes of `Block`."""


def repeated(block: Block, microbatches: int, keeps_pace: bool) -> list[list[tuple[int, Kind]]]:
    """What each rank runs when a block is repeated for every micro-batch and squeezed.

    Micro-batch j is 6j slots behind the first, and W's take the slots that are left, in the order of their I's. Then
    every op of the warm-up (until rank 0 ends its first micro-batch) moves into the earliest free slot after what it
    waits for, and after that those of the cool-down (when rank 0 has started its last) and of what lies between, among
    which W's again take what is left. No F moves to where the rank would hold more than the fullest rank did before.

    Parameters
    ----------
    block
        No two passes of a rank on the same slot modulo 6.
    microbatches
        Number of micro-batches.
    keeps_pace
        Whether the ops between warm-up and cool-down stay where they are.

    Returns
    -------
    list[list[tuple[int, Kind]]]
        For each rank, 0 for its first stage or 1 for its second, and the kind; micro-batches come in ascending order.

    Notes
    -----
    Qi et al., arXiv 2405.15362, and `zbv_greedy.py` of the authors' code.
    """
    length = max(map(max, block)) + INTERVAL * microbatches + 2 * microbatches
    lanes = [_Lane(slots, microbatches, length) for slots in block]
    warm, last = block[0][3], block[0][0] + INTERVAL * (microbatches - 1)
    _warm_up(lanes, warm)
    _move_the_rest(lanes, last if keeps_pace else -1)
    return [lane.row() for lane in lanes]


class _Lane:
    """The slots of one rank.

    Attributes
    ----------
    at
        For each pass, and for W, the slots of the micro-batches.
    slots
        What runs in each slot.
    held, waiting
        Activations held after each slot, and, as long as W's take what is left, W's that have not run.
    """

    def __init__(self, firsts: tuple[int, ...], microbatches: int, length: int) -> None:
        self.at = [[first + INTERVAL * j for j in range(microbatches)] for first in firsts]
        self.slots = [_FREE] * length
        for turn, row in enumerate(self.at):
            for slot in row:
                assert self.slots[slot] == _FREE, "the passes of a block do not collide"
                self.slots[slot] = turn
        self.held, self.waiting = [0] * length, [0] * length
        self.float(0)
        weights = [slot for slot in range(length) if self._runs_weight(slot)]
        self.at.append(weights)
        for slot in weights:
            self.slots[slot] = _WEIGHT

    def _runs_weight(self, slot: int) -> bool:
        return self.slots[slot] == _FREE and slot > 0 and self.waiting[slot] < self.waiting[slot - 1]

    def float(self, start: int, most: int | None = None, settled: int | None = None) -> bool:
        """Count anew what is held from a slot on, W's running in every slot that is left.

        Parameters
        ----------
        start
            The first slot that changes.
        most
            Activations that may be held; where they are more, nothing is counted.
        settled
            Slot after which the rest stands once a slot's count is what it was.

        Returns
        -------
        bool
            Whether no more than `most` are held.
        """
        held, waiting = (self.held[start - 1], self.waiting[start - 1]) if start else (0, 0)
        counted = []
        for slot in range(start, len(self.slots)):
            turn = self.slots[slot]
            if turn == _FREE and waiting:
                held, waiting = held - 1, waiting - 1
            elif turn in (0, 1):
                held += 1
            elif turn in (2, 3):
                waiting += 1
            if most is not None and held > most:
                return False
            if settled is not None and slot > settled and (held, waiting) == (self.held[slot], self.waiting[slot]):
                break
            counted.append((held, waiting))
        for slot, (held, waiting) in enumerate(counted, start):
            self.held[slot], self.waiting[slot] = held, waiting
        return True

    def room_from(self, first: int, slot: int, most: int) -> int:
        """Earliest slot from `first` on to which an F might move: from there to its slot fewer than `most` are held."""
        return 1 + next((full for full in range(slot - 1, first - 1, -1) if self.held[full] >= most), first - 1)

    def move(self, turn: int, microbatch: int, slot: int) -> None:
        """Bring an op forward."""
        self.slots[self.at[turn][microbatch]] = _FREE
        self.slots[slot] = turn
        self.at[turn][microbatch] = slot

    def row(self) -> list[tuple[int, Kind]]:
        """What runs, in order."""
        row: list[tuple[int, Kind]] = []
        weights: deque[int] = deque()
        for turn in self.slots:
            if turn in (0, 1):
                row.append((turn, Kind.F))
            elif turn in (2, 3):
                row.append((3 - turn, Kind.I))
                weights.append(3 - turn)
            elif weights:
                row.append((weights.popleft(), Kind.W))
        return row + [(stage, Kind.W) for stage in weights]


def _ops(lanes: list[_Lane]) -> list[tuple[int, int, int, int]]:
    """Slot, rank, pass and micro-batch of every op, in the order of the slots."""
    return sorted(
        (slot, rank, turn, microbatch)
        for rank, lane in enumerate(lanes)
        for turn, row in enumerate(lane.at)
        for microbatch, slot in enumerate(row)
    )


def _after(lanes: list[_Lane], rank: int, turn: int, microbatch: int) -> int:
    """First slot in which a pass has its inputs, and is behind those of the micro-batches before."""
    lane, neighbour = lanes[rank], rank + (-1 if turn in (0, 2) else 1)
    inputs = [lane.at[turn][microbatch - 1]] if microbatch else []
    if 0 <= neighbour < len(lanes):
        inputs.append(lanes[neighbour].at[turn][microbatch])
    elif turn:
        inputs.append(lane.at[turn - 1][microbatch])
    if turn == 2:
        inputs.append(lane.at[1][microbatch])
    return max(inputs, default=-1) + 1


def _warm_up(lanes: list[_Lane], end: int) -> None:
    """Bring the ops before a slot forward, W's among them."""
    most = max(max(lane.held) for lane in lanes)
    backwards: list[list[int]] = [[] for _ in lanes]
    for slot, rank, turn, microbatch in _ops(lanes):
        if slot >= end:
            break
        lane = lanes[rank]
        if turn == _WEIGHT:
            first = 1 + max([backwards[rank][microbatch], *lane.at[_WEIGHT][max(microbatch - 1, 0) : microbatch]])
        else:
            first = _after(lanes, rank, turn, microbatch)
        first = lane.room_from(first, slot, most) if turn in (0, 1) else first
        new = next((free for free in range(first, slot) if lane.slots[free] == _FREE), slot)
        lane.move(turn, microbatch, new)
        if turn in (2, 3):
            insort(backwards[rank], new)
        else:
            for between in range(new, slot):
                lane.held[between] += -1 if turn == _WEIGHT else 1


def _move_the_rest(lanes: list[_Lane], start: int) -> None:
    """Bring the ops after a slot forward, W's taking what is left."""
    for lane in lanes:
        del lane.at[_WEIGHT]
        lane.slots = [_FREE if turn == _WEIGHT else turn for turn in lane.slots]
        lane.float(0)
    most = max(max(lane.held) for lane in lanes)
    for slot, rank, turn, microbatch in _ops(lanes):
        lane = lanes[rank]
        if slot <= start:
            continue
        for new in range(_after(lanes, rank, turn, microbatch), slot):
            if lane.slots[new] == _FREE:
                lane.move(turn, microbatch, new)
                if lane.float(new, most, settled=slot):
                    break
                lane.slots[new], lane.slots[slot], lane.at[turn][microbatch] = _FREE, turn, slot
