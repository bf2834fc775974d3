"""Lower a schedule to instructions, and prove that they end.

The proof is a run without a clock and without data. Sends do not block, receives are posted by threads of their own,
and a message that an op waits for is let past a channel's receive window, so what a rank can do next depends on nothing
but its own instructions and the messages already sent. Such a network of processes gives the same result in every
order of execution (Kahn, "The semantics of a simple language for parallel programming", 1974): if one run ends, all
do; if it sticks, the ranks that are stuck wait for each other in a circle, which the error names.

Where a rank has a memory limit, its sends do block, once as many of one route are on their way as its window holds. The
argument stays the same, for room is a message that comes back. In adaptive execution a rank looks for that room before
it takes the message that the op needs, so here it does too; a rank that takes it earlier only gives more room. Where
such windows are what a run sticks at, those that are full grow, as buffers do in Parks, "Bounded scheduling of process
networks", 1995.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from adaptpipe.solver import Kind, NoAnswerError, Op, Placement, Problem, Schedule
from adaptpipe.solver.core.precedence import ROW, predecessors
from adaptpipe.solver.core.problem import price
from adaptpipe.solver.evaluate.simulate import op_inputs, require_fit
from adaptpipe.solver.evaluate.structure import deadlock, malformed

from .program import Instruction, Pass, Program, Receive, Run, Send
from .route import WINDOW, Route

_FORWARD = ROW[Kind.F]


def lower(problem: Problem, schedule: Schedule) -> Program:
    """Turn a schedule into instructions with matched sends and receives.

    Parameters
    ----------
    problem, schedule
        A schedule of the problem's shape. Its memory may pass the limits: `check` tells.

    Raises
    ------
    InputError
        When the schedule is for another shape.
    NoAnswerError
        When an op is missing, doubled or on a wrong rank, or when ranks would wait for each other for ever; the
        message names the ops.

    Examples
    --------
    >>> from adaptpipe.solver import place
    >>> problem = Problem.from_dict({
    ...     "pipeline": {"ranks": 2},
    ...     "batch": {"samples": 1},
    ...     "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
    ... })
    >>> schedule = Schedule.parse(place("linear", 2), (1,), [["0F0", "0B0"], ["1F0", "1I0", "1W0"]])
    >>> for row in lower(problem, schedule).texts():
    ...     print("; ".join(row))
    0F0; send F 0->1 (rank 0 to rank 1) of 0F0; receive B 1->0 (rank 1 to rank 0) for 0B0; 0B0
    receive F 0->1 (rank 0 to rank 1) for 1F0; 1F0; 1I0; send B 1->0 (rank 1 to rank 0) of 1I0; 1W0
    """
    require_fit(problem, schedule)
    found = malformed(problem.instance(schedule.sizes), schedule)
    if found:
        raise NoAnswerError(found[0].message)
    rows = _rows(schedule.placement, schedule.sizes, schedule.ops)
    tokens = (1,) if problem.slices is None else problem.slices.tokens
    ticks = _unit_ticks(problem, schedule.sizes)
    program = Program(schedule.placement, schedule.sizes, rows, ticks, tokens=tokens)
    limited = {rank for rank, limit in enumerate(problem.memory.limit) if limit is not None}
    stuck, windows = _run_dry(program, limited)
    if stuck is not None:
        before, _ = op_inputs(problem.instance(schedule.sizes), schedule)
        raise NoAnswerError(deadlock(schedule, before, schedule.table.offsets[:-1] + stuck).message)
    return replace(program, windows=windows)


def forward_only(placement: Placement, sizes: Sequence[int]) -> Program:
    """Instructions that run every micro-batch forward and nothing else, for an evaluation.

    Each rank takes its stages in ascending order, and all micro-batches of one before the next stage. Any placement can
    run that, for the order is the same on all ranks. No more messages are on their way than that needs, so that a rank
    does not hold the outputs of an evaluation of any length for the one after it.
    """
    count = len(sizes)
    ops: list[list[Op]] = [[] for _ in range(placement.ranks)]
    for stage in range(placement.stage_count):
        for j in range(count):
            ops[placement.rank_of(stage, j, count)].append(Op(stage, Kind.F, j))
    program = Program(placement, tuple(sizes), _rows(placement, sizes, ops))
    stuck, windows = _run_dry(program, range(placement.ranks))
    assert stuck is None, "a forward pass in one global order cannot stick"
    return replace(program, windows=windows)


def _unit_ticks(problem: Problem, sizes: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(tuple(tuple(price(unit, size) for unit in units) for size in sizes) for units in problem.weight_units)


def _rows(
    placement: Placement, sizes: Sequence[int], ops: Iterable[Iterable[Op]]
) -> tuple[tuple[Instruction, ...], ...]:
    return tuple(tuple(instruction for op in row for instruction in _around(placement, len(sizes), op)) for row in ops)


def _around(placement: Placement, count: int, op: Op) -> Iterable[Instruction]:
    """An op, after the receive of what it needs and before the send of what it makes."""
    stages, j = placement.stage_count, op.microbatch
    here, direction = placement.rank_of(op.stage, j, count), placement.direction_of(j, count)
    for row, stage in predecessors(op, stages):
        there = placement.rank_of(stage, j, count)
        if there != here:
            yield Receive(op, Route("F" if row == _FORWARD else "B", stage, op.stage, there, here, direction))
    yield Run(op)
    receiver = op.stage + (1 if op.kind is Kind.F else -1)
    if op.kind is Kind.W or not 0 <= receiver < stages:
        return
    there = placement.rank_of(receiver, j, count)
    if there == here:
        yield Pass(op, receiver)
    else:
        yield Send(op, Route("F" if op.kind is Kind.F else "B", op.stage, receiver, here, there, direction))


def _run_dry(program: Program, limited: Container[int]) -> tuple[list[int] | None, dict[Route, int]]:
    """Run a program without data, with windows for what ranks in `limited` send.

    Returns
    -------
    tuple
        None if it ends, else how many ops each rank has done when nothing moves; and the windows, as large as needed.
    """
    stages, count = program.placement.stage_count, len(program.sizes)
    made: set[tuple[int, int, int]] = set()  # (row, stage, micro-batch) of the ops that have run
    sent: set[tuple[Route, int]] = set()
    windows = {route: WINDOW for route in program.routes if route.source in limited}
    waiting = dict.fromkeys(program.routes, 0)  # messages sent and not taken
    at, done = [0] * len(program.rows), [0] * len(program.rows)
    sends = {i.op: i.route for i in program.instructions() if isinstance(i, Send)}
    moved = True

    def has_room(route: Route | None) -> bool:
        return route is None or waiting[route] < WINDOW + windows.get(route, len(program.sizes))

    def can_go(rank: int, instruction: Instruction) -> bool:
        op = instruction.op
        match instruction:
            case Receive(_, route):
                return (route, op.microbatch) in sent and has_room(sends.get(op))
            case Run():
                return all(
                    (row, stage, op.microbatch) in made
                    for row, stage in predecessors(op, stages)
                    if program.placement.rank_of(stage, op.microbatch, count) == rank
                )
            case Send(_, route):
                return has_room(route)
            case Pass():
                return True

    while moved:
        moved = False
        for rank, row in enumerate(program.rows):
            while at[rank] < len(row) and can_go(rank, instruction := row[at[rank]]):
                at[rank] += 1
                moved = True
                match instruction:
                    case Send(op, route):
                        sent.add((route, op.microbatch))
                        waiting[route] += 1
                    case Receive(_, route):
                        waiting[route] -= 1
                    case Run(op):
                        done[rank] += 1
                        if op.kind is not Kind.W:
                            made.add((ROW[op.kind], op.stage, op.microbatch))
                    case Pass():
                        pass
        if not moved:
            blocked = (row[place] for place, row in zip(at, program.rows, strict=True) if place < len(row))
            for instruction in blocked:
                full = sends.get(instruction.op)
                if full is not None and full in windows and not has_room(full):
                    windows[full] += 1
                    moved = True
    return None if all(at[rank] == len(row) for rank, row in enumerate(program.rows)) else done, windows
