"""Which rank holds which stage."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from .errors import InputError

FAMILIES = ("linear", "loop", "v", "wave", "bidirectional")


@dataclass(frozen=True)
class Placement:
    """Stage to rank, once for each direction.

    A micro-batch belongs to a direction. Placements with one direction hold each stage once; a bidirectional one holds
    it twice, and micro-batches of direction 1 run through the second replica. Every rank has a stage in each direction:
    none is without work where there is a single micro-batch.

    Parameters
    ----------
    ranks
        Number of ranks, p.
    stages
        For each direction, the rank of each stage.
    name
        The family, or "explicit". For people: equal placements may have different names, as linear and loop where each
        rank holds one stage.
    """

    ranks: int
    stages: tuple[tuple[int, ...], ...]
    name: str = field(default="explicit", compare=False)

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise InputError(f"pipeline.ranks: {self.ranks} is below 1")
        for row in self.stages:
            if not row:
                raise InputError("pipeline.placement: the list is empty; give the rank of each stage")
            if len(row) != len(self.stages[0]):
                raise InputError("pipeline.placement: the directions differ in their number of stages")
            for stage, rank in enumerate(row):
                if not 0 <= rank < self.ranks:
                    raise InputError(
                        f"pipeline.placement[{stage}]: rank {rank} is not one of 0..{self.ranks - 1} "
                        f"(ranks = {self.ranks})"
                    )
        for direction, row in enumerate(self.stages):
            idle = sorted(set(range(self.ranks)) - set(row))
            if idle:
                where = f" in direction {direction}" if len(self.stages) > 1 else ""
                raise InputError(
                    f"pipeline.placement: rank {idle[0]} holds no stage{where}; give it one or lower pipeline.ranks"
                )

    @property
    def stage_count(self) -> int:
        """Number of stages, S."""
        return len(self.stages[0])

    @property
    def directions(self) -> int:
        """Number of directions, 1 or 2."""
        return len(self.stages)

    @cached_property
    def held(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each rank, the (direction, stage) pairs it holds, in ascending order."""
        rows: list[list[tuple[int, int]]] = [[] for _ in range(self.ranks)]
        for direction, row in enumerate(self.stages):
            for stage, rank in enumerate(row):
                rows[rank].append((direction, stage))
        return tuple(tuple(row) for row in rows)

    def holders(self, stage: int) -> tuple[int, ...]:
        """Ranks that hold a stage: direction 0's, and direction 1's where that is another."""
        return tuple(dict.fromkeys(row[stage] for row in self.stages))

    def direction_of(self, microbatch: int, count: int) -> int:
        """Direction of a micro-batch out of `count`: direction 0 takes the first ceil(count / 2) of two."""
        return 0 if self.directions == 1 or microbatch < (count + 1) // 2 else 1

    def rank_of(self, stage: int, microbatch: int, count: int) -> int:
        """Rank that runs a stage for a micro-batch out of `count`."""
        return self.stages[self.direction_of(microbatch, count)][stage]

    def fingerprint(self, samples: int, slices: int = 1) -> str:
        """Hash of a shape: this placement, the samples in a batch, and the slices of a micro-batch if it has some."""
        shape = f"{self.ranks}|{self.stages}|{samples}" + (f"|{slices}" if slices > 1 else "")
        return hashlib.sha256(shape.encode()).hexdigest()[:16]


def place(family: str, ranks: int, stages_per_rank: int = 1) -> Placement:
    """Placement of a named family.

    Parameters
    ----------
    family
        `linear` (stage s on rank s), `loop` (s mod p), `wave` (0…p-1, p-1…0, …), `v` (one wave) or `bidirectional`
        (two directions: rank s and rank p-1-s).
    ranks
        Number of ranks, p.
    stages_per_rank
        v; 1 for linear and bidirectional, 2 for v, even for wave.

    Raises
    ------
    InputError
        When the family is unknown or does not exist for these numbers.

    Examples
    --------
    >>> place("v", 3, 2).stages
    ((0, 1, 2, 2, 1, 0),)
    """
    if family not in FAMILIES:
        raise InputError(f"pipeline.placement: {family!r} is none of {', '.join(FAMILIES)}, nor a list stage -> rank")
    if ranks < 1:
        raise InputError(f"pipeline.ranks: {ranks} is below 1")
    legal = {"linear": stages_per_rank == 1, "bidirectional": stages_per_rank == 1, "v": stages_per_rank == 2}
    if stages_per_rank < 1 or not legal.get(family, True) or (family == "wave" and stages_per_rank % 2):
        need = {"linear": "1", "bidirectional": "1", "v": "2", "wave": "an even number", "loop": "at least 1"}[family]
        raise InputError(
            f"pipeline.stages_per_rank: {stages_per_rank} does not fit placement {family!r}, which needs {need}"
        )
    up, down = tuple(range(ranks)), tuple(reversed(range(ranks)))
    if family == "bidirectional":
        return Placement(ranks, (up, down), family)
    if family in ("v", "wave"):
        return Placement(ranks, ((up + down) * (stages_per_rank // 2),), family)
    return Placement(ranks, (up * stages_per_rank,), family)


def explicit(ranks: int, stage_to_rank: Sequence[int]) -> Placement:
    """Placement from a list: the rank of each stage. A list that equals a family's takes its name.

    Examples
    --------
    >>> explicit(2, [0, 1, 1, 0]).name
    'v'
    """
    row = tuple(stage_to_rank)
    placement = Placement(ranks, (row,))
    per_rank, rest = divmod(len(row), ranks)
    for family in ("linear", "v", "loop", "wave"):
        fits = {"linear": per_rank == 1, "v": per_rank == 2, "wave": per_rank % 2 == 0}.get(family, True)
        if not rest and fits and place(family, ranks, per_rank).stages == placement.stages:
            return Placement(ranks, (row,), family)
    return placement
