"""Run a schedule without a model: ops sleep for their planned time, and messages are real.

What a schedule does on a machine depends on more than its plan: messages take longer than in the mean, ranks share
cores, and a late op delays others. Emulated ops show that on one small machine with many ranks, where real ops would
only fight for the cores.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from adaptpipe.solver import InputError, Kind, Noise, Op, Problem, Schedule

from ..channels.message import Message
from ..clock import sleep_until
from ..crew import Crew
from ..waiting import wait_in_time
from .memory import MemoryRule
from .plan import ExecutionMode, Plan
from .prices import Prices
from .session import Session
from .startup import MAKING, agree, check_timeout, check_world, patience

_SET_TIMERSLACK = 29  # of Linux's prctl(2)


class Device:
    """The clock of one rank's emulated device, in seconds of `time.perf_counter`.

    An op starts when the one before has ended and its message has arrived, and ends its planned time later, at the very
    moment. So what the process does between two ops, or when it wakes too late, does not delay the device, as with an
    accelerator whose host works ahead; but messages leave when the process is there to send them.

    Attributes
    ----------
    times
        Start and end of the ops that have run since `begin`, in order.
    """

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []
        self._free_s = 0.0

    def begin(self) -> None:
        """Be idle from now on, and forget the ops that have run."""
        self.times = []
        self._free_s = time.perf_counter()

    def run(self, seconds: float, arrived_s: float) -> None:
        """Run an op whose message arrived at `arrived_s`, if not before the one before ended."""
        start = max(self._free_s, arrived_s)
        self._free_s = end = start + seconds
        self.times.append((start, end))
        sleep_until(end)


class EmulatedRunner:
    """Runs the ops of one stage on an emulated device; takes the place of a `StageRunner`.

    Parameters
    ----------
    run
        Spends the time of an op.
    stage
        Its number.
    last
        Whether it is the last stage, which returns a loss (0) instead of a message.
    prices
        The bytes that ops hold.
    message
        What it sends, forward and back.
    """

    def __init__(self, run: Callable[[Op], None], stage: int, last: bool, prices: Prices, message: Tensor) -> None:
        self.stage = stage
        self._spend = run
        self._outputs: Message = (torch.zeros(()) if last else message,)
        self._gradients: Message = () if stage == 0 else (message,)
        self._prices = prices
        self._held: dict[int, int] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes that the problem says are held between ops, of all micro-batches."""
        return sum(self._held.values())

    def held_by(self, microbatch: int) -> int:
        """Bytes held for one micro-batch."""
        return self._held.get(microbatch, 0)

    def forward(
        self, microbatch: int, inputs: Message, *, target: object, weight: float, split: bool, is_batch: bool
    ) -> Message:
        """Run F."""
        self._run(Op(self.stage, Kind.F, microbatch))
        return self._outputs

    def outputs(self, microbatch: int, inputs: Message, target: object, weight: float) -> Message:
        """Give what F gives, at once and without a trace."""
        return self._outputs

    def backward(self, microbatch: int, gradients: Message | None, split: bool) -> Message:
        """Run I (split) or B."""
        self._run(Op(self.stage, Kind.I if split else Kind.B, microbatch))
        return self._gradients

    def weights(self, microbatch: int, units: tuple[int, int] | None = None) -> None:
        """Run W, whole or of some units."""
        self._run(Op(self.stage, Kind.W, microbatch, units))

    def assert_done(self) -> None:
        """Check at the end of a step that nothing is held."""
        left = {microbatch: held for microbatch, held in self._held.items() if held}
        assert not left, f"stage {self.stage} holds {left} bytes by micro-batch after its last op"
        self._held.clear()

    def clear(self) -> None:
        """Let go of everything, after a step that failed."""
        self._held.clear()

    def close(self) -> None:
        """Nothing to give back."""

    def _run(self, op: Op) -> None:
        self._held[op.microbatch] = self._held.get(op.microbatch, 0) + self._prices.kept(op)
        self._spend(op)


