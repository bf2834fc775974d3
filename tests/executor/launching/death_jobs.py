"""Ranks that come to grief at a given place; in a file of its own, so that other processes find it by name."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from unittest import mock

import torch.distributed as dist

from adaptpipe.executor.running.emulated import EmulatedPipeline
from adaptpipe.executor.running.execution import Execution
from adaptpipe.solver import Op, Problem, Schedule

TICK_S = 1e-3

How = Literal["kill", "raise", "hang"]
Where = Literal["construction", "op", "between", "end"]


@dataclass(frozen=True)
class Death:
    """What befalls which rank, where.

    Parameters
    ----------
    rank
        Whose.
    how
        The end of the process, an exception, or no end.
    where
        While the pipeline is made; in an op of the second step, before it begins to wait or while it is under way, or
        between that and the next; at the end of the step, before the loss is told to all.
    at
        Number of the op among those of the rank.
    """

    rank: int
    how: How
    where: Where
    at: int = 0


def strike(how: How, delay_s: float = 0.0) -> None:
    """Do it; a kill may come a little later, from another thread, while this one goes on."""
    if how == "raise":
        raise ValueError("boom")
    if how == "hang":
        time.sleep(600)
    threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()


def die(rank: int, world: int, argument: tuple[Problem, Schedule, Death, Path, float]) -> None:
    """Run two steps, or what the rank lives to see of them; leave behind its number, when it was hit, and where."""
    problem, schedule, death, folder, timeout_s = argument
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    begun: list[Op] = []

    def fall(*anything: object, delay_s: float = 0.0, **named: object) -> None:
        last = begun[-1] if begun else "nothing"
        (folder / "struck").write_text(f"{time.monotonic() + delay_s} {last}")
        strike(death.how, delay_s)
        time.sleep(10)  # until killed

    if rank == death.rank and death.where == "construction":
        fall()
    with EmulatedPipeline(problem, schedule, seconds_per_tick=TICK_S, timeout_s=timeout_s) as pipeline:
        pipeline.step()
        with ExitStack() as stack:
            if rank == death.rank:
                _set_trap(stack, pipeline, death, begun, fall)
            pipeline.step()


def _set_trap(
    stack: ExitStack, pipeline: EmulatedPipeline, death: Death, begun: list[Op], fall: Callable[..., None]
) -> None:
    spend, run = pipeline._device.run, Execution._run

    def run_op(execution: Execution, op: Op) -> None:
        begun.append(op)
        run(execution, op)
        if death.where == "between" and len(begun) - 1 == death.at:
            fall()

    def run_device(seconds: float, arrived_s: float) -> None:
        if death.where == "op" and len(begun) - 1 == death.at:
            fall(delay_s=seconds / 2)
        spend(seconds, arrived_s)

    stack.enter_context(mock.patch.object(Execution, "_run", run_op))
    stack.enter_context(mock.patch.object(pipeline._device, "run", run_device))
    if death.where == "end":
        stack.enter_context(mock.patch.object(dist, "all_reduce", mock.Mock(side_effect=fall)))
