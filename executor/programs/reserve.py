"""What messages can hold at most under one schedule, so that a limit which they would pass is seen at load."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil

from adaptpipe.solver import Kind, Placement, Problem, Schedule
from adaptpipe.solver.core.problem import price
from adaptpipe.solver.core.slices import sliced_price

from .lowering import lower
from .program import Pass, Program, Receive, Run, Send
from .route import WINDOW, Route

_ANY = 1  # bytes: a limit of any height gives a rank's sends their windows


def borders(placement: Placement) -> tuple[tuple[int, ...], ...]:
    """For each rank, the stages after which a message leaves it or reaches it, or passes to another stage of its own.

    Each such border carries activations one way and gradients the other, with `WINDOW` messages of each at either end.
    """
    found: list[list[int]] = [[] for _ in range(placement.ranks)]
    for row in placement.stages:
        for stage, (here, there) in enumerate(pairwise(row)):
            for rank in {here, there}:
                found[rank].append(stage)
    return tuple(map(tuple, found))


def reserve_for(problem: Problem, schedule: Schedule) -> tuple[int, ...]:
    """For each rank, the bytes to set aside for messages so that none of a schedule's count beyond: see `widened`.

    Parameters
    ----------
    problem, schedule
        As for `lower`; whether the problem has limits does not matter.

    Raises
    ------
    InputError, NoAnswerError
        As `lower`.
    """
    limited = replace(problem, memory=replace(problem.memory, limit=(_ANY,) * problem.ranks))
    return widened(problem, lower(limited, schedule)).memory.reserve


def widened(problem: Problem, program: Program) -> Problem:
    """The problem with a reserve that holds all messages which a rank may have at once.

    In most schedules that is the usual one, of the windows at both ends of every channel. It is more where windows grow
    because a schedule cannot do without, as when all micro-batches go through one stage before the next one of the same
    rank, or where a rank passes many messages on to itself. A rank without a limit, or without a reserve, which says
    nothing of messages, keeps what it has. Where the problem does not name the sizes of messages, each is an equal
    share of the usual reserve.

    Parameters
    ----------
    problem, program
        A schedule of the problem, lowered.
    """
    memory, ends = problem.memory, borders(program.placement)
    sizes = _sizes(problem, max(program.sizes))
    reserve = list(memory.reserve)
    for rank, (most, usual) in enumerate(zip(_held(program, sizes), memory.reserve, strict=True)):
        if usual and memory.limit[rank] is not None:
            share = 1 if problem.links.message else usual / (2 * WINDOW * len(ends[rank]) or 1)
            reserve[rank] = max(usual, ceil(most * share))
    return replace(problem, memory=replace(memory, reserve=tuple(reserve)))


def _sizes(problem: Problem, largest: int) -> tuple[int, ...]:
    """Bytes of the message after each stage; 1 where the problem does not say."""
    if not problem.links.message:
        return (1,) * problem.placement.stage_count
    slices = problem.slices
    if slices is None:
        return tuple(price(cost, largest) for cost in problem.links.message)
    places = range(slices.count)
    return tuple(max(sliced_price(cost, largest, slices.tokens, i) for i in places) for cost in problem.links.message)


def _held(program: Program, sizes: Sequence[int]) -> tuple[int, ...]:
    """The most bytes of messages that each rank can hold at once, whatever the ops and the links take.

    A message is on its way until its sender can know, by what it has received since, that it was taken.
    """
    taken: dict[Route, list[int]] = {route: [] for route in program.routes}  # where in their rows messages are taken
    for row in program.rows:
        for place, instruction in enumerate(row):
            if isinstance(instruction, Receive):
                taken[instruction.route].append(place)
    windows = {route: _receive_window(program, route) for route in program.routes}
    return tuple(
        max(_held_by(rank, known, program, sizes, taken, windows)) for rank, known in enumerate(_knowledge(program))
    )


def _held_by(
    rank: int,
    known: Sequence[Sequence[int]],
    program: Program,
    sizes: Sequence[int],
    taken: Mapping[Route, Sequence[int]],
    windows: Mapping[Route, int],
) -> Iterator[int]:
    """The most bytes of a rank's messages before its first instruction, and at the end of each."""
    coming = {route: len(taken[route]) for route in program.routes if route.target == rank}
    sent = {route: 0 for route in program.routes if route.source == rank}
    passed: dict[tuple[bool, int, int], int] = {}
    yield sum(min(windows[route], count) * _size(route, sizes) for route, count in coming.items())
    for instruction, ended in zip(program.rows[rank], known, strict=True):
        match instruction:
            case Receive(_, route):
                coming[route] -= 1
            case Send(_, route):
                sent[route] += 1
            case Run(op):
                passed.pop((op.kind is Kind.F, op.stage, op.microbatch), None)
            case Pass(op, receiver):
                passed[op.kind is Kind.F, receiver, op.microbatch] = sizes[min(op.stage, receiver)]
        held = sum(passed.values())
        for route, count in coming.items():
            held += min(windows[route], count) * _size(route, sizes)
        for route, count in sent.items():
            on_the_way = count - bisect_left(taken[route], ended[route.target])
            held += min(program.windows.get(route, count), on_the_way) * _size(route, sizes)
        yield held


def _size(route: Route, sizes: Sequence[int]) -> int:
    return sizes[min(route.sender, route.receiver)]


def _receive_window(program: Program, route: Route) -> int:
    """Messages that wait at the receiver at most: more than the usual window where it takes a later one first."""
    order = {microbatch: place for place, microbatch in enumerate(program.orders[route])}
    takes = (i.op.microbatch for i in program.rows[route.target] if isinstance(i, Receive) and i.route == route)
    return max(WINDOW, *(order[microbatch] + 1 - done for done, microbatch in enumerate(takes)))


def _knowledge(program: Program) -> list[list[list[int]]]:
    """For each rank and instruction, how many instructions of every rank have ended for sure when it has."""
    ranks = len(program.rows)
    at, moved = [0] * ranks, True
    now = [[0] * ranks for _ in range(ranks)]
    found: list[list[list[int]]] = [[] for _ in range(ranks)]
    told: dict[tuple[Route, int], list[int]] = {}
    while moved:
        moved = False
        for rank, row in enumerate(program.rows):
            while at[rank] < len(row):
                instruction = row[at[rank]]
                if isinstance(instruction, Receive):
                    message = told.pop((instruction.route, instruction.op.microbatch), None)
                    if message is None:
                        break
                    now[rank] = [max(a, b) for a, b in zip(now[rank], message, strict=True)]
                at[rank] += 1
                now[rank][rank] = at[rank]
                found[rank].append(now[rank].copy())
                if isinstance(instruction, Send):
                    told[instruction.route, instruction.op.microbatch] = found[rank][-1]
                moved = True
    return found
