"""The interpreter: follows one rank's instructions, once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from math import fsum

import torch
from torch import Tensor
from torch.profiler import record_function

from adaptpipe.solver import Kind, Op

from ..channels.ledger import Ledger
from ..channels.message import Message, nbytes
from ..channels.transport import Transport
from ..programs.program import Instruction, Pass, Program, Receive, Run, Send
from ..report import OpRecord
from ..stages.runner import Runner, detached
from ..whereabouts import Board
from .memory import Account, Shapes


class Execution:
    """One step, or one evaluation, of one rank: the ops in the schedule's order.

    Parameters
    ----------
    program, rank
        Whose instructions to follow. Nothing is kept for a backward where gradients are disabled.
    runners
        The rank's stages.
    transport
        The rank's channels, which have been told what to expect.
    inputs, targets
        For each micro-batch, its rows of the batch and of the target, where the rank needs them; else empty.
    account
        The bytes that the rank holds; None where ops hold nothing, in an evaluation.
    added_s
        Seconds by which each op is made longer.

    Attributes
    ----------
    at
        The op that runs, or whose message is waited for or sent; None before and after.
    records
        The ops that have run.
    whole
        What the batch has in sum, in samples; or, where there are slices, in samples times relative tokens.
    """

    def __init__(
        self,
        program: Program,
        rank: int,
        runners: Mapping[int, Runner],
        transport: Transport,
        inputs: Sequence[Message],
        targets: Sequence[object],
        account: Account | None = None,
        added_s: Callable[[Op], float] | None = None,
    ) -> None:
        self._steps = program.steps[rank]
        self._windows = program.windows
        self._parts = program.parts
        self.whole = sum(program.parts)
        self._last = program.placement.stage_count - 1
        self._split = program.split
        self._runners = runners
        self._transport = transport
        self._inputs = list(inputs)
        self._targets = list(targets)
        # Messages not used yet, of other ranks and of this one: by whether forward, receiver and micro-batch.
        self._arrived: dict[tuple[bool, int, int], Message] = {}
        self._passed: dict[tuple[bool, int, int], Message] = {}
        self._passed_bytes = Ledger(transport.messages)
        self._asked_s: dict[Op, float] = {}
        self._calls: dict[Op, tuple[float, float]] = {}  # when an op's message was asked for, and when it had arrived
        self._made: Message = ()
        self._account = account
        self._shapes: dict[tuple[int, int], Shapes] = {}  # of what each stage got for each micro-batch
        self._added_s = added_s
        self._in_wait = False
        self.at: Op | None = None
        self._losses: dict[int, Tensor] = {}
        self.records: list[OpRecord] = []

    @property
    def loss(self) -> float:
        """What this rank's micro-batches have added to the batch's mean loss; 0 where it does not hold the last stage.

        Added up exactly, so that the loss does not depend on order or place.
        """
        return fsum(torch.stack([*self._losses.values()]).tolist()) if self._losses else 0.0

    @property
    def loss_part(self) -> int:
        """What the micro-batches that are in `loss` have of `whole`."""
        return sum(self._parts[j] for j in self._losses)

    def run(self) -> None:
        """Run every op."""
        for op, instructions in self._steps.items():
            self._follow(op, instructions)
        self.at = None

    def _follow(self, op: Op, instructions: Sequence[Instruction]) -> None:
        """Run an op, with the messages before and after it."""
        self.at = op
        for instruction in instructions:
            match instruction:
                case Receive(_, route):
                    asked = self._asked_s.pop(op, time.perf_counter())
                    message = self._transport.recv(route, op.microbatch)
                    self._arrived[op.kind is Kind.F, op.stage, op.microbatch] = message
                    self._calls[op] = asked, self._transport.arrived_s
                    del message
                case Run():
                    self._run(op)
                case Send(_, route):
                    if route in self._windows:
                        self._transport.make_room(route, self._windows[route])
                    self._transport.send(route, op.microbatch, self._made)
                    self._made = ()
                case Pass(_, receiver):
                    self._passed_bytes.add(nbytes(self._made))
                    self._passed[op.kind is Kind.F, receiver, op.microbatch] = self._made
                    self._made = ()

    def _run(self, op: Op) -> None:
        runner, account = self._runners[op.stage], self._account
        before = 0
        shapes = self._look(op) if account is not None and account.limited else ()
        if account is not None:
            before = account.ops_bytes
            account.require(op, shapes)
        if Board.mine is not None:
            Board.mine.enter(op)
        start, busy = time.perf_counter(), time.thread_time()
        # The range costs ten microseconds even where nobody looks.
        with record_function(str(op)) if torch._C._autograd._profiler_enabled() else nullcontext():
            match op.kind:
                case Kind.F:
                    self._made = self._forward(op, runner)
                case Kind.W:
                    runner.weights(op.microbatch, op.units)
                case _:
                    self._made = self._backward(op, runner)
            if self._added_s is not None:
                time.sleep(self._added_s(op))
        end, busy = time.perf_counter(), time.thread_time() - busy
        if Board.mine is not None:
            Board.mine.leave()
        held = runner.held_by(op.microbatch)
        if account is not None:
            # Looking after each op is enough: while I runs, the larger of what was held before and after counts.
            account.ran(op, before, shapes)
        asked, arrived = self._calls.pop(op, (None, None))
        self.records.append(OpRecord(op, start, end, held, nbytes(self._made), busy, asked, arrived, self._in_wait))

    def _look(self, op: Op) -> Shapes:
        """The shapes of what the stage gets, or got, for an op's micro-batch."""
        place = op.stage, op.microbatch
        if op.kind is Kind.F:
            key = (True, *place)
            message = self._inputs[op.microbatch] if op.stage == 0 else self._arrived.get(key) or self._passed.get(key)
            self._shapes[place] = tuple(None if x is None else tuple(x.shape) for x in message or ())
        return self._shapes[place]

    def _take(self, op: Op) -> Message:
        """The message that an op needs."""
        key = (op.kind is Kind.F, op.stage, op.microbatch)
        if key in self._arrived:
            return self._arrived.pop(key)
        message = self._passed.pop(key)
        self._passed_bytes.add(-nbytes(message))
        return message

    def _forward(self, op: Op, runner: Runner) -> Message:
        j, is_batch, is_last = op.microbatch, op.stage == 0, op.stage == self._last
        inputs = self._inputs[j] if is_batch else self._take(op)
        target = self._targets[j] if is_last else None
        weight = self._weight(j)
        if torch.is_grad_enabled():
            split = (op.stage, j) in self._split
            made = runner.forward(j, inputs, target=target, weight=weight, split=split, is_batch=is_batch)
        else:
            made = runner.outputs(j, inputs, target, weight)
        if not is_last:
            return detached(made)
        (loss,) = made
        assert loss is not None, "a loss is a tensor"
        self._losses[j] = loss.detach()
        return ()

    def _weight(self, microbatch: int) -> float:
        """What a micro-batch's loss is multiplied with before its backward: its share of the batch."""
        return self._parts[microbatch] / self.whole

    def _backward(self, op: Op, runner: Runner) -> Message:
        gradients = self._take(op) if op.stage < self._last else None
        return runner.backward(op.microbatch, gradients, split=op.kind is Kind.I)
