"""A schedule: placement, micro-batch sizes and one op list per rank. Order without a clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .ops import Kind, Op, parse_op
from .placement import Placement
from .updates import Updates, require_updates

Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OpTable:
    """The ops of a schedule as columns, rank after rank.

    Attributes
    ----------
    stage, kind, microbatch, start, stop
        One value for each op; `start` and `stop` are the range of units, -1 for a whole W and for other kinds.
    offsets
        Ops of rank r are the rows offsets[r]..offsets[r+1]-1; shape (p + 1,).
    """

    stage: Array
    kind: Array
    microbatch: Array
    start: Array
    stop: Array
    offsets: Array


@dataclass(frozen=True)
class Schedule:
    """Placement, sizes and op lists. That it makes sense for a problem is `check`'s to say.

    Parameters
    ----------
    placement
        Stage to rank.
    sizes
        Samples of each micro-batch, consecutive in the batch. Where micro-batches are sliced, there is an entry for
        each slice: the samples of its micro-batch.
    ops
        For each rank, its ops in the order in which it runs them.
    slices
        Slices of each micro-batch, k. Those of micro-batch j take its place as numbers j k to j k + k - 1.
    updates
        When weights are updated. All but "step" let batches follow each other without a flush (`stream`), and need
        one stage on every rank and whole micro-batches.
    """

    placement: Placement
    sizes: tuple[int, ...]
    ops: tuple[tuple[Op, ...], ...]
    slices: int = 1
    updates: Updates = "step"

    def __post_init__(self) -> None:
        require_updates(self.updates)
        if self.updates != "step" and (self.placement.directions, self.placement.stage_count) != (1, len(self.ops)):
            raise InputError(
                f"updates: {self.updates!r} needs one stage on every rank, and the placement is "
                f"{self.placement.name!r} with {self.placement.stage_count} stages on {self.placement.ranks} ranks"
            )
        if len(self.ops) != self.placement.ranks:
            raise InputError(f"ops: {len(self.ops)} lists for {self.placement.ranks} ranks")
        if not self.sizes:
            raise InputError("sizes: the list is empty; give the samples of each micro-batch")
        for j, size in enumerate(self.sizes):
            if size < 1:
                raise InputError(f"sizes[{j}]: {size} is below 1")
        if self.slices < 1:
            raise InputError(f"slices: {self.slices} is below 1")
        if self.slices > 1 and (len(self.sizes) % self.slices or len(set(self.sizes)) > 1):
            raise InputError(
                f"sizes: {len(self.sizes)} values, {len(set(self.sizes))} of them different, for micro-batches of "
                f"{self.slices} slices; give the one size of all micro-batches once for each slice"
            )
        if self.slices > 1 and self.updates != "step":
            raise InputError(
                f"updates: {self.updates!r} is for whole micro-batches, and these have {self.slices} slices"
            )
        stages, microbatches = self.placement.stage_count, len(self.sizes)
        for rank, row in enumerate(self.ops):
            for position, op in enumerate(row):
                if not (0 <= op.stage < stages and 0 <= op.microbatch < microbatches):
                    raise InputError(
                        f"rank {rank}, position {position}: {op} is out of range; "
                        f"stages are 0..{stages - 1}, micro-batches 0..{microbatches - 1}"
                    )

    @classmethod
    def parse(
        cls,
        placement: Placement,
        sizes: Sequence[int],
        rows: Iterable[Iterable[str]],
        slices: int = 1,
        updates: Updates = "step",
    ) -> Schedule:
        """Schedule from the text form of its ops.

        Raises
        ------
        InputError
            With rank and position of the text that is not an op.
        """
        # Most ops differ in their micro-batch only: what precedes its number is parsed once.
        numbers = {str(j): j for j in range(len(sizes))}
        heads: dict[str, tuple[int, Kind]] = {}
        ops: list[tuple[Op, ...]] = []
        for rank, row in enumerate(rows):
            parsed: list[Op] = []
            for position, text in enumerate(row):
                head = text.rstrip("0123456789")
                known, microbatch = heads.get(head), numbers.get(text[len(head) :])
                if known is not None and microbatch is not None:
                    parsed.append(Op(known[0], known[1], microbatch))
                    continue
                try:
                    op = parse_op(text)
                except InputError as error:
                    raise InputError(f"rank {rank}, position {position}: {error}") from None
                parsed.append(op)
                if op.units is None:
                    heads[head] = (op.stage, op.kind)
            ops.append(tuple(parsed))
        return cls(placement, tuple(sizes), tuple(ops), slices, updates)

    @property
    def microbatches(self) -> int:
        """Number of micro-batches, m; of all their slices where they have some."""
        return len(self.sizes)

    @cached_property
    def table(self) -> OpTable:
        """The ops as columns."""
        flat = [op for row in self.ops for op in row]
        stage, kind, microbatch = (
            np.fromiter(column, dtype=np.int64, count=len(flat))
            for column in ([op.stage for op in flat], [op.kind for op in flat], [op.microbatch for op in flat])
        )
        start, stop = np.full(len(flat), -1, dtype=np.int64), np.full(len(flat), -1, dtype=np.int64)
        for row, op in enumerate(flat):
            if op.units is not None:
                start[row], stop[row] = op.units
        offsets = np.cumsum([0] + [len(row) for row in self.ops], dtype=np.int64)
        return OpTable(stage, kind, microbatch, start, stop, offsets)

    @property
    def splits_backward(self) -> bool:
        """Whether any backward is split into I and W."""
        return bool((self.table.kind == Kind.I).any())

    @property
    def fused_share(self) -> float:
        """Share of the backwards that are fused."""
        whole, halves = (int((self.table.kind == kind).sum()) for kind in (Kind.B, Kind.I))
        return whole / (whole + halves) if whole + halves else 0.0

    @property
    def cut_share(self) -> float:
        """Share of the weight gradients, those of fused backwards included, that run in more than one range."""
        table = self.table
        weights = table.kind == Kind.W
        names = table.stage[weights] * self.microbatches + table.microbatch[weights]
        several = int((np.unique(names, return_counts=True)[1] > 1).sum())
        backwards = int(((table.kind == Kind.B) | (table.kind == Kind.I)).sum())
        return several / backwards if backwards else 0.0

    def split(self) -> Schedule:
        """This schedule with every fused backward split: W comes right after its I.

        Examples
        --------
        >>> from adaptpipe.solver.core.placement import place
        >>> schedule = Schedule.parse(place("linear", 1), [1], [["0F0", "0B0"]])
        >>> " ".join(map(str, schedule.split().ops[0]))
        '0F0 0I0 0W0'
        """
        if not self.fused_share:
            return self
        rows = (
            tuple(
                part
                for op in row
                for part in (
                    (Op(op.stage, Kind.I, op.microbatch), Op(op.stage, Kind.W, op.microbatch))
                    if op.kind is Kind.B
                    else (op,)
                )
            )
            for row in self.ops
        )
        return replace(self, ops=tuple(rows))

    @classmethod
    def load(cls, path: str | Path) -> Schedule:
        """Read a schedule file.

        Raises
        ------
        InputError
            With file, key and remedy.
        """
        from ..files.schedule_file import load_schedule

        return load_schedule(path)

    def save(self, path: str | Path, problem: str = "") -> None:
        """Write the schedule as JSON, with the format's version and the fingerprint of the problem's shape."""
        from ..files.schedule_file import save_schedule

        save_schedule(self, path, problem)

    @cached_property
    def fingerprint(self) -> str:
        """What `Problem.fingerprint` must be for this schedule to fit."""
        return self.placement.fingerprint(sum(self.sizes) // self.slices, self.slices)
