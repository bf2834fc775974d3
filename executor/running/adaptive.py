"""The interpreter of adaptive execution: weight units run while messages are waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from adaptpipe.solver import Kind, Op
from adaptpipe.solver.floating import Floater

from ..channels.message import Message
from ..channels.transport import Transport
from ..programs.program import Program, Receive, Run, Send
from ..stages.runner import Runner
from .execution import Execution
from .memory import Account


class AdaptiveExecution(Execution):
    """One step of one rank: F, I and B in the schedule's order, weight units when the policy says so.

    What a rank sends, and in which order, is the schedule's, whatever the policy decides.

    Parameters
    ----------
    program, rank, runners, transport, inputs, targets, account, added_s
        As for `Execution`.
    floater
        The policy, before its first op.
    seconds_per_tick
        How long a tick of its plan is to take.
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
        floater: Floater,
        seconds_per_tick: float,
    ) -> None:
        super().__init__(program, rank, runners, transport, inputs, targets, account, added_s)
        self._held = account.held if account.limited else None
        self._floater = floater
        self._seconds_per_tick = seconds_per_tick

    def run(self) -> None:
        """Run every op; the policy's clock starts now."""
        begin = time.perf_counter()
        while not self._floater.done:
            awaited = self._floater.awaited
            arrived = awaited is None or self._can_start(awaited)
            if awaited is not None and not arrived:
                self._asked_s.setdefault(awaited, time.perf_counter())
            held = None if self._held is None else self._held(awaited)
            now = (time.perf_counter() - begin) / self._seconds_per_tick
            op = self._floater.next(now, arrived, held)
            if op is None and arrived:
                # It does not seem to fit, and no unit is left that would make room: it may be smaller than planned, and
                # the account has the last word.
                op = self._floater.next(now, arrived, 0)
            if op is None:
                assert awaited is not None, "the policy waits for nothing"
                self._wait_for(awaited)
                continue
            self._in_wait = op.kind is Kind.W and not arrived
            self._follow(op, self._steps.get(op, (Run(op),)))
            self._floater.finished(op)
        self.at = None

    def _can_start(self, op: Op) -> bool:
        """Tell whether an op's message is there, and room for the one that it sends."""
        for instruction in self._steps[op]:
            match instruction:
                case Receive(_, route):
                    if not self._transport.ready(route, op.microbatch):
                        return False
                case Send(_, route):
                    if route in self._windows and not self._transport.has_room(route, self._windows[route]):
                        return False
                case _:
                    pass
        return True

    def _wait_for(self, op: Op) -> None:
        """Wait until an op can start."""
        self.at = op
        for instruction in self._steps[op]:
            match instruction:
                case Receive(_, route):
                    self._transport.wait(route, op.microbatch)
                case Send(_, route) if route in self._windows:
                    self._transport.make_room(route, self._windows[route])
                case _:
                    pass
