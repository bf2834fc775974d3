"""Why a run took longer than its plan: the difference of the makespans, cause by cause, along the critical path.

The *measured critical path* is walked backwards from the op that ended last. Before an op comes what it waited for:

* the op whose message it needs, if that arrived after everything that the rank had to run before had ended;
* else the op that its rank ran before.

So the path fills the time from the first start to the last end without a gap, and everything in it that the plan has
not, or has otherwise, has one cause and one rank:

compute
    An op took longer than planned.
message
    A message took longer, from the end of its op to its arrival, than planned; charged to the rank that waited.
overhead
    The op before had ended and the message was there, and the op had not started yet.
filling
    A weight gradient ran that the plan has elsewhere: brought forward to fill a wait and not done when the message
    came, or put off until nothing else was left to do.
elsewhere
    The plan has weight gradients here that ran elsewhere (negative).
slack
    The plan idles here, and the run did not (negative): what was late beforehand cost so much less.

A weight gradient is *elsewhere* if it ran between other two of its rank's F, I and B than in the plan, whose order is
fixed; one that is not does not stand in for a message, so the wait that it fills stays visible. Without the path's
excess, what remains of it is a chain of ops and messages that the plan has too, in that order and at planned prices, so
it is no longer than the planned makespan; the rest of that are the last two causes. Hence the charges add up to the
measured makespan less the planned one, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from ..core.errors import InputError
from ..core.ops import Kind, Op
from ..core.problem import Problem
from ..core.schedule import Schedule
from ..evaluate.simulate import op_inputs, op_ticks, require_fit, simulate
from ..evaluate.structure import malformed
from .trace import Ran, Trace


class Cause(StrEnum):
    """What time was spent on, beyond the plan; see the module."""

    compute = "compute"
    message = "message"
    overhead = "overhead"
    filling = "filling"
    elsewhere = "elsewhere"
    slack = "slack"


@dataclass(frozen=True, slots=True)
class Charge:
    """A part of the difference.

    Parameters
    ----------
    rank, op
        Where: the op that took it, or before which it passed.
    cause
        Why.
    ns
        Nanoseconds more than planned; negative where the run was faster.
    """

    rank: int
    op: Op
    cause: Cause
    ns: Fraction


@dataclass(frozen=True, slots=True)
class Attribution:
    """A run beside its plan.

    Parameters
    ----------
    planned_ns, measured_ns
        The makespans.
    path
        (rank, op) of the measured critical path, first to last.
    charges
        All that is not zero, along the path what the run has beyond the plan, then what the plan has beyond the run.
        Their sum is measured less planned.
    """

    planned_ns: Fraction
    measured_ns: int
    path: tuple[tuple[int, Op], ...]
    charges: tuple[Charge, ...]

    def total(self, rank: int | None = None, cause: Cause | None = None) -> Fraction:
        """Sum of the charges, of one rank or all, of one cause or all, in nanoseconds."""
        return sum(
            (each.ns for each in self.charges if rank in (None, each.rank) and cause in (None, each.cause)), Fraction(0)
        )


def attribute(problem: Problem, trace: Trace) -> Attribution:
    """Charge the difference between a run and its plan to causes.

    Parameters
    ----------
    problem
        The prices that the plan was made with.
    trace
        The run, with its schedule.

    Raises
    ------
    InputError
        If the schedule does not fit the problem, or the weight gradients that ran are not all of them.
    NoAnswerError
        If the schedule cannot run.

    Examples
    --------
    >>> from adaptpipe.solver.heuristics import gpipe
    >>> from adaptpipe.solver.traces.trace import trace_of
    >>> problem = Problem.from_dict({
    ...     "pipeline": {"ranks": 2},
    ...     "batch": {"samples": 1},
    ...     "costs": {"forward": 2, "backward_input": 2, "backward_weight": 1},
    ... })
    >>> plan = trace_of(simulate(problem, gpipe(problem)))
    >>> first, (f, b) = plan.rows
    >>> late = Ran(b.op, b.start_ns, b.end_ns + 500)
    >>> then = Ran(first[1].op, first[1].start_ns + 700, first[1].end_ns + 700, arrived_ns=first[1].start_ns + 600)
    >>> found = attribute(problem, Trace(plan.schedule, ((first[0], then), (f, late)), plan.seconds_per_tick))
    >>> [f"rank {each.rank}, {each.op}: {each.cause} {each.ns}" for each in found.charges]
    ['rank 1, 1B0: compute 500', 'rank 0, 0B0: message 100', 'rank 0, 0B0: overhead 100']
    """
    require_fit(problem, trace.schedule)
    wrong = malformed(problem.instance(trace.schedule.sizes), trace.executed)
    if wrong:
        raise InputError(f"the trace is not of a run of its schedule: {wrong[0].message}")
    prices = _Prices(problem, trace)
    path = _critical_path(trace, prices.home)
    charges = [charge for charge in (*_excess(trace, prices, path), *_relief(prices, path)) if charge.ns]
    planned = prices.tick_ns * prices.plan.makespan
    return Attribution(planned, trace.makespan_ns, tuple((node.rank, node.ran.op) for node in path), tuple(charges))


class _Prices:
    """What the plan says of every op of a run.

    Attributes
    ----------
    plan
        On its clock.
    tick_ns
        Length of a tick.
    ticks
        Planned durations of the ops as they ran.
    lag
        Ticks of the message that an op needs.
    span
        Planned start and end of every op of the schedule, in ticks.
    home
        The ops that ran between the same two F, I or B of their rank as in the plan.
    number
        How many F, I and B an F, I or B has before it on its rank.
    between
        For each rank, the ticks of the weight gradients that the plan has after so many F, I and B.
    """

    def __init__(self, problem: Problem, trace: Trace) -> None:
        schedule, executed = trace.schedule, trace.executed
        instance = problem.instance(schedule.sizes)
        self.plan = simulate(problem, schedule)
        self.tick_ns = trace.tick_ns
        self.ticks = dict(zip(_flat(executed), op_ticks(instance, executed).tolist(), strict=True))
        self.lag = dict(zip(_flat(schedule), op_inputs(instance, schedule)[1].max(axis=1).tolist(), strict=True))
        self.span = {op: (start, end) for rank in range(problem.ranks) for op, start, end in self.plan.of(rank)}
        units = [len(each) for each in problem.weight_units]
        meant: dict[tuple[int, int, int], int] = {}
        self.number = {op: gap for row in schedule.ops for gap, op in _gaps(row) if op.kind is not Kind.W}
        self.between: list[dict[int, int]] = []
        for row in schedule.ops:
            ticks: dict[int, int] = {}
            for gap, op in _gaps(row):
                if op.kind is Kind.W:
                    meant |= dict.fromkeys(_units(op, units), gap)
                    start, end = self.span[op]
                    ticks[gap] = ticks.get(gap, 0) + end - start
            self.between.append(ticks)
        self.home = frozenset(
            op
            for row in executed.ops
            for gap, op in _gaps(row)
            if op.kind is not Kind.W or all(meant[unit] == gap for unit in _units(op, units))
        )


def _flat(schedule: Schedule) -> Iterator[Op]:
    for row in schedule.ops:
        yield from row


def _gaps(row: Sequence[Op]) -> Iterator[tuple[int, Op]]:
    """Ops of a rank, each with the number of F, I and B before it."""
    gap = 0
    for op in row:
        yield gap, op
        gap += op.kind is not Kind.W


def _units(op: Op, units: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    for unit in range(*(op.units or (0, units[op.stage]))):
        yield op.stage, op.microbatch, unit


@dataclass(frozen=True, slots=True)
class _Node:
    """An op of the path, and whether its message is what it waited for."""

    rank: int
    at: int
    ran: Ran
    by_message: bool


def _critical_path(trace: Trace, home: frozenset[Op]) -> list[_Node]:
    """The measured critical path, first to last."""
    where = {ran.op: (rank, at) for rank, row in enumerate(trace.rows) for at, ran in enumerate(row)}
    rank = max(range(len(trace.rows)), key=lambda each: trace.rows[each][-1].end_ns)
    at = len(trace.rows[rank]) - 1
    path: list[_Node] = []
    while at >= 0:
        ran = trace.rows[rank][at]
        due = next((before.end_ns for before in reversed(trace.rows[rank][:at]) if before.op in home), None)
        source = trace.source(ran.op)
        came = ran.arrived_ns is not None and (due is None or ran.arrived_ns > due)
        path.append(_Node(rank, at, ran, source is not None and came))
        rank, at = where[source[1]] if source is not None and came else (rank, at - 1)
    return path[::-1]


def _excess(trace: Trace, prices: _Prices, path: Sequence[_Node]) -> Iterator[Charge]:
    """What the run has and the plan has not, or has shorter."""
    ended = trace.begin_ns
    for node in path:
        rank, ran, op = node.rank, node.ran, node.ran.op
        ready = ended
        if node.by_message and ran.arrived_ns is not None:
            ready = ran.arrived_ns
            yield Charge(rank, op, Cause.message, ready - ended - prices.lag[op] * prices.tick_ns)
        filled = sum(
            max(0, min(other.end_ns, ran.start_ns) - max(other.start_ns, ready))
            for other in trace.rows[rank][: node.at]
            if other.op not in prices.home
        )
        yield Charge(rank, op, Cause.filling, Fraction(filled))
        yield Charge(rank, op, Cause.overhead, Fraction(ran.start_ns - ready - filled))
        ended = ran.end_ns
        took = Fraction(ended - ran.start_ns)
        if op in prices.home:
            yield Charge(rank, op, Cause.compute, took - prices.ticks[op] * prices.tick_ns)
        else:
            yield Charge(rank, op, Cause.filling, took)


def _relief(prices: _Prices, path: Sequence[_Node]) -> Iterator[Charge]:
    """What the plan has between the F, I and B of the path, and behind them, and the run has not."""
    tick_ns, plan = prices.tick_ns, prices.plan
    reached, gap, home = int(plan.start.min()), 0, 0  # since when, by the plan; after how many F, I and B of the rank
    for node in path:
        op = node.ran.op
        if op.kind is Kind.W:
            home += prices.ticks[op] if op in prices.home else 0
            continue
        start, end = prices.span[op]
        weights = 0 if node.by_message else prices.between[node.rank].get(gap, 0)
        lag = prices.lag[op] if node.by_message else 0
        yield Charge(node.rank, op, Cause.elsewhere, (home - weights) * tick_ns)
        yield Charge(node.rank, op, Cause.slack, (reached + weights + lag - start) * tick_ns)
        reached, gap, home = end, prices.number[op] + 1, 0
    last = path[-1]
    weights = prices.between[last.rank].get(gap, 0)
    yield Charge(last.rank, last.ran.op, Cause.elsewhere, (home - weights) * tick_ns)
    yield Charge(last.rank, last.ran.op, Cause.slack, (reached + weights - int(plan.end.max())) * tick_ns)
