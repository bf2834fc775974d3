"""The bytes that a rank holds, as measured, against its limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from adaptpipe.solver import Kind, Op, Problem
from adaptpipe.solver.evaluate.limits import in_unit

from ..channels.ledger import Ledger
from ..errors import MemoryLimitError
from ..stages.runner import Runner
from ..weights.stash import WeightStash

MemoryRule = Literal["enforce", "report"]
"""What is done about a rank's memory limit: no op may pass it; or bytes are measured, and nothing follows from them."""

Shapes = tuple[tuple[int, ...] | None, ...]
"""Of the tensors that a stage gets for a micro-batch."""


class Account:
    """What one rank holds: its ops by measure, its messages by measure, and its static memory as planned.

    Messages count where they are more than `memory.reserve` set aside for them. A problem without a reserve says
    nothing of messages; then they are measured and do not count.

    Parameters
    ----------
    problem, sizes
        Static memory, reserve, limit, and what ops are planned to take for micro-batches of these sizes.
    rank
        Whose.
    runners
        The rank's stages.
    messages
        Counts the bytes of its messages.
    rule
        Whether the limit counts.

    Attributes
    ----------
    peak_bytes
        The most that ops have held at once, since `begin`.
    stashes
        Versions of weights, which ops in flight hold.
    """

    def __init__(
        self,
        problem: Problem,
        sizes: Sequence[int],
        rank: int,
        runners: Mapping[int, Runner],
        messages: Ledger,
        rule: MemoryRule,
    ) -> None:
        self._memory, self._rank = problem.memory, rank
        self._x = problem.instance(tuple(sizes))
        self._limit = problem.memory.limit[rank] if rule == "enforce" else None
        self._reserve = problem.memory.reserve[rank]
        self._static = problem.static_bytes(rank)
        self._runners, self._messages = runners, messages
        # The most that an op added, by stage, kind and what is alike; and the same by the shapes of its inputs, too.
        self._grown: dict[tuple[int, Kind, int], int] = {}
        self._added: dict[tuple[int, Kind, int, Shapes], int] = {}
        self.peak_bytes = 0
        self.stashes: Sequence[WeightStash] = ()

    def begin(self) -> None:
        """Start a step."""
        self.peak_bytes = 0
        self._messages.reset_peak()

    @property
    def ops_bytes(self) -> int:
        """Bytes that ops hold now."""
        versions = sum(stash.held_bytes for stash in self.stashes)
        return versions + sum(runner.held_bytes for runner in self._runners.values())

    @property
    def limited(self) -> bool:
        """Whether there is a limit that counts."""
        return self._limit is not None

    def held(self, op: Op | None) -> int:
        """Bytes held now, static memory included, and what `op` was seen to add beyond what it is planned to."""
        extra = 0 if op is None else self._growth(op) - self._planned(op)
        over = max(0, self._messages.current - self._reserve) if self._reserve else 0
        return self._static + self.ops_bytes + over + extra

    def require(self, op: Op, shapes: Shapes) -> None:
        """Check that an op which is about to run fits, if one like it has run before.

        If none has, nobody knows, for sequences may be shorter or longer than planned: `ran` tells.

        Raises
        ------
        MemoryLimitError
            If not.
        """
        if self._limit is not None and op.kind is not Kind.W:
            added = self._added.get((op.stage, op.kind, self._alike(op), shapes))
            if added is not None:
                self._check(op, self.held(None) + max(0, added), "would hold")

    def ran(self, op: Op, before: int, shapes: Shapes) -> None:
        """Note that an op has run; `before` is what ops held before it, `shapes` are those of its inputs.

        Raises
        ------
        MemoryLimitError
            If the rank holds more than its limit.
        """
        now = self.ops_bytes
        self.peak_bytes = max(self.peak_bytes, now)
        if self._limit is not None and op.kind is not Kind.W:
            key = (op.stage, op.kind, self._alike(op))
            self._grown[key] = max(self._grown.get(key, 0), now - before)
            self._added[*key, shapes] = now - before
            self._check(op, self.held(None), "holds")

    def updated(self, op: Op) -> None:
        """Note that weights were updated after an op, which may have left a version of them to others.

        Raises
        ------
        MemoryLimitError
            If the rank holds more than its limit.
        """
        self.peak_bytes = max(self.peak_bytes, self.ops_bytes)
        self._check(op, self.held(None), "holds after the update")

    def _planned(self, op: Op) -> int:
        """Bytes that the plan lets an op take, or hold while it runs."""
        place = op.stage, op.microbatch
        activation = int(self._x.activation[place])
        if op.kind is Kind.F:
            return activation
        return max(0, int(self._x.retained[place]) - activation) if op.kind is Kind.I else 0

    def _alike(self, op: Op) -> int:
        """Which micro-batches an op's is like in size, and in its place in a sequence."""
        return int(self._x.alike[op.microbatch])

    def _growth(self, op: Op) -> int:
        """What an op may add, as planned or as seen before."""
        planned = self._planned(op)
        return max(planned, self._grown.get((op.stage, op.kind, self._alike(op)), planned))

    def _check(self, op: Op, needed: int, verb: str) -> None:
        if self._limit is None or needed <= self._limit:
            return
        unit, messages = self._memory.unit, self._messages.current
        counted = max(self._reserve, messages) if self._reserve else 0
        raise MemoryLimitError(
            f"with {op} rank {self._rank} {verb} {in_unit(needed, unit)}, above memory.limit = "
            f"{in_unit(self._limit, unit)}: {in_unit(self._static - self._reserve, unit)} static as planned, "
            f"{in_unit(counted, unit)} for messages (reserve {in_unit(self._reserve, unit)}), the rest measured; "
            'profile the model again, raise the limit or the reserve, or give memory="report"'
        )
