"""What surrounds the ops of a step on one rank: channels, the end of a step, the place of a failure, closing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
import torch.distributed as dist

from adaptpipe.solver import InputError, Noise, Op
from adaptpipe.solver.floating import Floater
from adaptpipe.solver.traces.writing import save_trace

from ..channels.message import Message
from ..channels.transport import connect
from ..crew import Crew
from ..failures import blame
from ..programs.program import Program
from ..report import StepReport, as_trace
from ..stages.runner import Runner
from ..waiting import gather, wait_in_time
from ..whereabouts import Board
from .adaptive import AdaptiveExecution
from .disturbance import Disturbance
from .execution import Execution
from .memory import Account, MemoryRule
from .plan import Plan
from .startup import agree


class Session:
    """The part of a pipeline that does not know what its ops compute.

    Attributes
    ----------
    _slowed
        Whether ops are made longer by sleeping after them; not where their time is known and includes the noise.

    Parameters
    ----------
    plan
        What all processes have agreed on.
    crew
        The processes, of the default group.
    runners
        This rank's stages.
    seconds_per_tick
        How long a tick of the plan is to take.
    noise
        What disturbs the steps; step n meets its scenario n.
    memory
        What is done about the rank's memory limit.
    timeout_s
        Seconds that a rank waits for a message before it gives up.
    device
        Where the stages are; None is the CPU.
    """

    _slowed = True

    def __init__(
        self,
        plan: Plan,
        crew: Crew,
        runners: Mapping[int, Runner],
        *,
        seconds_per_tick: float,
        noise: Noise | None,
        memory: MemoryRule,
        timeout_s: float,
        device: torch.device | None = None,
    ) -> None:
        self._crew = crew
        self._seconds_per_tick, self._noise, self._memory = seconds_per_tick, noise, memory
        self._runners = runners
        self._meeting_place = device if "cpu:" not in dist.get_backend_config() else torch.device("cpu")
        self._timeout_s = timeout_s
        self._transport = connect(crew, plan.program.routes, timeout_s=timeout_s, device=device)
        self._take_up(plan)
        self._steps = 0
        self._report: StepReport | None = None
        self._failed = self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def program(self) -> Program:
        """What `step` runs."""
        return self._program

    @property
    def report(self) -> StepReport:
        """Times and bytes of this rank's last step.

        Raises
        ------
        InputError
            If there has been no step.
        """
        if self._report is None:
            raise InputError("report: there has been no step; call step first")
        return self._report

    def save_trace(self, path: str | Path) -> None:
        """Write what all ranks did in the last step, for ui.perfetto.dev and `adaptpipe compare --trace`.

        All ranks call it together; rank 0 writes, of replicas the first. The ranks' clocks must agree, as they do on
        one machine.

        Raises
        ------
        InputError
            On every rank, if there has been no step, or the file cannot be written.
        TransportError
            If a rank does not come.
        """
        what = "save_trace"
        records = gather(self.report.records, self._timeout_s, what)

        def write() -> None:
            if dist.get_rank() == 0:
                first = self._crew.first(records)
                save_trace(as_trace(self._schedule, first, self._seconds_per_tick), path)

        agree(write, lambda nothing: "", self._timeout_s, what)

    def close(self) -> None:
        """Let go of the stages, and end the channels. May be called twice."""
        if not self._closed:
            self._closed = True
            for runner in self._runners.values():
                runner.close()
            self._transport.close()

    def _take_up(self, plan: Plan) -> None:
        """Run this plan from now on; its routes are those of the one before."""
        self._program, self._schedule, self._floating = plan.program, plan.schedule, plan.floating
        sizes, rank = plan.program.sizes, self._crew.rank
        self._disturbance = Disturbance(self._noise, plan.problem.instance(sizes), self._seconds_per_tick)
        self._account = Account(plan.problem, sizes, rank, self._runners, self._transport.messages, self._memory)

    def _evaluation(self, program: Program, inputs: tuple[Message, ...], targets: tuple[object, ...]) -> Execution:
        """An execution of a program without backward."""
        self._transport.begin(program.orders)
        return Execution(program, self._crew.rank, self._runners, self._transport, inputs, targets)

    def _training(self, inputs: tuple[Message, ...], targets: tuple[object, ...]) -> Execution:
        """An execution of the schedule, in the noise of the next step."""
        program, noise = self._program, self._disturbance
        noise.begin(self._steps)
        self._transport.begin(program.orders, noise.late_s(program, self._crew.rank))
        return self._execution(inputs, targets, noise.added_s if self._slowed and not noise.silent else None)

    def _execution(
        self, inputs: Sequence[Message], targets: Sequence[object], added_s: Callable[[Op], float] | None
    ) -> Execution:
        """What follows the instructions."""
        parts = self._program, self._crew.rank, self._runners, self._transport, inputs, targets, self._account
        if self._floating is None:
            return Execution(*parts, added_s)
        return AdaptiveExecution(*parts, added_s, Floater(self._floating, self._crew.rank), self._seconds_per_tick)

    def _train(self, execution: Execution, begin: float) -> float:
        """Run a step that began at the time `begin`, and keep its report."""
        self._account.begin()
        self._transport.received.reset_peak()
        with self._guard(execution), torch.enable_grad():
            execution.run()
            loss = self._end(execution)
        self._report = StepReport(
            step=self._steps,
            loss=loss,
            records=tuple(execution.records),
            peak_bytes=self._account.peak_bytes,
            received_bytes=self._transport.received.peak,
            message_bytes=self._transport.messages.peak,
            step_s=time.perf_counter() - begin,
        )
        self._steps += 1
        return loss

    def _end(self, execution: Execution) -> float:
        """Check that nothing is left, and tell every rank the loss, the mean over the samples of all replicas."""
        for runner in self._runners.values():
            runner.assert_done()
        self._settle()
        self._transport.flush()
        mine = [execution.loss * execution.whole, execution.loss_part]
        sums = torch.tensor(mine, dtype=torch.float64, device=self._meeting_place)
        self._all_reduce(sums)
        loss, samples = sums.tolist()
        return float(loss / samples)

    def _all_reduce(self, values: torch.Tensor) -> None:
        """Sum over all ranks, which all must get there."""
        late = f"not every rank has come to the end of the step within {self._timeout_s:g} s"
        wait_in_time(dist.all_reduce(values, async_op=True), self._timeout_s, late)

    def _settle(self) -> None:
        """Wait at the end of a step for what ops have started beside them: nothing, where ops are emulated."""

    def _ensure_usable(self) -> None:
        if self._closed or self._failed:
            state = "is closed" if self._closed else "has failed"
            raise InputError(f"step {self._steps}: the pipeline {state}; make a new one")

    @contextmanager
    def _guard(self, execution: Execution | None = None) -> Iterator[None]:
        """Turn what goes wrong inside into the error that says where, and let go of everything."""
        if execution is not None and Board.mine is not None:
            Board.mine.begin(self._steps, self._timeout_s)
        try:
            yield
        except BaseException as error:
            self._failed = True
            for runner in self._runners.values():
                runner.clear()
            if not isinstance(error, Exception):  # Ctrl-C, or the end of the process
                raise
            at = None if execution is None else execution.at
            if at is None:
                raise blame(error, dist.get_rank(), step=self._steps) from error
            raise blame(error, dist.get_rank(), at.stage, at.kind.name, at.microbatch, self._steps) from error
