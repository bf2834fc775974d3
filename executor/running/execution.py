"""The interpreter: follows one rank's instructions, once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.profiler import record_function

from adaptpipe.solver import Kind, Op

from ..channels.message import Message, nbytes
from ..channels.transport import Transport
from ..programs.program import Pass, Program, Receive, Run, Send
from ..report import OpRecord
from .runner import detached


class Runner(Protocol):
    """What runs the ops of one stage: see `StageRunner`, which does so for real."""

    @property
    def held_bytes(self) -> int: ...

    def held_by(self, microbatch: int) -> int: ...

    def forward(
        self, microbatch: int, inputs: Message, *, target: object, weight: float, split: bool, is_batch: bool
    ) -> Message: ...

    def outputs(self, inputs: Message, target: object, weight: float) -> Message: ...

    def backward(self, microbatch: int, gradients: Message | None, split: bool) -> Message: ...

    def weights(self, microbatch: int, units: tuple[int, int] | None = None) -> None: ...

    def assert_done(self) -> None: ...

    def clear(self) -> None: ...

    def close(self) -> None: ...


class Execution:
    """One step, or one evaluation, of one rank.

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

    Attributes
    ----------
    at
        The op that runs, or whose message is waited for or sent; None before and after.
    loss
        Mean loss of the batch so far, on the last stage's rank.
    records
        The ops that have run.
    samples
        Of the batch.
    peak_bytes
        The most that the stages have held at once.
    """

    def __init__(
        self,
        program: Program,
        rank: int,
        runners: Mapping[int, Runner],
        transport: Transport,
        inputs: Sequence[Message],
        targets: Sequence[object],
    ) -> None:
        self._instructions = program.rows[rank]
        self._sizes = program.sizes
        self.samples = sum(program.sizes)
        self._last = program.placement.stage_count - 1
        self._split = program.split
        self._runners = runners
        self._transport = transport
        self._inputs = list(inputs)
        self._targets = list(targets)
        self._arrived: dict[tuple[bool, int, int], Message] = {}  # by whether forward, receiver and micro-batch
        self._calls: dict[Op, tuple[float, float]] = {}  # when an op's message was asked for, and when it had arrived
        self._made: Message = ()
        self.at: Op | None = None
        self.loss: Tensor | None = None
        self.records: list[OpRecord] = []
        self.peak_bytes = 0

    def run(self) -> None:
        """Follow the instructions to their end."""
        for instruction in self._instructions:
            op = self.at = instruction.op
            match instruction:
                case Receive(_, route):
                    asked = time.perf_counter()
                    message = self._transport.recv(route, op.microbatch)
                    self._arrived[op.kind is Kind.F, op.stage, op.microbatch] = message
                    self._calls[op] = asked, self._transport.arrived_s
                    del message
                case Run():
                    self._run(op)
                case Send(_, route):
                    self._transport.send(route, op.microbatch, self._made)
                    self._made = ()
                case Pass(_, receiver):
                    self._arrived[op.kind is Kind.F, receiver, op.microbatch] = self._made
                    self._made = ()
        self.at = None

    def _run(self, op: Op) -> None:
        runner = self._runners[op.stage]
        start, busy = time.perf_counter(), time.thread_time()
        with record_function(str(op)):
            match op.kind:
                case Kind.F:
                    self._made = self._forward(op, runner)
                case Kind.W:
                    runner.weights(op.microbatch, op.units)
                case _:
                    self._made = self._backward(op, runner)
        end, busy = time.perf_counter(), time.thread_time() - busy
        held = runner.held_by(op.microbatch)
        # Looking after each op is enough: while I runs, the larger of what was held before and after counts.
        self.peak_bytes = max(self.peak_bytes, sum(each.held_bytes for each in self._runners.values()))
        asked, arrived = self._calls.pop(op, (None, None))
        self.records.append(OpRecord(op, start, end, held, nbytes(self._made), busy, asked, arrived))

    def _forward(self, op: Op, runner: Runner) -> Message:
        j, is_batch, is_last = op.microbatch, op.stage == 0, op.stage == self._last
        inputs = self._inputs[j] if is_batch else self._arrived.pop((True, op.stage, j))
        target = self._targets[j] if is_last else None
        weight = self._sizes[j] / self.samples
        if torch.is_grad_enabled():
            split = (op.stage, j) in self._split
            made = runner.forward(j, inputs, target=target, weight=weight, split=split, is_batch=is_batch)
        else:
            made = runner.outputs(inputs, target, weight)
        if not is_last:
            return detached(made)
        (loss,) = made
        assert loss is not None, "a loss is a tensor"
        self.loss = loss.detach() if self.loss is None else self.loss + loss.detach()
        return ()

    def _backward(self, op: Op, runner: Runner) -> Message:
        gradients = self._arrived.pop((False, op.stage, op.microbatch)) if op.stage < self._last else None
        return runner.backward(op.microbatch, gradients, split=op.kind is Kind.I)
