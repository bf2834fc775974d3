"""A schedule as instructions: what each rank receives, runs and sends, one after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from adaptpipe.solver import Kind, Op, Placement

from .route import Route


@dataclass(frozen=True, slots=True)
class Receive:
    """Take the message that an op needs from another rank, waiting for it if need be."""

    op: Op
    route: Route

    def __str__(self) -> str:
        return f"receive {self.route} for {self.op}"


@dataclass(frozen=True, slots=True)
class Run:
    """Run an op."""

    op: Op

    def __str__(self) -> str:
        return str(self.op)


@dataclass(frozen=True, slots=True)
class Send:
    """Send what an op made to another rank, without waiting."""

    op: Op
    route: Route

    def __str__(self) -> str:
        return f"send {self.route} of {self.op}"


@dataclass(frozen=True, slots=True)
class Pass:
    """Hand what an op made to a neighbouring stage on the same rank."""

    op: Op
    receiver: int

    def __str__(self) -> str:
        return f"pass {self.op} to stage {self.receiver}"


Instruction = Receive | Run | Send | Pass


@dataclass(frozen=True)
class Program:
    """Instructions of every rank. Made by `lower`, which proves that no rank waits for ever.

    Parameters
    ----------
    placement
        Stage to rank.
    sizes
        Samples of each micro-batch, consecutive in the batch.
    rows
        For each rank, its instructions in order. Every `Receive` has one `Send`, and the reverse.
    unit_ticks
        For each stage and micro-batch, the ticks of each unit of its weight gradient; empty where nothing trains.
        A rank needs those of its own stages, so they are not in the fingerprint.
    windows
        For each route from a rank with a memory limit, and each of an evaluation, how many messages may be on their
        way: a further one waits until the other rank makes room, which it does whatever its ops meet; that is proved
        when the program is made. Other routes have none.
    tokens
        Where micro-batches are cut into slices, the tokens of each slice, relative to each other; the slices are
        numbered through, and stand for micro-batches in all else.
    """

    placement: Placement
    sizes: tuple[int, ...]
    rows: tuple[tuple[Instruction, ...], ...]
    unit_ticks: tuple[tuple[tuple[int, ...], ...], ...] = ()
    windows: Mapping[Route, int] = field(default_factory=dict)
    tokens: tuple[int, ...] = (1,)

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """What each micro-batch has of the batch, in samples; each slice, in samples times relative tokens."""
        return tuple(size * self.tokens[j % len(self.tokens)] for j, size in enumerate(self.sizes))

    @cached_property
    def orders(self) -> dict[Route, tuple[int, ...]]:
        """For each route, its micro-batches in the order in which they are sent; routes in ascending order."""
        sent: dict[Route, list[int]] = {}
        for instruction in self.instructions():
            if isinstance(instruction, Send):
                sent.setdefault(instruction.route, []).append(instruction.op.microbatch)
        return {route: tuple(sent[route]) for route in sorted(sent)}

    @cached_property
    def steps(self) -> tuple[dict[Op, tuple[Instruction, ...]], ...]:
        """For each rank its ops in order, each with its own instructions: receive, run, send or pass."""
        return tuple({op: tuple(around) for op, around in groupby(row, lambda each: each.op)} for row in self.rows)

    @cached_property
    def split(self) -> frozenset[tuple[int, int]]:
        """Stage and micro-batch of every backward that comes in two parts, I and W."""
        return frozenset((i.op.stage, i.op.microbatch) for i in self.instructions() if i.op.kind is Kind.I)

    @property
    def routes(self) -> tuple[Route, ...]:
        """All routes, in the same order on every rank."""
        return tuple(self.orders)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that ranks must agree on before the first message."""
        text = "\n".join(
            [str(self.placement.stages), str(self.sizes), str(self.tokens), *(str(row) for row in self.texts())]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def microbatches(self, stage: int, rank: int) -> tuple[int, ...]:
        """Micro-batches that a rank runs through a stage: with two directions, those of one."""
        count = len(self.sizes)
        return tuple(j for j in range(count) if self.placement.rank_of(stage, j, count) == rank)

    def instructions(self) -> Iterator[Instruction]:
        """Every rank's instructions, rank after rank."""
        for row in self.rows:
            yield from row

    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The instructions as text, for each rank."""
        return tuple(tuple(str(instruction) for instruction in row) for row in self.rows)
