"""The interpreter of asynchronous schedules: stages are updated after every micro-batch's backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum

from adaptpipe.solver import Kind, Op

from ..channels.message import Message
from ..channels.transport import Transport
from ..programs.program import Instruction, Program
from ..stages.runner import Runner
from ..weights.stash import WeightStash
from .execution import Execution
from .memory import Account


class StashingExecution(Execution):
    """One run of one rank: after the last op of a micro-batch's backward, and its message, the stage is updated.

    Parameters
    ----------
    program, rank, runners, transport, inputs, targets, account, added_s
        As for `Execution`.
    stashes
        The weights of the rank's stages.
    """

    def __init__(
        self,
        program: Program,
        rank: int,
        runners: Mapping[int, Runner],
        transport: Transport,
        inputs: Sequence[Message],
        targets: Sequence[object],
        account: Account,
        added_s: Callable[[Op], float] | None,
        stashes: Mapping[int, WeightStash],
    ) -> None:
        super().__init__(program, rank, runners, transport, inputs, targets, account, added_s)
        self._stashes = stashes
        self._completes = {(op.stage, op.microbatch): op for op in program.steps[rank] if op.kind is not Kind.F}

    @property
    def loss(self) -> float:
        """Mean loss of all samples, each under the weights of its own forwards; 0 where the last stage is not."""
        return fsum(self._parts[j] * loss.item() for j, loss in self._losses.items()) / self.whole

    def batch_losses(self, batches: int) -> list[float]:
        """The same of each of several batches of as many micro-batches."""
        count = len(self._parts) // batches
        sums = [0.0] * batches
        for j, loss in self._losses.items():
            sums[j // count] += self._parts[j] * loss.item()
        return [total / (self.whole // batches) for total in sums]

    def _follow(self, op: Op, instructions: Sequence[Instruction]) -> None:
        super()._follow(op, instructions)
        if self._completes.get((op.stage, op.microbatch)) == op:
            self._stashes[op.stage].update(op.microbatch)
            assert self._account is not None, "versions of weights are accounted for"
            self._account.updated(op)

    def _weight(self, microbatch: int) -> float:
        """An update is by a micro-batch's own mean loss, whatever other micro-batches there are."""
        return 1.0

    def _forward(self, op: Op, runner: Runner) -> Message:
        stash = self._stashes[op.stage]
        stash.take(op.microbatch)
        with stash.using(op.microbatch):
            return super()._forward(op, runner)

    def _backward(self, op: Op, runner: Runner) -> Message:
        stash = self._stashes[op.stage]
        with stash.using(op.microbatch):
            made = super()._backward(op, runner)
        stash.let_go(op.microbatch)
        return made