class EmulatedPipeline(Session):
    """Runs a schedule's ops by sleeping for their planned time, with real messages between ranks.

    All ranks of the default process group make one together, with the same arguments, and call `step` together. Start
    them with `launch(..., threads=1)`.

    Parameters
    ----------
    problem, schedule
        What to run; B's, W's of some units and unequal micro-batches may all be in it.
    seconds_per_tick
        How long a tick of the problem takes here.
    execution
        "adaptive" or "static"; see `Pipeline`.
    noise
        Ops take what they take in its scenarios, and messages are held back. Step n meets scenario n.
    memory
        "enforce" or "report"; see `Pipeline`.
    message_bytes
        Size of every message. Message times are this machine's, whatever the problem's links say.
    timeout_s
        Seconds that a rank waits for a message before it gives up.

    Raises
    ------
    InputError
        On every rank, if an argument is out of range, the schedule cannot be run, or it differs between ranks.
    NoAnswerError
        On every rank, if the schedule is invalid, or its ranks would wait for each other for ever.

    Examples
    --------
    ::

        with EmulatedPipeline(problem, schedule, seconds_per_tick=1e-6) as pipeline:
            pipeline.step()
            records = pipeline.report.records
    """

    _slowed = False

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        *,
        seconds_per_tick: float,
        execution: ExecutionMode = "adaptive",
        noise: Noise | None = None,
        memory: MemoryRule = "enforce",
        message_bytes: int = 1 << 16,
        timeout_s: float = 60.0,
    ) -> None:
        crew = Crew.of()

        def prepare() -> Plan:
            check_emulation(seconds_per_tick, message_bytes)
            check_timeout(timeout_s)
            check_world(schedule.placement, crew)
            return Plan.of(problem, schedule, execution, memory)

        plan = agree(prepare, lambda plan: plan.fingerprint, patience(timeout_s), MAKING)
        program, prices = plan.program, Prices(problem.instance(schedule.sizes))
        self._device = Device()
        self._before: Op | None = None  # the op that has run last, if ranges of one W can go on
        message = torch.zeros(message_bytes, dtype=torch.uint8)
        last = program.placement.stage_count - 1
        runners = {
            stage: EmulatedRunner(self._spend, stage, stage == last, prices, message)
            for _, stage in program.placement.held[crew.rank]
        }
        super().__init__(
            plan, crew, runners, seconds_per_tick=seconds_per_tick, noise=noise, memory=memory, timeout_s=timeout_s
        )

    def step(self) -> None:
        """Run one step, after a barrier; its times are in `report`.

        Raises
        ------
        InputError
            If the pipeline is closed.
        RankFailure
            If anything goes wrong on this rank, with stage, op, micro-batch and step.
        PeerFailed
            If another rank failed first.
        """
        self._ensure_usable()
        count = len(self._program.sizes)
        with _quiet():
            execution = self._training(((),) * count, (None,) * count)
            with self._guard():
                late = f"not every rank has come to the start of the step within {self._timeout_s:g} s"
                wait_in_time(dist.barrier(async_op=True), self._timeout_s, late)
            begin = time.perf_counter()
            self._device.begin()
            self._train(execution, begin)
        report = self.report
        records = zip(report.records, self._device.times, strict=True)
        self._report = replace(
            report, records=tuple(replace(record, start_s=start, end_s=end) for record, (start, end) in records)
        )

    def _spend(self, op: Op) -> None:
        self._device.run(self._disturbance.seconds(op, self._before), self._transport.arrived_s)
        if self._floating is not None:
            self._before = op


def check_emulation(seconds_per_tick: float, message_bytes: int) -> None:
    """Check what an emulated pipeline is told beside problem and schedule.

    Raises
    ------
    InputError
        If a value is out of range.
    """
    if not 0 < seconds_per_tick <= 3600:
        raise InputError(f"seconds_per_tick = {seconds_per_tick}: must be above 0, and at most 3600")
    if message_bytes < 1:
        raise InputError(f"message_bytes = {message_bytes}: must be at least 1")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep from the ops what would delay them: garbage collection, and sleeps that the system rounds up.

    The timer slack, 50 us by default, stays as short as it can be for the thread.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_TIMERSLACK, 1, 0, 0, 0)
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
