"""Where each rank's time went, from the first start on any rank to the last end on any."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..core.ops import Kind
from ..core.problem import Problem
from ..evaluate.simulate import simulate
from .trace import Ran, Trace


@dataclass(frozen=True, slots=True)
class Usage:
    """One rank's time, in nanoseconds; `work_ns`, `wait_ns`, `overhead_ns` and `after_ns` add up to the makespan.

    Parameters
    ----------
    planned_ns
        Its ops, by the plan.
    work_ns
        Its ops, as they ran.
    filled_ns
        The part of that in which weight gradients ran while a message was waited for.
    wait_ns
        Nothing ran, and a message was waited for.
    overhead_ns
        Nothing ran, and nothing was waited for, before its last op had ended.
    after_ns
        It had ended, and another had not.
    """

    planned_ns: Fraction
    work_ns: int
    filled_ns: int
    wait_ns: int
    overhead_ns: int
    after_ns: int


def usages(problem: Problem, trace: Trace) -> tuple[Usage, ...]:
    """Time of every rank.

    Raises
    ------
    InputError
        If the schedule does not fit the problem.
    NoAnswerError
        If the schedule cannot run.
    """
    work = simulate(problem, trace.schedule).work
    return tuple(_usage(trace, row, ticks * trace.tick_ns) for row, ticks in zip(trace.rows, work, strict=True))


def _usage(trace: Trace, row: tuple[Ran, ...], planned_ns: Fraction) -> Usage:
    work = sum(ran.end_ns - ran.start_ns for ran in row)
    waited = filled = 0
    free = trace.begin_ns
    for ran in row:
        if ran.asked_ns is None or ran.arrived_ns is None:
            continue
        asked, arrived = max(ran.asked_ns, free), min(ran.arrived_ns, ran.start_ns)
        if arrived > asked:
            free = arrived
            waited += arrived - asked
            weights = (other for other in row if other.op.kind is Kind.W)
            filled += sum(max(0, min(other.end_ns, arrived) - max(other.start_ns, asked)) for other in weights)
    end = row[-1].end_ns if row else trace.begin_ns
    idle = end - trace.begin_ns - work
    return Usage(planned_ns, work, filled, waited - filled, idle - (waited - filled), trace.end_ns - end)
