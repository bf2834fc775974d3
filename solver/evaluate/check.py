"""Say whether a schedule is valid for a problem, and where it is not."""

from __future__ import annotations

import numpy as np

from ..core.errors import NoAnswerError
from ..core.problem import Problem
from ..core.schedule import Schedule
from . import kernel
from .limits import memory_violations
from .simulate import op_bytes, op_inputs, op_ticks, require_fit, static_bytes
from .steady import flow
from .structure import Violation, deadlock, malformed


def check(problem: Problem, schedule: Schedule) -> tuple[Violation, ...]:
    """Everything that is wrong with a schedule; empty when it is valid.

    Valid means: every op on its stage's rank; each stage and micro-batch with one F and either one B, or one I and
    ranges of W that cover its units once; no rank waits for ever, nor in later batches where there is no flush; no rank
    ever holds more than its limit.

    Raises
    ------
    InputError
        When the schedule is for another shape (placement, samples, sizes).
    """
    require_fit(problem, schedule)
    instance = problem.instance(schedule.sizes)
    found = malformed(instance, schedule)
    if found:
        return tuple(found)
    before, lag = op_inputs(instance, schedule)
    offsets, done = schedule.table.offsets, np.zeros(problem.ranks, dtype=np.int64)
    ticks = op_ticks(instance, schedule)
    if kernel.earliest(offsets, ticks, before, lag, np.zeros(len(ticks), dtype=np.int64), done) < len(ticks):
        return (deadlock(schedule, before, offsets[:-1] + done),)
    if schedule.updates != "step":
        try:
            flow(problem, schedule)
        except NoAnswerError as error:
            return (Violation(0, None, str(error)),)
    during, after = np.empty(len(ticks), dtype=np.int64), np.empty(len(ticks), dtype=np.int64)
    kernel.memory(offsets, static_bytes(problem, schedule), *op_bytes(instance, schedule), during, after)
    return memory_violations(problem, schedule, during)
